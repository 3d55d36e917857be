// Files of what an attention view shows, at the size of the image.

import { resized } from "../maths/labels.js";
import { cocoFile, imageFile } from "../views/files.js";
import { PatchCanvas, LIGHT } from "../views/paint.js";
import { TABLES } from "../views/viewer.js";

/** @typedef {import("../views/attention_view.js").AttentionView} AttentionView */

/** Draw the image with what lies over it, as on the stage. @param {AttentionView} view @returns {Promise<Blob>} */
export async function overlay({ viewer }) {
  const { maps, shown, settings, encoding, stage } = viewer;
  const { width, height } = encoding;
  const size = { width, height };
  const layer = new PatchCanvas(document.createElement("canvas"));
  if (shown === "heads" || settings.layer === "mask") viewer.paint(layer, shown, maps);
  else {
    const table = settings.layer === "light" ? LIGHT : TABLES[viewer.colormap];
    layer.values(maps.map(shown), encoding, size, maps.scale(shown), table);
  }
  const canvas = new OffscreenCanvas(width, height);
  const context = canvas.getContext("2d");
  context.drawImage(stage.photo, 0, 0, width, height);
  context.globalAlpha = viewer.opacity;
  context.imageSmoothingEnabled = shown === "heads";
  context.drawImage(layer.canvas, 0, 0, width, height);
  return canvas.convertToBlob({ type: "image/png" });
}

/** Draw the kept patches in white on black. @param {AttentionView} view */
export async function mask({ viewer }) {
  return imageFile(pixels(viewer), viewer.encoding);
}

/** Write the kept patches as run lengths of COCO. @param {AttentionView} view */
export async function runs({ viewer }) {
  return cocoFile(pixels(viewer), viewer.encoding);
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
function pixels(viewer) {
  const { width, height } = viewer.encoding;
  return resized(viewer.maskOf(viewer.shown), { rows: height, columns: width }).values;
}
