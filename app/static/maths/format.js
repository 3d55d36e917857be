// Numbers and colors as text.

/** Write a share as a percentage, with one decimal below ten. @param {number} share */
export function percent(share) {
  return `${(100 * share).toFixed(share < 0.0995 ? 1 : 0)} %`;
}

/** Write two decimals, without a sign if they are zero. @param {number} value */
export function decimals(value) {
  return (Math.abs(value) < 0.005 ? 0 : value).toFixed(2);
}

/** Write a color of three bytes for a style sheet. @param {ArrayLike<number>} color */
export function css(color) {
  return `rgb(${Array.from(color).join(" ")})`;
}

const FORMATS = new Map(); // by significant digits: making one takes longer than drawing a map

/** Write significant digits, with separators. @param {number} value */
export function figure(value, digits = 4) {
  if (value !== 0 && Math.abs(value) < 1e-3) return value.toExponential(1);
  if (!FORMATS.has(digits)) FORMATS.set(digits, new Intl.NumberFormat("en", { maximumSignificantDigits: digits }));
  return FORMATS.get(digits).format(value);
}

/** Decode base64. @param {string} text */
export function fromBase64(text) {
  return Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
}
