// Display ranges, and the enlargement of maps to pixels: interpolation first, colors second, as in `segmentation.drawing`.

import { range } from "./attention.js";

const CAP = 98; // percentile that is shown at full strength, so that one patch does not darken the others

/**
 * Choose the values that are shown as nothing and as full: the median, or zero in the middle if `diverging`, and the
 * percentile `CAP`.
 * @param {Float32Array} values @param {boolean} [diverging] @returns {[number, number]}
 */
export function displayRange(values, diverging = false) {
  if (diverging) {
    const [reach] = percentiles(values.map(Math.abs), [CAP]);
    return [-reach, reach];
  }
  const [low, high] = percentiles(values, [50, CAP]);
  return low < high ? [low, high] : range(values);
}

/** Compute percentiles as NumPy does, by linear interpolation. @param {Float32Array} values @param {number[]} percents */
function percentiles(values, percents) {
  const rising = values.slice().sort(); // typed arrays sort numerically
  return percents.map((percent) => {
    const place = ((values.length - 1) * percent) / 100;
    const below = Math.floor(place);
    const above = Math.min(below + 1, values.length - 1);
    return rising[below] + (rising[above] - rising[below]) * (place - below);
  });
}

const AXES = new Map();

/**
 * Find for each pixel of a side the distance to the patch center before it, and for each patch the first pixel behind
 * its center; the first patch begins at 0.
 */
function axis(patches, pixels) {
  const key = `${patches} ${pixels}`;
  if (!AXES.has(key)) {
    const from = new Int32Array(pixels);
    const weights = new Float32Array(pixels);
    const starts = new Int32Array(patches + 1).fill(pixels);
    for (let pixel = pixels - 1; pixel >= 0; pixel--) {
      const place = Math.max(0, ((pixel + 0.5) * patches) / pixels - 0.5);
      from[pixel] = Math.floor(place);
      weights[pixel] = place - from[pixel];
      starts.fill(pixel, 0, from[pixel] + 1);
    }
    AXES.set(key, { from, weights, starts });
  }
  return AXES.get(key);
}

/**
 * Fill `pixels` with entries of `table`: values are interpolated between patch centers, then scaled from `low` to `high`.
 * @param {Float32Array} map @param {Grid} grid @param {Size} size @param {number[]} range
 * @param {Uint32Array} table @param {Uint32Array} pixels
 */
export function enlarge(map, { rows, columns }, { width, height }, [low, high], table, pixels) {
  const { weights, starts } = axis(columns, width);
  const down = axis(rows, height);
  const most = table.length - 1;
  const scale = most / (high - low); // of a constant map: NaN, which draws the lowest level
  const line = new Float32Array(columns + 1); // the last patch twice
  for (let row = 0; row < height; row++) {
    const above = down.from[row] * columns;
    const below = Math.min(rows - 1, down.from[row] + 1) * columns;
    const weight = down.weights[row];
    for (let column = 0; column < columns; column++) {
      const value = map[above + column];
      line[column] = (value + (map[below + column] - value) * weight - low) * scale + 0.5;
    }
    line[columns] = line[columns - 1];
    const first = row * width;
    for (let column = 0; column < columns; column++) {
      const left = line[column];
      const right = line[column + 1];
      const end = starts[column + 1];
      if (left <= 0 && right <= 0) pixels.fill(table[0], first + starts[column], first + end);
      else if (left >= most && right >= most) pixels.fill(table[most], first + starts[column], first + end);
      else
        for (let pixel = starts[column]; pixel < end; pixel++) {
          const level = left + (right - left) * weights[pixel];
          pixels[first + pixel] = table[level < 0 ? 0 : level > most ? most : level | 0];
        }
    }
  }
}

/** Shrink a size to at most `most` pixels. @param {Size} size @param {number} most */
export function drawnSize({ width, height }, most) {
  return shrunk({ width, height }, Math.sqrt(most / (width * height)));
}

/** Shrink a size to a longer side of at most `most` pixels. @param {Size} size @param {number} most */
export function fitted({ width, height }, most) {
  return shrunk({ width, height }, most / Math.max(width, height));
}

function shrunk({ width, height }, factor) {
  const side = (length) => Math.max(1, Math.round(length * Math.min(1, factor)));
  return { width: side(width), height: side(height) };
}
