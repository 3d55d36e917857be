// The model in the browser: ONNX Runtime Web computes queries and keys of every block.

import { fedSize, resample } from "../maths/resample.js";

const MOST_PATCHES = 4096; // attention compares all pairs of patches
const MOST_PIXELS = 50e6;

/** A message for the user. */
export class Refused extends Error {}

export class Model {
  /** @param {any} ort @param {any} session @param {any} facts  from model.json */
  constructor(ort, session, facts, engine) {
    Object.assign(this, { ort, session, facts, engine });
  }

  ort = null;
  session = null;
  facts = null;
  engine = "";

  /** Load runtime and model. @param {(share: number) => void} progress  from 0 to 1 */
  static async load(progress) {
    const facts = await (await fetch(new URL("../model.json", import.meta.url))).json();
    const gpu = await navigator["gpu"]?.requestAdapter().catch(() => null);
    const ort = await import(gpu ? "../ort/ort.webgpu.bundle.min.mjs" : "../ort/ort.wasm.bundle.min.mjs");
    ort.env.wasm.wasmPaths = new URL("../ort/", import.meta.url).href;
    ort.env.wasm.numThreads = globalThis.crossOriginIsolated ? Math.min(4, navigator.hardwareConcurrency) : 1;
    const bytes = await download(new URL("../model.onnx", import.meta.url), progress);
    const session = await ort.InferenceSession.create(bytes, { executionProviders: [gpu ? "webgpu" : "wasm"] });
    const threads = ort.env.wasm.numThreads;
    return new Model(ort, session, facts, gpu ? "WebGPU" : `WebAssembly, ${threads} thread${threads > 1 ? "s" : ""}`);
  }

  /**
   * Encode an image. Throws Refused.
   * @param {Blob} file @param {string} name @param {number} size  pixels of the short side
   * @returns {Promise<any>} value of an attention view; `queriesKeys` holds [2, heads, tokens, d] of every block
   */
  async encode(file, name, size) {
    const { facts, ort, session } = this;
    const image = await createImageBitmap(file).catch(() => {
      throw new Refused(`${name} is no image that this browser reads. Choose a JPEG, PNG or WebP file.`);
    });
    const { width, height } = image;
    if (width * height > MOST_PIXELS)
      throw new Refused(`${name} has ${width} × ${height} pixels, more than 50 million.`);
    const fed = fedSize(image, size, facts.patch_size);
    const [rows, columns] = [fed.height / facts.patch_size, fed.width / facts.patch_size];
    if (rows * columns > MOST_PATCHES)
      throw new Refused(
        `${name} makes ${rows} × ${columns} patches, more than ${MOST_PATCHES}. Choose a lower resolution.`,
      );
    const begun = performance.now();
    const input = normalized(resample(pixelsOf(image), image, fed), fed, facts);
    const tensor = new ort.Tensor("float32", input, [1, 3, fed.height, fed.width]);
    const found = await session.run({ images: tensor }, ["queries_keys"]);
    const [blocks, , heads, tokens] = found.queries_keys.dims;
    const values = /** @type {Float32Array} */ (await found.queries_keys.getData());
    const block = values.length / blocks;
    const seconds = (performance.now() - begun) / 1000;
    return {
      token: `${name}-${size}-${crypto.randomUUID()}`,
      photo: name,
      name,
      size,
      ...{ width, height, rows, columns, heads, blocks, prefix: tokens - rows * columns },
      picture: URL.createObjectURL(file),
      arrays: null,
      queriesKeys: Array.from({ length: blocks }, (_, at) => values.subarray(at * block, (at + 1) * block)),
      facts: [
        ["Model", facts.model],
        ["Image", `${width} × ${height} pixels, resized to ${fed.width} × ${fed.height}`],
        ["Grid", `${columns} × ${rows} patches of ${facts.patch_size} pixels`],
        ["Computed by", `ONNX Runtime Web, ${this.engine}`],
        ["Encoded in", `${seconds.toFixed(2)} s`],
      ],
    };
  }
}

/** Read the pixels of an image: RGBA. @param {ImageBitmap} image */
function pixelsOf(image) {
  const context = new OffscreenCanvas(image.width, image.height).getContext("2d", { willReadFrequently: true });
  context.fillStyle = "#fff"; // below transparent pixels
  context.fillRect(0, 0, image.width, image.height);
  context.drawImage(image, 0, 0);
  return context.getImageData(0, 0, image.width, image.height).data;
}

/** Subtract the mean and divide by the standard deviation: [3, height, width]. */
function normalized(pixels, { width, height }, { mean, std }) {
  const values = new Float32Array(3 * width * height);
  for (let channel = 0; channel < 3; channel++)
    for (let at = 0; at < width * height; at++)
      values[channel * width * height + at] = (pixels[3 * at + channel] / 255 - mean[channel]) / std[channel];
  return values;
}

/** Fetch bytes and report the share that has arrived. @param {URL} address @param {(share: number) => void} progress */
async function download(address, progress) {
  const answer = await fetch(address);
  const total = Number(answer.headers.get("content-length"));
  const parts = [];
  let received = 0;
  for (const reader = answer.body.getReader(); ; ) {
    const { done, value } = await reader.read();
    if (done) return new Uint8Array(await new Blob(parts).arrayBuffer());
    parts.push(value);
    received += value.length;
    progress(total ? received / total : 0);
  }
}
