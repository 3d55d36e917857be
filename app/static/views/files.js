// Files that the browser writes: masks and cut-outs.

import { el } from "./dom.js";

/** Let the browser save a file. @param {Blob} content @param {string} image  its name begins the file's @param {string} ending */
export function save(content, image, ending) {
  const href = URL.createObjectURL(content);
  el("a", { href, download: `${image.replace(/\.[^.]*$/, "")}-${ending}` }).click();
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

/** Encode a mask as a PNG of one channel, 0 and 255. @param {Uint8Array} values @param {Size} size */
export async function maskFile(values, { width, height }) {
  const rows = new Uint8Array((width + 1) * height); // each begins with the number of its filter, 0
  for (let at = 0; at < values.length; at++) rows[at + Math.floor(at / width) + 1] = values[at] ? 255 : 0;
  const packed = new Response(new Blob([rows]).stream().pipeThrough(new CompressionStream("deflate")));
  const header = new DataView(new ArrayBuffer(13));
  header.setUint32(0, width);
  header.setUint32(4, height);
  header.setUint8(8, 8); // bits; color type 0, gray
  const signature = Uint8Array.of(0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a);
  const data = new Uint8Array(await packed.arrayBuffer());
  const chunks = [chunk("IHDR", new Uint8Array(header.buffer)), chunk("IDAT", data), chunk("IEND", new Uint8Array())];
  return new Blob([signature, ...chunks], { type: "image/png" });
}

/** @param {string} kind @param {Uint8Array} data */
function chunk(kind, data) {
  const bytes = new Uint8Array(data.length + 12);
  const view = new DataView(bytes.buffer);
  view.setUint32(0, data.length);
  bytes.set(new TextEncoder().encode(kind), 4);
  bytes.set(data, 8);
  view.setUint32(data.length + 8, checksum(bytes.subarray(4, data.length + 8)));
  return bytes;
}

/** Compute CRC-32. @param {Uint8Array} bytes */
function checksum(bytes) {
  let sum = 0xffffffff;
  for (const byte of bytes) {
    sum ^= byte;
    for (let bit = 0; bit < 8; bit++) sum = (sum >>> 1) ^ (sum & 1 ? 0xedb88320 : 0);
  }
  return ~sum >>> 0;
}

/** Encode the inside of an image as PNG. @param {Uint8Array} values @param {Size} size @param {CanvasImageSource} image */
export function cutoutFile(values, { width, height }, image) {
  const canvas = new OffscreenCanvas(width, height);
  const context = canvas.getContext("2d");
  context.drawImage(image, 0, 0, width, height);
  const pixels = context.getImageData(0, 0, width, height);
  values.forEach((inside, pixel) => {
    if (!inside) pixels.data[4 * pixel + 3] = 0;
  });
  context.putImageData(pixels, 0, 0);
  return canvas.convertToBlob({ type: "image/png" });
}
