// Linear scales of charts.

/** Scale values to 0…1 with a margin at both ends, and choose round ticks. @param {number[]} values */
export function scale(values, margin = 0) {
  let [low, high] = [Math.min(...values), Math.max(...values)];
  if (low === high) [low, high] = [low - 1, high + 1];
  const place = (/** @type {number} */ value) => margin + ((1 - 2 * margin) * (value - low)) / (high - low);
  return { low, high, place, ticks: steps(low, high) };
}

/** Three to eight round numbers from low to high. @param {number} low @param {number} high */
function steps(low, high) {
  const rough = (high - low) / 7;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = power * ([1, 2, 5, 10].find((factor) => factor * power >= rough) ?? 10);
  const first = Math.ceil(low / step);
  return Array.from({ length: Math.floor(high / step) - first + 1 }, (_, index) => (first + index) * step);
}

/** Index of the entry of a list that is nearest to a value. @param {number[]} entries @param {number} value */
export function nearest(entries, value) {
  const distances = entries.map((entry) => Math.abs(entry - value));
  return distances.indexOf(Math.min(...distances));
}
