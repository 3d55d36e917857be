// Numbers and colours, as people and style sheets read them.

/** A share from 0 to 1, with one decimal below ten percent. */
export function percent(share) {
  return `${(100 * share).toFixed(share < 0.0995 ? 1 : 0)} %`;
}

/** Two decimals, and no sign where they are zero. */
export function decimals(value) {
  return (Math.abs(value) < 0.005 ? 0 : value).toFixed(2);
}

/** A colour of three bytes. */
export function css(color) {
  return `rgb(${color.join(" ")})`;
}
