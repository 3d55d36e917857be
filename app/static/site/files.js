// Files of what an attention view shows, at the size of the image.

import { PatchCanvas, LIGHT } from "../views/paint.js";
import { TABLES } from "../views/viewer.js";

/** @typedef {import("../views/attention_view.js").AttentionView} AttentionView */

/** Draw the image with what lies over it, as on the stage. @param {AttentionView} view @returns {Promise<Blob>} */
export async function overlay(view) {
  const { viewer } = view;
  const { width, height } = viewer.encoding;
  const size = { width, height };
  const layer = new PatchCanvas(document.createElement("canvas"));
  const { maps, shown, settings, encoding } = viewer;
  if (shown === "heads" || settings.layer === "mask") viewer.paint(layer, shown, maps);
  else
    layer.values(
      maps.map(shown),
      encoding,
      size,
      maps.scale(shown),
      settings.layer === "light" ? LIGHT : TABLES[viewer.colormap],
    );
  const canvas = Object.assign(document.createElement("canvas"), size);
  const context = canvas.getContext("2d");
  const image = /** @type {HTMLImageElement} */ (view.element.querySelector(".lab-stage img"));
  context.drawImage(image, 0, 0, width, height);
  context.globalAlpha = viewer.opacity;
  context.imageSmoothingEnabled = shown === "heads";
  context.drawImage(layer.canvas, 0, 0, width, height);
  return png(canvas);
}

/** Draw the kept patches in white on black. @param {AttentionView} view @returns {Promise<Blob>} */
export async function mask({ viewer }) {
  const { width, height } = viewer.encoding;
  const canvas = Object.assign(document.createElement("canvas"), { width, height });
  const context = canvas.getContext("2d");
  const image = context.createImageData(width, height);
  const kept = enlarged(viewer);
  for (let at = 0; at < kept.length; at++)
    image.data.set([255 * kept[at], 255 * kept[at], 255 * kept[at], 255], 4 * at);
  context.putImageData(image, 0, 0);
  return png(canvas);
}

/** Write the kept patches as run lengths of COCO, column by column. @param {AttentionView} view */
export async function runs({ viewer }) {
  const { width, height } = viewer.encoding;
  const kept = enlarged(viewer);
  const counts = [];
  let [value, length] = [0, 0];
  for (let column = 0; column < width; column++)
    for (let row = 0; row < height; row++) {
      if (kept[row * width + column] === value) length++;
      else {
        counts.push(length);
        [value, length] = [1 - value, 1];
      }
    }
  counts.push(length);
  return new Blob([JSON.stringify({ size: [height, width], counts })], { type: "application/json" });
}

/** Write the maps of all heads as a NumPy file: float32 [heads, rows, columns]. @param {AttentionView} view */
export async function maps({ viewer }) {
  const { rows, columns } = viewer.encoding;
  const { heads } = viewer.maps;
  const shape = `(${heads.length}, ${rows}, ${columns})`;
  const words = `{'descr': '<f4', 'fortran_order': False, 'shape': ${shape}, }`;
  const header = `${words}${" ".repeat(63 - ((10 + words.length) % 64))}\n`;
  const start = new Uint8Array(10);
  start.set([0x93, ...new TextEncoder().encode("NUMPY"), 1, 0, header.length & 255, header.length >> 8]);
  return new Blob([start, header, ...heads.map((map) => Float32Array.from(map))], { type: "application/octet-stream" });
}

/** Enlarge the kept patches to the pixels of the image, nearest patch. */
function enlarged(viewer) {
  const { width, height, rows, columns } = viewer.encoding;
  const { values } = viewer.maskOf(viewer.shown);
  const across = Array.from({ length: width }, (_, x) => Math.floor(((x + 0.5) * columns) / width));
  const found = new Uint8Array(width * height);
  for (let y = 0; y < height; y++) {
    const row = Math.floor(((y + 0.5) * rows) / height) * columns;
    for (let x = 0; x < width; x++) found[y * width + x] = values[row + across[x]];
  }
  return found;
}

/** @param {HTMLCanvasElement} canvas @returns {Promise<Blob>} */
function png(canvas) {
  return new Promise((resolve) => canvas.toBlob(resolve, "image/png"));
}
