// Objects as arrays, and how well two of them agree: no page, no canvas.
//
// Labels are {rows, columns, values}: a byte per cell in reading order, 0 for no object, 1 for the first, 2 for the
// second. A mask is labels with one object. Both lie over the whole picture, whatever their rows and columns.

/** Which of `from` cells holds the centre of each of `to` cells along one side. */
function nearest(from, to) {
  return Int32Array.from({ length: to }, (_, index) => Math.floor(((2 * index + 1) * from) / (2 * to)));
}

/**
 * Intersection over union of two masks, in [0, 1], at a common size; 1 where both are empty.
 * @param {object} one, other  labels; what is no 0 is inside
 * @param {{rows: number, columns: number}} size  at which cells are counted; both are brought there by nearest
 * @param {number} number  of `one`, count this object alone; 0: any
 */
export function jaccard(one, other, size = other, number = 0) {
  const [oneRows, otherRows] = [one, other].map(({ rows }) => nearest(rows, size.rows));
  const [oneColumns, otherColumns] = [one, other].map(({ columns }) => nearest(columns, size.columns));
  let shared = 0;
  let union = 0;
  for (let row = 0; row < size.rows; row++) {
    const oneAt = oneRows[row] * one.columns;
    const otherAt = otherRows[row] * other.columns;
    for (let column = 0; column < size.columns; column++) {
      const label = one.values[oneAt + oneColumns[column]];
      const inOne = number ? label === number : label > 0;
      const inOther = other.values[otherAt + otherColumns[column]] > 0;
      if (inOne && inOther) shared++;
      if (inOne || inOther) union++;
    }
  }
  return union ? shared / union : 1;
}

/** The key of the mask that agrees best with another, of Map key -> mask; the first of equals. */
export function best(masks, other) {
  let chosen = null;
  let highest = -1;
  for (const [key, mask] of masks) {
    const score = jaccard(mask, other);
    if (score > highest) [chosen, highest] = [key, score];
  }
  return chosen;
}

/** How many objects there are. */
export function countOf({ values }) {
  let count = 0;
  for (const value of values) if (value > count) count = value;
  return count;
}

/** Share of the picture that an object covers; 0: all of them together. */
export function area({ values }, number = 0) {
  let inside = 0;
  for (const value of values) if (number ? value === number : value > 0) inside++;
  return inside / values.length;
}

/** One object as bytes of 0 and 1, in reading order. */
export function only({ values }, number) {
  return Uint8Array.from(values, (value) => (value === number ? 1 : 0));
}
