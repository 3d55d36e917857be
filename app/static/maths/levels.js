// How bright a value is shown: the range of a map that is spread from nothing to full, and the map enlarged to pixels.
// Values are interpolated first and coloured afterwards, as the server does for downloads.

import { range } from "./attention.js";

const CAP = 98; // percentile from which on all is shown alike: one hot patch does not dim the rest

/**
 * The values that are shown as nothing and as full.
 * @param {Float32Array} values @param {string} scale  "median", "capped" or "full"
 * @param {boolean} diverging  zero in the middle
 * @returns {[number, number]}
 */
export function displayRange(values, scale, diverging) {
  const [least, greatest] = range(values);
  if (diverging) {
    const reach = scale === "full" ? Math.max(-least, greatest) : percentile(values.map(Math.abs).sort(), CAP);
    return [-reach, reach];
  }
  const rising = scale === "full" ? values : values.slice().sort();
  const low = scale === "median" ? percentile(rising, 50) : least;
  const high = scale === "full" ? greatest : percentile(rising, CAP);
  return low < high ? [low, high] : [least, greatest];
}

/** As NumPy's, linear between the two nearest. @param {Float32Array} rising @param {number} share  in percent */
export function percentile(rising, share) {
  const place = ((rising.length - 1) * share) / 100;
  const below = Math.floor(place);
  const above = Math.min(below + 1, rising.length - 1);
  return rising[below] + (rising[above] - rising[below]) * (place - below);
}

/** @typedef {{ from: Int32Array, weights: Float32Array }} Axis  of each pixel: the patch before it, and how far on it is */

/** @type {Map<string, Axis>} */
const AXES = new Map();

/** Where the pixels of a side lie between the centres of its patches. @param {number} patches @param {number} pixels @returns {Axis} */
function axis(patches, pixels) {
  const key = `${patches} ${pixels}`;
  let found = AXES.get(key);
  if (!found) {
    found = { from: new Int32Array(pixels), weights: new Float32Array(pixels) };
    for (let pixel = 0; pixel < pixels; pixel++) {
      const place = Math.min(patches - 1, Math.max(0, ((pixel + 0.5) * patches) / pixels - 0.5));
      found.from[pixel] = Math.floor(place);
      found.weights[pixel] = place - found.from[pixel];
    }
    AXES.set(key, found);
  }
  return found;
}

/**
 * Call `write` with a level from 0 to `most` for every pixel, in reading order: values interpolated linearly between
 * the centres of patches, then measured from `low` to `high`.
 * @param {Float32Array} map @param {{ rows: number, columns: number }} grid
 * @param {{ width: number, height: number }} size @param {[number, number]} range
 * @param {Uint32Array} table  what a level becomes @param {Uint32Array} pixels  takes it
 */
export function enlarge(map, { rows, columns }, { width, height }, [low, high], table, pixels) {
  const across = axis(columns, width);
  const down = axis(rows, height);
  const most = table.length - 1;
  const scale = high > low ? most / (high - low) : most;
  const line = new Float32Array(columns + 1); // in levels; the last patch twice, so that none is beyond the end
  let at = 0;
  for (let row = 0; row < height; row++) {
    const above = down.from[row] * columns;
    const below = Math.min(rows - 1, down.from[row] + 1) * columns;
    const weight = down.weights[row];
    for (let column = 0; column < columns; column++) {
      const value = map[above + column];
      line[column] = (value + (map[below + column] - value) * weight - low) * scale + 0.5;
    }
    line[columns] = line[columns - 1];
    for (let column = 0; column < width; column++) {
      const from = across.from[column];
      const level = line[from] + (line[from + 1] - line[from]) * across.weights[column];
      pixels[at++] = table[level < 0 ? 0 : level > most ? most : level | 0];
    }
  }
}

/**
 * The size at which a picture's maps are drawn: its own, up to a number of pixels.
 * @param {{ width: number, height: number }} picture @param {number} most  pixels
 */
export function drawnSize({ width, height }, most) {
  return within({ width, height }, Math.sqrt(most / (width * height)));
}

/** A size made smaller by a factor, never larger. @param {{ width: number, height: number }} size @param {number} factor */
export function within({ width, height }, factor) {
  const side = (/** @type {number} */ length) => Math.max(1, Math.round(length * Math.min(1, factor)));
  return { width: side(width), height: side(height) };
}
