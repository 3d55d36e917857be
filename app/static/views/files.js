// Files that the browser writes: masks, cut-outs, arrays and archives.

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

function checksum(bytes) {
  let sum = 0xffffffff;
  for (const byte of bytes) {
    sum ^= byte;
    for (let bit = 0; bit < 8; bit++) sum = (sum >>> 1) ^ (sum & 1 ? 0xedb88320 : 0);
  }
  return ~sum >>> 0;
}

/** Encode an array as a file of NumPy. @param {any} values  a typed array @param {number[]} shape @param {string} kind  of NumPy */
export function npyFile(values, shape, kind = "<f4") {
  const size = shape.length === 1 ? `${shape[0]},` : shape.join(", ");
  const fields = `{'descr': '${kind}', 'fortran_order': False, 'shape': (${size}), }`;
  const header = `${fields}${" ".repeat(63 - ((10 + fields.length) % 64))}\n`;
  const start = [0x93, ...new TextEncoder().encode("NUMPY"), 1, 0, header.length & 255, header.length >> 8];
  return new Blob([Uint8Array.from(start), header, values]);
}

/** Encode a text as a file of NumPy. @param {string} text */
export function npyText(text) {
  const codes = Uint32Array.from(text, (letter) => letter.codePointAt(0));
  return npyFile(codes, [], `<U${text.length}`);
}

/**
 * Join files in a ZIP, uncompressed.
 * @param {Record<string, Blob>} files  by name
 */
export async function zipFile(files) {
  const parts = [];
  const directory = [];
  let place = 0;
  for (const [key, file] of Object.entries(files)) {
    const data = new Uint8Array(await file.arrayBuffer());
    const name = new TextEncoder().encode(key);
    const facts = new DataView(new ArrayBuffer(26)); // of both headers: version 2, names in UTF-8, stored, 1980-01-01
    [20, 0x800, 0, 0, 33].forEach((field, at) => facts.setUint16(2 * at, field, true));
    [checksum(data), data.length, data.length].forEach((field, at) => facts.setUint32(10 + 4 * at, field, true));
    facts.setUint16(22, name.length, true);
    const rest = new DataView(new ArrayBuffer(14)); // of the directory: no comment, and the place of the file
    rest.setUint32(10, place, true);
    parts.push("PK\x03\x04", facts, name, data);
    directory.push("PK\x01\x02", Uint8Array.of(20, 0), facts, rest, name);
    place += 30 + name.length + data.length;
  }
  const end = new DataView(new ArrayBuffer(18));
  for (const at of [4, 6]) end.setUint16(at, Object.keys(files).length, true);
  end.setUint32(8, new Blob(directory).size, true);
  end.setUint32(12, place, true);
  return new Blob([...parts, ...directory, "PK\x05\x06", end], { type: "application/zip" });
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
