// What belongs to a clicked patch: the patches whose keys are like its own, as far as they hang together with it.

/** @typedef {{ vectors: Float32Array, patches: number, width: number }} Vectors  vectors [patches, width] */

import { keepMass } from "./attention.js";

/**
 * Keys of all patches as unit vectors, after their mean was taken off: what they have in common says nothing.
 * @param {import("./attention.js").Block} block
 * @returns {Vectors}
 */
export function keyVectors({ keys, heads, tokens, dim, prefix }) {
  const patches = tokens - prefix;
  const width = heads * dim;
  const vectors = new Float32Array(patches * width);
  for (let head = 0; head < heads; head++) {
    for (let axis = 0; axis < dim; axis++) {
      const from = (head * tokens + prefix) * dim + axis;
      const to = head * dim + axis;
      let mean = 0;
      for (let patch = 0; patch < patches; patch++) mean += keys[from + patch * dim] / patches;
      for (let patch = 0; patch < patches; patch++) vectors[patch * width + to] = keys[from + patch * dim] - mean;
    }
  }
  for (let patch = 0; patch < patches; patch++) {
    const vector = vectors.subarray(patch * width, (patch + 1) * width);
    const length = Math.hypot(...vector) || 1;
    for (let axis = 0; axis < width; axis++) vector[axis] /= length;
  }
  return { vectors, patches, width };
}

/** Cosine of one patch's key with every patch's: [patches], in [-1, 1]. @param {Vectors} vectors @param {number} patch */
export function keySimilarity({ vectors, patches, width }, patch) {
  const similarity = new Float32Array(patches);
  const own = vectors.subarray(patch * width, (patch + 1) * width);
  for (let other = 0, at = 0; other < patches; other++) {
    let product = 0;
    for (let axis = 0; axis < width; axis++, at++) product += own[axis] * vectors[at];
    similarity[other] = product;
  }
  return similarity;
}

/**
 * The patches that belong to one: those that hold the share `reach` of all positive similarity to it and touch it, edge
 * to edge, directly or through others of them. One byte per patch, 1 = inside; the patch itself always is.
 * @param {Vectors} vectors @param {{ rows: number, columns: number }} grid
 * @param {{ row: number, column: number }} patch @param {number} reach
 */
export function proposal(vectors, { rows, columns }, { row, column }, reach) {
  const patch = row * columns + column;
  const alike = keySimilarity(vectors, patch).map((value) => Math.max(0, value));
  alike[patch] = 1; // also where a key has no length
  const kept = keepMass(alike, reach);
  kept[patch] = 1;
  return connected(kept, rows, columns, patch);
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
