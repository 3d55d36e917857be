// Scales of charts, and where a value lies on them: no page, no canvas.

/**
 * A scale from values to 0…1, with `air` at either end: linear, or logarithmic over the values above 0.
 * @param {number[]} values @param {boolean} [logarithmic] @param {number} [air]
 */
export function scale(values, logarithmic = false, air = 0) {
  const finite = values.filter((value) => Number.isFinite(value) && (!logarithmic || value > 0));
  const measure = logarithmic ? Math.log10 : (/** @type {number} */ value) => value;
  let low = Math.min(...finite);
  let high = Math.max(...finite);
  if (!finite.length) [low, high] = [1, 10];
  if (low === high) [low, high] = logarithmic ? [low / 2, high * 2] : [low - 1, high + 1];
  const place = (/** @type {number} */ value) =>
    air + ((1 - 2 * air) * (measure(value) - measure(low))) / (measure(high) - measure(low));
  return { low, high, place, ticks: logarithmic ? decades(low, high) : steps(low, high) };
}

/** Three to eight round numbers from low to high. @param {number} low @param {number} high */
function steps(low, high) {
  const rough = (high - low) / 7;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = power * ([1, 2, 5, 10].find((factor) => factor * power >= rough) ?? 10);
  const found = [];
  for (let index = Math.ceil(low / step); index * step <= high; index++) found.push(index * step);
  return found;
}

/** 1, 2 and 5 times the powers of ten; the powers alone where that is too many. @param {number} low @param {number} high @returns {number[]} */
function decades(low, high) {
  const found = [];
  const factors = high / low > 1e3 ? [1] : [1, 2, 5];
  for (let power = Math.floor(Math.log10(low)); power <= Math.log10(high); power++) {
    for (const factor of factors) found.push(factor * 10 ** power);
  }
  const within = found.filter((value) => value >= low && value <= high);
  return within.length > 1 ? within : steps(low, high).filter((value) => value > 0);
}

/** Index of the entry of a rising list that is nearest to a value; -1 for an empty list. @param {number[]} rising @param {number} value */
export function nearest(rising, value) {
  if (!rising.length || value === Infinity) return rising.length - 1;
  return rising.reduce(
    (best, entry, index) => (Math.abs(entry - value) < Math.abs(rising[best] - value) ? index : best),
    0,
  );
}
