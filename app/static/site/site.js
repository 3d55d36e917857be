// The page without a server: choose an image, the model runs here, and the view of the app shows its attention.

import { AttentionView } from "../views/attention_view.js";
import { el } from "../views/dom.js";
import { memory } from "../views/encoding.js";
import { LiveCamera } from "../views/live_camera.js";
import { Refused, encode, loadModel } from "./model.js";

const OPTIONS = {
  quantity: { attention: "Attention", "key-similarity": "Key similarity", logits: "q · k", "key-cosine": "Key cosine" },
  layer: { heat: "Heat", light: "Light", mask: "Mask" },
  size: Object.fromEntries([112, 168, 224, 320, 448].map((size) => [size, `${size} pixels`])),
};
const LIVE_SIZE = 112;
const CONTROLS = ["quantity", "layer", "block", "mass", "opacity"];

const part = (id) => /** @type {any} */ (document.getElementById(id));
let model = null;
let shown = null; // { file, name } of the image on the screen
let newest = 0;

const props = { value: null, numbers: true, blocks: true };
const view = new AttentionView({ element: part("view"), props, watch: () => {}, emit: (event) => event === "edited" && update() }); // prettier-ignore

/**
 * Encode an image and show it; of several the newest wins, also over one that still loads.
 * @param {Blob | Promise<Blob>} source @param {string} name
 */
async function show(source, name) {
  const turn = ++newest;
  camera.stop();
  document.body.toggleAttribute("data-busy", true);
  try {
    const file = await source;
    if (turn !== newest) return;
    if (!model) return void (shown = { file, name });
    say(`Computing the attention of ${name} …`);
    const value = await encode(model, file, name, Number(part("size").value));
    if (turn !== newest) return URL.revokeObjectURL(value.image);
    shown = { file, name };
    await place(value);
    say("Point at the image to see the attention of a patch. Everything is computed on this device.");
  } catch (error) {
    if (turn === newest) say(error instanceof Refused ? error.message : `The model failed: ${error.message ?? error}`);
  } finally {
    if (turn === newest) document.body.toggleAttribute("data-busy", false);
  }
}

function say(sentence) {
  part("status").textContent = sentence;
}

function change() {
  view.set(Object.fromEntries(CONTROLS.map((name) => [name, part(name).valueAsNumber || part(name).value])));
  update();
}

const camera = new LiveCamera({
  encode: (video) => encode(model, video, "camera", Number(part("size").value)),
  show: (value) => (memory.clear(), place(value)), // of the frame before
  change: ({ live, rate, problem }) => {
    part("live").setAttribute("aria-pressed", String(live));
    if (rate) part("live").dataset.rate = rate.toFixed(1); // tests read it
    if (rate) say(`${rate.toFixed(1)} frames per second. Point at the image to see the attention of a patch.`);
    if (problem) say(problem);
  },
});

/** Start or stop the live camera. */
function live() {
  if (camera.video || !model) return camera.stop();
  part("size").value = LIVE_SIZE;
  newest++; // an image that is being computed is not shown any more
  document.body.toggleAttribute("data-busy", false);
  return camera.start();
}

/** Show an encoded image in the view. */
async function place(value) {
  if (props.value) URL.revokeObjectURL(props.value.image);
  props.value = value;
  part("block").max = value.blocks;
  await view.reload();
  update();
}

/** Set the controls from the view, which changes its settings too. */
function update() {
  for (const name of CONTROLS) part(name).value = view.state[name];
  for (const output of document.querySelectorAll("output")) output.value = output.nextElementSibling["value"];
}

/** Show the first image of some files. @param {FileList | undefined} list */
function take(list) {
  const file = [...(list ?? [])].find(({ type }) => type.startsWith("image/"));
  if (file) show(file, file.name || "image");
  return Boolean(file);
}

function example(name) {
  return show(
    fetch(new URL(`../examples/${name}.jpg`, import.meta.url)).then((answer) => answer.blob()),
    name,
  );
}

part("live").addEventListener("click", live);
for (const [id, entries] of Object.entries(OPTIONS))
  part(id).append(...Object.entries(entries).map(([value, label]) => el("option", { value }, label)));
part("size").value = 224;
for (const name of CONTROLS) part(name).addEventListener("input", change);
part("size").addEventListener("change", () => shown && show(shown.file, shown.name));
for (const name of ["file", "camera"]) part(name).addEventListener("change", ({ target }) => take(target.files));
const names = part("examples").dataset.names.split(" ");
for (const name of names) {
  const src = new URL(`../examples/${name}.jpg`, import.meta.url).href;
  const image = el("img", { src, alt: name.replaceAll("_", " "), loading: "lazy" });
  part("examples").append(el("button", { type: "button", onclick: () => example(name) }, image));
}
part("export").addEventListener("click", () => view.export());
window.addEventListener("dragover", (event) => event.preventDefault());
window.addEventListener("drop", (event) => (event.preventDefault(), take(event.dataTransfer?.files)));
window.addEventListener("paste", (event) => take(event.clipboardData?.files) && event.preventDefault());
Object.assign(window, { attentionView: view }); // for tests and benchmarks

example(names[0]);
loadModel().then(
  (loaded) => {
    model = loaded;
    part("progress").hidden = true;
    if (shown) show(shown.file, shown.name);
  },
  (error) => say(`The model could not be loaded: ${error.message}`),
);
