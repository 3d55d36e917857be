// Files of what is on the screen: masks and overlays.

import { el } from "./dom.js";

/** Let the browser save a file. @param {Blob} content @param {string} image  its name begins the file's @param {string} ending */
export function save(content, image, ending) {
  const href = URL.createObjectURL(content);
  el("a", { href, download: `${image.replace(/\.[^.]*$/, "")}-${ending}` }).click();
  setTimeout(() => URL.revokeObjectURL(href), 60_000);
}

/**
 * Draw a stage as PNG, with the scale of its colors below.
 * @param {import("./stage.js").Stage} stage
 * @param {{ dim: boolean, opacity: number, smooth: boolean, ends: string[], stops: string[] }} look  dim: the image is gray
 *   and dark, as in the style sheet; ends: labels of the scale, null without one; stops: its colors
 */
export async function overlayFile({ image, canvas }, { dim, opacity, smooth, ends, stops }) {
  await image.decode();
  const { naturalWidth: width, naturalHeight: height } = image;
  const bar = ends ? Math.max(20, Math.round(width / 24)) : 0;
  const drawn = new OffscreenCanvas(width, height + bar);
  const context = drawn.getContext("2d");
  context.drawImage(image, 0, 0);
  if (dim) {
    const pixels = context.getImageData(0, 0, width, height);
    dimPixels(pixels.data);
    context.putImageData(pixels, 0, 0);
  }
  context.globalAlpha = opacity;
  context.imageSmoothingEnabled = smooth;
  context.drawImage(canvas.canvas, 0, 0, width, height);
  context.globalAlpha = 1;
  if (ends) drawScale(context, ends, stops, { y: height, width, height: bar });
  return drawn.convertToBlob({ type: "image/png" });
}

/** Apply `saturate(0.35) brightness(0.6)` of the style sheet. @param {Uint8ClampedArray} data  RGBA */
function dimPixels(data) {
  for (let at = 0; at < data.length; at += 4) {
    const gray = 0.65 * (0.213 * data[at] + 0.715 * data[at + 1] + 0.072 * data[at + 2]);
    for (let channel = at; channel < at + 3; channel++) data[channel] = 0.6 * (0.35 * data[channel] + gray);
  }
}

/** Draw a color bar between its labels over the width of a canvas. @param {string[]} ends */
function drawScale(context, ends, stops, { y, width, height }) {
  const [low, high] = ends;
  const middle = y + height / 2;
  context.fillStyle = "#fff";
  context.fillRect(0, y, width, height);
  Object.assign(context, { font: `${Math.round(height / 2)}px sans-serif`, textBaseline: "middle", fillStyle: "#000" });
  const space = height / 3;
  const [from, to] = [low, high].map((text) => context.measureText(text).width + 2 * space);
  context.fillText(low, space, middle);
  context.fillText(high, width - to + space, middle);
  const gradient = context.createLinearGradient(from, 0, Math.max(from, width - to), 0);
  stops.forEach((color, at) => gradient.addColorStop(at / (stops.length - 1), color));
  context.fillStyle = gradient;
  if (from + to < width) context.fillRect(from, y + height / 4, width - to - from, height / 2);
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
 * Encode a mask in black and white, or the inside of an image, as PNG.
 * @param {Uint8Array} values @param {Size} size @param {CanvasImageSource | false} [image]
 */
export function imageFile(values, { width, height }, image = false) {
  const canvas = new OffscreenCanvas(width, height);
  const context = canvas.getContext("2d");
  if (image) context.drawImage(image, 0, 0, width, height);
  const pixels = context.getImageData(0, 0, width, height);
  values.forEach((inside, pixel) => {
    if (!image) pixels.data.fill(inside ? 255 : 0, 4 * pixel, 4 * pixel + 3);
    pixels.data[4 * pixel + 3] = image && !inside ? 0 : 255;
  });
  context.putImageData(pixels, 0, 0);
  return canvas.convertToBlob({ type: "image/png" });
}
