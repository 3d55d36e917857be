// The page without a server, on a runtime that computes no network: what the model gets, and what is shown of it.

import assert from "node:assert/strict";
import { register } from "node:module";
import { mock, test } from "node:test";
import { Element, served, settled, windowEvents } from "./document.js";
import { random } from "./random.js";
import { fedSize, resample } from "../../app/static/maths/resample.js";
import { encode } from "../../app/static/site/model.js";
import { Refusal } from "../../app/static/views/encoding.js";

const RUNTIME = `
export const env = { wasm: {} };
export class Tensor { constructor(type, data, dims) { Object.assign(this, { type, data, dims }); } }
const run = async ({ images }, [name]) => ({ [name]: await globalThis.compute(images) });
export const InferenceSession = { create: async () => ({ run }) };`;
const moduleOf = (code) => `data:text/javascript;base64,${btoa(code)}`;
const BUNDLE = "/ort.wasm.bundle.min.mjs";
register(
  moduleOf(`export const resolve = (name, context, next) =>
  name.endsWith("${BUNDLE}") ? { url: "${moduleOf(RUNTIME)}", shortCircuit: true } : next(name, context);`),
);

const FACTS = { patch_size: 16, mean: [0.5, 0.4, 0.3], std: [0.25, 0.5, 1] };
const [BLOCKS, HEADS, DIM] = [2, 3, 4];
const next = random(5);

/** Queries and keys of an image: [blocks, 2, heads, tokens, d], with [CLS] and a register. */
async function compute({ dims: [, , height, width] }) {
  const dims = [BLOCKS, 2, HEADS, 2 + (height / 16) * (width / 16), DIM];
  const values = Float32Array.from({ length: dims.reduce((size, side) => size * side, 1) }, next);
  return { dims, getData: async () => values };
}

test("an image is resized, normalized and encoded, with the arrays of every block", async () => {
  const pixels = (served["pixels"] = Uint8ClampedArray.from({ length: 4 * 6 * 4 }, () => 256 * next()));
  const contexts = [];
  const { getContext } = OffscreenCanvas.prototype;
  mock.method(OffscreenCanvas.prototype, "getContext", function () {
    contexts.push(getContext.call(this));
    return contexts[0];
  });
  let [input, size, values] = /** @type {any[]} */ ([]);
  const run = async (...given) => {
    [input, size] = given;
    values = await (await compute({ dims: [1, 3, size.height, size.width] })).getData();
    return { dims: [BLOCKS, 2, HEADS, 2 + 6, DIM], values };
  };
  const found = await encode({ facts: FACTS, run }, new Blob(["6 4"]), "a.png", 32);
  mock.restoreAll();
  const [{ canvas, filled, fillStyle, drawn }] = contexts;
  assert.deepEqual([fillStyle, filled, drawn[0].slice(1)], ["#fff", [0, 0, 6, 4], [0, 0]]); // white below the image
  assert.deepEqual([canvas.width, canvas.height], [6, 4]);
  const from = { width: 6, height: 4 };
  assert.deepEqual(size, fedSize(from, 32, 16));
  assert.deepEqual(size, { width: 48, height: 32 });
  const resized = resample(pixels, from, size);
  const expected = [0, 1, 2].flatMap((channel) => Array.from({ length: 48 * 32 }, (_, at) => (resized[3 * at + channel] / 255 - FACTS.mean[channel]) / FACTS.std[channel])); // prettier-ignore
  assert.deepEqual(input, Float32Array.from(expected));
  const { token, image, arrays, ...facts } = found;
  assert.match(`${token} ${image}`, /^a\.png-32-[\da-f-]{36} blob:/);
  const sides = { width: 6, height: 4, rows: 2, columns: 3 };
  assert.deepEqual(facts, { name: "a.png", source: "a.png", size: 32, ...sides, heads: HEADS, blocks: BLOCKS, prefix: 2 }); // prettier-ignore
  assert.deepEqual(arrays, { "blocks/0": values.subarray(0, values.length / 2), "blocks/1": values.subarray(values.length / 2) }); // prettier-ignore
  for (const [text, patch_size, problem] of [
    ["64 64", 1, null], // 4096 patches
    ["65 64", 1, /64 × 65 patches, more than 4096/],
    ["10000 5000", 1, /64 × 128 patches/], // 50 million pixels
    ["10000 5001", 1, /more than 50 million/],
    ["broken", 16, /no image that this browser reads/],
  ]) {
    served["pixels"] = new Uint8ClampedArray(4 * 64 * 64);
    const encoded = encode({ facts: { ...FACTS, patch_size }, run }, new Blob([text]), "b.png", 64);
    if (problem) await assert.rejects(encoded, (error) => error instanceof Refusal && problem.test(error.message));
    else assert.equal((await encoded).rows, 64);
  }
});

test("the page shows its first example, and of several choices the newest", async () => {
  const parts = {};
  for (const id of ["stage", "rail", "size", "quantity", "layer", "mass", "aside", "export"]) {
    parts[id] = new Element("div");
    parts[id].id = id;
    parts[id].append(new Element("div"));
    parts[id].children[0].setAttribute("class", "lab-view");
  }
  parts.rail.children[0].dataset.examples = "sheep big_owl";
  document.body.replaceChildren(...Object.values(parts));
  const here = (name) => new URL(`../../app/static/${name}`, import.meta.url).pathname.slice(1);
  served[here("model.json")] = JSON.stringify(FACTS);
  served[here("model.onnx")] = "";
  for (const name of ["sheep", "big_owl"]) served[here(`examples/${name}.jpg`)] = "6 4";
  served["pixels"] = new Uint8ClampedArray(96);
  const fed = [];
  Object.assign(globalThis, { location: { search: "" }, compute: (images) => (fed.push(images), compute(images)) });
  await import("../../app/static/site/site.js");
  const { attentionView: view } = /** @type {any} */ (globalThis);
  while (!view.encoding) await settled(); // the runtime is loaded by another thread
  const shown = () => [view.props.value?.source, view.props.value?.size, view.reason.textContent];
  assert.deepEqual(shown(), ["sheep", 224, ""]);
  assert.deepEqual([fed[0].type, fed[0].dims], ["float32", [1, 3, 224, 336]]);
  const options = (id) => parts[id].querySelectorAll("option").map((option) => option.attributes.value);
  assert.deepEqual(options("size"), ["112", "168", "224", "320", "448"]);
  const examples = parts.rail.querySelectorAll(".rail-tile").map((tile) => tile.children[0].attributes.title);
  assert.deepEqual(examples, ["sheep", "big owl"]);
  parts.mass.fire("input", { target: { valueAsNumber: 30, value: "30" } });
  parts.layer.fire("input", { target: { value: "mask" } });
  parts.quantity.fire("input", { target: { value: "logits" } });
  await settled();
  assert.deepEqual([view.settings.mass, view.settings.layer, view.quantity], [30, "mask", "logits"]);
  parts.size.value = "112";
  parts.size.fire("change");
  await settled();
  assert.deepEqual(shown(), ["sheep", 112, ""]);
  const waiting = [];
  const choose = async (name) => {
    parts.rail.querySelector(`[data-name=${name}]`).children[0].click();
    await settled();
  };
  const hold = (images) => new Promise((resolve, reject) => waiting.push({ finish: () => resolve(compute(images)), reject })); // prettier-ignore
  Object.assign(globalThis, { compute: hold });
  for (const name of ["big_owl", "big_owl", "sheep"]) await choose(name);
  for (const { finish } of [waiting[2], waiting[1]]) {
    finish();
    await settled();
    assert.equal(view.props.value.source, "sheep");
  }
  waiting[0].reject(new Error("of an earlier choice"));
  await settled();
  assert.deepEqual([shown(), view.problem.hidden], [["sheep", 112, ""], true]);
  await choose("big_owl");
  view.working.cancel(); // the first example instead
  await settled();
  assert.equal(waiting.length, 5);
  waiting.pop().finish();
  await settled();
  await choose("big_owl");
  waiting[4].reject(new Error("no memory"));
  await settled();
  assert.deepEqual(shown(), ["sheep", 112, "The model failed: no memory"]);
  Object.assign(globalThis, { compute });
  let prevented = 0;
  const preventDefault = () => (prevented += 1);
  windowEvents.fire("dragover", { preventDefault });
  windowEvents.fire("drop", { dataTransfer: { files: [new File(["6 4"], "own.png")] }, preventDefault });
  windowEvents.fire("paste", { clipboardData: { files: [] }, preventDefault });
  windowEvents.fire("paste", { preventDefault });
  await settled();
  assert.deepEqual([view.props.value.source, prevented], ["own.png", 2]);
  windowEvents.fire("paste", { clipboardData: { files: [new File(["broken"], "b.png")] }, preventDefault });
  await settled();
  assert.match(view.reason.textContent, /^b.png is no image/);
  await choose("sheep");
  const own = parts.rail.querySelectorAll("[data-id]");
  own[0].children[0].click();
  await settled();
  assert.deepEqual([own.length, view.props.value.source], [1, "own.png"]); // from the browser
  const { createElement } = document;
  mock.method(document, "createElement", (tag) => Object.assign(createElement(tag), tag === "video" && { videoWidth: 6, videoHeight: 4, play() {} })); // prettier-ignore
  const mediaDevices = { getUserMedia: async () => ({ getTracks: () => [] }) };
  Object.defineProperty(globalThis, "navigator", { value: { mediaDevices }, configurable: true });
  const camera = parts.rail.querySelector(".rail-camera");
  const image = view.props.value.image;
  Object.assign(globalThis, { compute: hold });
  await choose("sheep");
  camera.click();
  await settled();
  const [example, first] = waiting.slice(5);
  first.finish();
  await settled();
  example.finish(); // the frames of the camera are newer
  await settled();
  assert.deepEqual([view.value.size, view.value.source, view.props.value.image], [112, "camera", image]);
  camera.click();
  mock.restoreAll();
});
