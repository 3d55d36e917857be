// Files of what an attention view shows, at the size of the image.

import { PatchCanvas } from "../views/paint.js";

/** @typedef {import("../views/attention_view.js").AttentionView} AttentionView */

/** Draw the image with what lies over it, as on the stage. @param {AttentionView} view @returns {Promise<Blob>} */
export async function overlay(view) {
  const { width, height } = view.encoding;
  const layer = new PatchCanvas(document.createElement("canvas"));
  view.paint(layer, view.shown, view.maps, { pixels: Infinity });
  const canvas = new OffscreenCanvas(width, height);
  const context = canvas.getContext("2d");
  context.drawImage(view.stage.photo, 0, 0, width, height);
  context.globalAlpha = view.opacity;
  context.imageSmoothingEnabled = false; // masks show the borders of patches
  context.drawImage(layer.canvas, 0, 0, width, height);
  return canvas.convertToBlob({ type: "image/png" });
}

/** Write the maps of all heads as a NumPy file: float32 [heads, rows, columns]. @param {AttentionView} view */
export async function maps(view) {
  const { rows, columns } = view.encoding;
  const { heads } = view.maps;
  const shape = `(${heads.length}, ${rows}, ${columns})`;
  const words = `{'descr': '<f4', 'fortran_order': False, 'shape': ${shape}, }`;
  const header = `${words}${" ".repeat(63 - ((10 + words.length) % 64))}\n`;
  const start = new Uint8Array(10);
  start.set([0x93, ...new TextEncoder().encode("NUMPY"), 1, 0, header.length & 255, header.length >> 8]);
  return new Blob([start, header, ...heads.map((map) => Float32Array.from(map))], { type: "application/octet-stream" });
}
