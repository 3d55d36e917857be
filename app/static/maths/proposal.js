// What belongs to a clicked patch: the patches whose keys are like its own, as far as they hang together with it.

import { keepMass, likenessMap } from "./attention.js";

/**
 * The patches that belong to one: those that hold the share `reach` of all positive similarity to it and touch it, edge
 * to edge, directly or through others of them. One byte per patch, 1 = inside; the patch itself always is.
 * @param {Block} block @param {{ rows: number, columns: number }} grid
 * @param {{ row: number, column: number }} patch @param {number} reach
 */
export function proposal(block, { rows, columns }, { row, column }, reach) {
  const patch = row * columns + column;
  const alike = likenessMap(block, block.prefix + patch).map((value) => Math.max(0, value));
  alike[patch] = 1; // also where a key has no length
  const kept = keepMass(alike, reach);
  kept[patch] = 1;
  return connected(kept, rows, columns, patch);
}

/**
 * A mask without specks and pinholes: parts of either kind with fewer cells than `least` become what is around them.
 * @param {Uint8Array} mask  changed in place @param {number} columns @param {number} least
 */
export function tidy(mask, columns, least) {
  const seen = new Uint8Array(mask.length);
  const rows = mask.length / columns;
  for (let start = 0; start < mask.length; start++) {
    if (seen[start]) continue;
    const part = [start];
    seen[start] = 1;
    for (let next = 0; next < part.length; next++) {
      const cell = part[next];
      const column = cell % columns;
      const visit = (/** @type {number} */ other) => {
        if (seen[other] || mask[other] !== mask[cell]) return;
        seen[other] = 1;
        part.push(other);
      };
      if (cell >= columns) visit(cell - columns);
      if (cell < (rows - 1) * columns) visit(cell + columns);
      if (column > 0) visit(cell - 1);
      if (column < columns - 1) visit(cell + 1);
    }
    if (part.length < least) for (const cell of part) mask[cell] = 1 - mask[cell];
  }
  return mask;
}

/**
 * The part of a mask that hangs together with one of its cells.
 * @param {Uint8Array} mask @param {number} rows @param {number} columns @param {number} start
 */
function connected(mask, rows, columns, start) {
  const part = new Uint8Array(mask.length);
  const open = [start];
  part[start] = 1;
  const visit = (/** @type {number} */ cell) => {
    if (!mask[cell] || part[cell]) return;
    part[cell] = 1;
    open.push(cell);
  };
  while (open.length) {
    const cell = /** @type {number} */ (open.pop());
    const column = cell % columns;
    if (cell >= columns) visit(cell - columns);
    if (cell < (rows - 1) * columns) visit(cell + columns);
    if (column > 0) visit(cell - 1);
    if (column < columns - 1) visit(cell + 1);
  }
  return part;
}
