// The model in the browser: ONNX Runtime Web computes queries and keys of every block.

import { fedSize, resample } from "../maths/resample.js";
import { Refusal } from "../views/encoding.js";

const MOST_PATCHES = 4096; // attention compares all pairs of patches
const MOST_PIXELS = 50e6;

/** Load model and runtime; returns what `encode` takes. */
export async function loadModel() {
  const facts = await (await fetch(new URL("../model.json", import.meta.url))).json();
  const bytes = await (await fetch(new URL("../model.onnx", import.meta.url))).arrayBuffer();
  const runtime = new URL("../ort/", import.meta.url).href;
  const ort = await import(`${runtime}ort.wasm.bundle.min.mjs`);
  ort.env.wasm.wasmPaths = runtime;
  const session = await ort.InferenceSession.create(bytes, { executionProviders: ["wasm"] });
  /** Compute queries and keys of every block: [blocks, 2, heads, tokens, d]. @param {Float32Array} input @param {Size} size */
  const run = async (input, { height, width }) => {
    const tensor = new ort.Tensor("float32", input, [1, 3, height, width]);
    const { queries_keys: found } = await session.run({ images: tensor }, ["queries_keys"]);
    return { dims: found.dims, values: /** @type {Float32Array} */ (await found.getData()) };
  };
  return { facts, run };
}

/**
 * Encode an image. Throws a Refusal.
 * @param {Awaited<ReturnType<typeof loadModel>>} model @param {Blob} file @param {string} name
 * @param {number} size  pixels of the short side
 * @returns {Promise<any>} value of an attention view
 */
export async function encode({ facts, run }, file, name, size) {
  const image = await decode(file, name);
  const { width, height } = image;
  if (width * height > MOST_PIXELS) throw new Refusal(`${name} has ${width} × ${height} pixels, more than 50 million.`);
  const fed = fedSize(image, size, facts.patch_size);
  const [rows, columns] = [fed.height / facts.patch_size, fed.width / facts.patch_size];
  const grid = `${rows} × ${columns} patches`;
  if (rows * columns > MOST_PATCHES)
    throw new Refusal(`${name} makes ${grid}, more than ${MOST_PATCHES}. Choose a lower resolution.`);
  const input = normalized(resample(pixelsOf(image), image, fed), fed, facts);
  const { dims, values } = await run(input, fed);
  const [blocks, , heads, tokens] = dims;
  const block = (at) => [`blocks/${at}`, values.subarray((at * values.length) / blocks, ((at + 1) * values.length) / blocks)]; // prettier-ignore
  return {
    token: `${name}-${size}-${crypto.randomUUID()}`,
    source: name,
    ...{ name, size, width, height, rows, columns, heads, blocks, prefix: tokens - rows * columns },
    image: URL.createObjectURL(file),
    arrays: Object.fromEntries(Array.from({ length: blocks }, (_, at) => block(at))),
  };
}

/** Decode an image. Throws a Refusal. @param {Blob} file @param {string} name */
export function decode(file, name) {
  return createImageBitmap(file).catch(() => {
    throw new Refusal(`${name} is no image that this browser reads. Choose a JPEG, PNG or WebP file.`);
  });
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
