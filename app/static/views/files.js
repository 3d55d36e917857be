// Masks as files, and saving files.

import { el } from "./dom.js";

/** Let the browser save a file. @param {Blob} content @param {string} name */
export function save(content, name) {
  const href = URL.createObjectURL(content);
  el("a", { href, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(href), 60_000);
}

/** Encode a mask as COCO run lengths, column by column. @param {Uint8Array} values @param {Size} size */
export function cocoFile(values, { width, height }) {
  const counts = [0];
  for (let at = 0, before = 0; at < values.length; at++) {
    const inside = values[(at % height) * width + Math.floor(at / height)] ? 1 : 0;
    if (inside !== before) counts.push(0);
    counts[counts.length - 1]++;
    before = inside;
  }
  return new Blob([JSON.stringify({ size: [height, width], counts })], { type: "application/json" });
}

/**
 * Encode a mask in black and white, or the inside of a photo, as PNG.
 * @param {Uint8Array} values @param {Size} size @param {CanvasImageSource | false} [photo]
 */
export function imageFile(values, { width, height }, photo = false) {
  const canvas = new OffscreenCanvas(width, height);
  const context = canvas.getContext("2d");
  if (photo) context.drawImage(photo, 0, 0, width, height);
  const image = context.getImageData(0, 0, width, height);
  values.forEach((inside, pixel) => {
    if (!photo) image.data.fill(inside ? 255 : 0, 4 * pixel, 4 * pixel + 3);
    image.data[4 * pixel + 3] = photo && !inside ? 0 : 255;
  });
  context.putImageData(image, 0, 0);
  return canvas.convertToBlob({ type: "image/png" });
}
