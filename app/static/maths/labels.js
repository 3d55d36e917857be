// Labels: { rows, columns, values } with one byte per cell in reading order, 0 for no object. They cover the whole image
// whatever their rows and columns. A mask is labels with one object.

/** Find the source cell under the center of each target cell along one side. */
function nearest(from, to) {
  return Int32Array.from({ length: to }, (_, index) => Math.floor(((2 * index + 1) * from) / (2 * to)));
}

/** Resize labels. @param {Labels} labels @param {Grid} size @returns {Labels} */
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
 * Compute the intersection over union of two masks at a common size; 1 if both are empty.
 * @param {Labels} one @param {Labels} other @param {Grid} size @param {number} number  of an object of `one`; 0: any
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

/** Count the objects. @param {Labels} labels */
export function countOf({ values }) {
  return values.reduce((count, value) => Math.max(count, value), 0);
}

/** Compute the share of the image that an object covers; 0: all objects. @param {Labels} labels */
export function area({ values }, number = 0) {
  return values.filter((value) => (number ? value === number : value > 0)).length / values.length;
}

/** Combine masks: 1 where any of them is. @param {Uint8Array[]} masks */
export function union(masks) {
  const any = masks[0].slice();
  for (const mask of masks) for (let cell = 0; cell < any.length; cell++) any[cell] |= mask[cell];
  return any;
}

/** Draw the border of one object as an SVG path, in units of cells. @param {Labels} labels */
export function outlinePath({ values, rows, columns }, number = 1) {
  const inside = (row, column) =>
    row >= 0 && column >= 0 && row < rows && column < columns && values[row * columns + column] === number;
  const parts = [];
  const follow = (length, border, write) => {
    for (let start = 0, end = 0; start < length; start = end + 1) {
      for (end = start; end < length && border(end); end++);
      if (end > start) parts.push(write(start, end));
    }
  };
  for (let row = 0; row <= rows; row++) {
    const border = (column) => inside(row, column) !== inside(row - 1, column);
    follow(columns, border, (start, end) => `M${start} ${row}H${end}`);
  }
  for (let column = 0; column <= columns; column++) {
    const border = (row) => inside(row, column) !== inside(row, column - 1);
    follow(rows, border, (start, end) => `M${column} ${start}V${end}`);
  }
  return parts.join("");
}
