// Objects as arrays, and how well two of them agree: no page, no canvas.
//
// Labels are {rows, columns, values}: a byte per cell in reading order, 0 for no object, 1 for the first, 2 for the
// second. A mask is labels with one object. Both lie over the whole picture, whatever their rows and columns.

/** Which of `from` cells holds the centre of each of `to` cells along one side. @param {number} from @param {number} to */
function nearest(from, to) {
  return Int32Array.from({ length: to }, (_, index) => Math.floor(((2 * index + 1) * from) / (2 * to)));
}

/** Labels at another size; the same where they have it. @param {Labels} labels @param {{ rows: number, columns: number }} size @returns {Labels} */
export function resized(labels, { rows, columns }) {
  if (labels.rows === rows && labels.columns === columns) return labels;
  const values = new Uint8Array(rows * columns);
  const across = nearest(labels.columns, columns);
  let cell = 0;
  for (const row of nearest(labels.rows, rows)) {
    const first = row * labels.columns;
    for (let column = 0; column < columns; column++) values[cell++] = labels.values[first + across[column]];
  }
  return { rows, columns, values };
}

/**
 * Intersection over union of two masks, in [0, 1], at a common size; 1 where both are empty.
 * @param {Labels} one  what is no 0 is inside @param {Labels} other
 * @param {{rows: number, columns: number}} size  at which cells are counted; both are brought there by nearest
 * @param {number} number  of `one`, count this object alone; 0: any
 */
export function jaccard(one, other, size = other, number = 0) {
  const [first, second] = [one, other].map((labels) => resized(labels, size).values);
  let shared = 0;
  let union = 0;
  for (let cell = 0; cell < first.length; cell++) {
    const inOne = number ? first[cell] === number : first[cell] > 0;
    const inOther = second[cell] > 0;
    if (inOne && inOther) shared++;
    if (inOne || inOther) union++;
  }
  return union ? shared / union : 1;
}

/**
 * The key of the mask that agrees best with another; the first of equals, "" of none.
 * @param {Map<string, Labels>} masks @param {Labels} other
 */
export function best(masks, other) {
  let chosen = "";
  let highest = -1;
  for (const [key, mask] of masks) {
    const score = jaccard(mask, other);
    if (score > highest) [chosen, highest] = [key, score];
  }
  return chosen;
}

/** How many objects there are. @param {Labels} labels */
export function countOf({ values }) {
  let count = 0;
  for (const value of values) if (value > count) count = value;
  return count;
}

/** Share of the picture that an object covers; 0: all of them together. @param {Labels} labels @param {number} number */
export function area({ values }, number = 0) {
  let inside = 0;
  for (const value of values) if (number ? value === number : value > 0) inside++;
  return inside / values.length;
}

/** One object as bytes of 0 and 1, in reading order. @param {Labels} labels @param {number} number */
export function only({ values }, number) {
  return Uint8Array.from(values, (value) => (value === number ? 1 : 0));
}

/** All patches that any of several masks keeps. @param {Uint8Array[]} masks */
export function union(masks) {
  const any = masks[0].slice();
  for (const mask of masks) for (let cell = 0; cell < any.length; cell++) any[cell] |= mask[cell];
  return any;
}

/**
 * The border of kept patches as an SVG path, in units of patches.
 * @param {Uint8Array} kept @param {number} rows @param {number} columns
 */
export function outlinePath(kept, rows, columns) {
  const width = columns + 2; // framed by patches that are not kept, so that no edge of the grid is special
  const framed = new Uint8Array((rows + 2) * width);
  for (let row = 0; row < rows; row++) {
    for (let column = 0; column < columns; column++) {
      framed[(row + 1) * width + column + 1] = kept[row * columns + column];
    }
  }
  const parts = [];
  for (let row = 0; row <= rows; row++) {
    for (let column = 0, at = row * width + 1; column < columns; column++, at++) {
      const start = column;
      for (; framed[at] !== framed[at + width]; at++) column++;
      if (column > start) parts.push(`M${start} ${row}H${column}`);
    }
  }
  for (let column = 0; column <= columns; column++) {
    for (let row = 0, at = width + column; row < rows; row++, at += width) {
      const start = row;
      for (; framed[at] !== framed[at + 1]; at += width) row++;
      if (row > start) parts.push(`M${column} ${start}V${row}`);
    }
  }
  return parts.join("");
}
