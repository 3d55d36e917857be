// Numbers and colours, as people and style sheets read them.

/** A share from 0 to 1, with one decimal below ten percent. @param {number} share */
export function percent(share) {
  return `${(100 * share).toFixed(share < 0.0995 ? 1 : 0)} %`;
}

/** Two decimals, and no sign where they are zero. @param {number} value */
export function decimals(value) {
  return (Math.abs(value) < 0.005 ? 0 : value).toFixed(2);
}

/** A colour of three bytes. @param {number[]} color */
export function css(color) {
  return `rgb(${color.join(" ")})`;
}

/** A number for people: four figures, thousands set apart. @param {number | null | undefined} value */
export function figure(value, digits = 4) {
  if (value === undefined || value === null) return "–";
  if (value !== 0 && Math.abs(value) < 1e-3) return value.toExponential(1);
  return value.toLocaleString("en", { maximumSignificantDigits: digits });
}

/** A number of bytes, in MB. @param {number} bytes */
export function megabytes(bytes) {
  return `${(bytes / 1e6).toFixed(bytes % 1e6 ? 1 : 0)} MB`;
}

/** How long something took or lasts. @param {number} seconds */
export function duration(seconds) {
  if (seconds < 120) return `${Math.round(seconds)} s`;
  if (seconds < 7200) return `${Math.round(seconds / 60)} min`;
  return seconds < 172_800 ? `${Math.round(seconds / 3600)} h` : `${Math.round(seconds / 86_400)} days`;
}

/** Bytes written in base64. @param {string} text */
export function fromBase64(text) {
  return Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
}
