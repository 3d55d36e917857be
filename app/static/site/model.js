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

  /** Load model and runtime. @param {(share: number) => void} progress  from 0 to 1 */
  static async load(progress) {
    const facts = await (await fetch(new URL("../model.json", import.meta.url))).json();
    const bytes = await download(new URL("../model.onnx", import.meta.url), progress);
    const gpu = await navigator["gpu"]?.requestAdapter().catch(() => null);
    if (!gpu) return Model.start("wasm", bytes, facts);
    return Model.start("webgpu", bytes, facts).catch(async (error) => {
      const model = await Model.start("wasm", bytes, facts);
      model.engine += `, because WebGPU failed (${error.message ?? error})`;
      return model;
    });
  }

  /** Start a session and try it. @param {"wasm" | "webgpu"} engine @param {Uint8Array} bytes @param {any} facts */
  static async start(engine, bytes, facts) {
    const ort = await import(`../ort/ort.${engine}.bundle.min.mjs`);
    ort.env.wasm.wasmPaths = new URL("../ort/", import.meta.url).href;
    const threads = globalThis.crossOriginIsolated ? Math.min(4, navigator.hardwareConcurrency) : 1;
    ort.env.wasm.numThreads = threads;
    const session = await ort.InferenceSession.create(bytes, { executionProviders: [engine] });
    const name = engine === "wasm" ? `WebAssembly, ${threads} thread${threads > 1 ? "s" : ""}` : "WebGPU";
    const model = new Model(ort, session, facts, name);
    const [height, width] = [2 * facts.patch_size, 3 * facts.patch_size];
    await model.run(new Float32Array(3 * height * width), { height, width });
    return model;
  }

  /** Compute queries and keys of every block: [blocks, 2, heads, tokens, d]. @param {Float32Array} input @param {Size} size */
  async run(input, { height, width }) {
    const tensor = new this.ort.Tensor("float32", input, [1, 3, height, width]);
    const { queries_keys: found } = await this.session.run({ images: tensor }, ["queries_keys"]);
    return { dims: found.dims, values: /** @type {Float32Array} */ (await found.getData()) };
  }

  /**
   * Encode an image. Throws Refused.
   * @param {Blob} file @param {string} name @param {number} size  pixels of the short side
   * @returns {Promise<any>} value of an attention view
   */
  async encode(file, name, size) {
    const { facts } = this;
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
    const { dims, values } = await this.run(input, fed);
    const [blocks, , heads, tokens] = dims;
    const block = values.length / blocks;
    const seconds = (performance.now() - begun) / 1000;
    return {
      token: `${name}-${size}-${crypto.randomUUID()}`,
      photo: name,
      name,
      size,
      ...{ width, height, rows, columns, heads, blocks, prefix: tokens - rows * columns },
      picture: URL.createObjectURL(file),
      arrays: Object.fromEntries(
        Array.from({ length: blocks }, (_, at) => [`blocks/${at}`, values.subarray(at * block, (at + 1) * block)]),
      ),
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
