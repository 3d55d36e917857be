// Connected parts of masks, and the region that belongs to a clicked patch.

import { keepMass, keySimilarityMap } from "./attention.js";

/**
 * Select the patches that hold a share of all positive similarity to one patch and are connected with it: one byte per
 * patch. The patch itself is always included.
 * @param {Block} block @param {Grid} grid @param {Patch} patch @param {number} reach  share, in (0, 1]
 */
export function proposal(block, { rows, columns }, { row, column }, reach) {
  const patch = row * columns + column;
  const similar = keySimilarityMap(block, block.prefix + patch).map((value) => Math.max(0, value));
  similar[patch] = 1; // even if its key is zero
  const kept = keepMass(similar, reach);
  kept[patch] = 1;
  const part = new Uint8Array(rows * columns);
  for (const cell of connect(kept, columns, patch)) part[cell] = 1;
  return part;
}

/** Invert connected parts that have fewer than `least` cells. @param {Uint8Array} mask  changed in place */
export function tidy(mask, columns, least) {
  const seen = new Uint8Array(mask.length);
  for (let start = 0; start < mask.length; start++) {
    if (seen[start]) continue;
    const part = connect(mask, columns, start, seen);
    if (part.length < least) for (const cell of part) mask[cell] = 1 - mask[cell];
  }
  return mask;
}

/** List the cells that are connected with `start`, edge to edge, and have its value. @param {Uint8Array} mask */
function connect(mask, columns, start, seen = new Uint8Array(mask.length)) {
  const part = [start];
  seen[start] = 1;
  const visit = (cell) => {
    if (seen[cell] || mask[cell] !== mask[start]) return;
    seen[cell] = 1;
    part.push(cell);
  };
  for (let next = 0; next < part.length; next++) {
    const cell = part[next];
    if (cell >= columns) visit(cell - columns);
    if (cell < mask.length - columns) visit(cell + columns);
    if (cell % columns > 0) visit(cell - 1);
    if (cell % columns < columns - 1) visit(cell + 1);
  }
  return part;
}
