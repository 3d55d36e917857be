// The page without a server: choose an image, the model runs here, and the view of the app shows its attention.

import { el } from "../views/dom.js";
import { AttentionView } from "../views/attention_view.js";
import { save as saveFile } from "../views/files.js";
import * as files from "./files.js";
import { Model, Refused } from "./model.js";

const QUANTITIES = { attention: "Attention", likeness: "Key similarity", logits: "q · k", "key-cosine": "Key cosine" };
const LAYERS = { light: "Light", heat: "Heat map", mask: "Mask" };
const SIZES = [112, 168, 224, 320, 448];
const DOWNLOADS = {
  "Overlay PNG": ["overlay.png", files.overlay],
  "Mask PNG": ["mask.png", files.mask],
  "Mask COCO": ["mask.json", files.runs],
  "Maps NPY": ["maps.npy", files.maps],
};

const part = (id) => /** @type {any} */ (document.getElementById(id));
const status = part("status");
let model = null;
let shown = null; // { file, name } of the image on the screen
let newest = 0;

const props = { value: null, facts: true };
const watchers = [];
const view = new AttentionView({
  element: part("view"),
  props,
  watch: (_, callback) => watchers.push(callback),
  emit: (event) => event === "edited" && update(),
});

/** Encode an image and show it; of several the newest wins. @param {Blob} file @param {string} name */
async function show(file, name) {
  const turn = ++newest;
  if (!model) return void (shown = { file, name });
  say(`Computing the attention of ${name} …`);
  document.body.toggleAttribute("data-busy", true);
  try {
    const value = await model.encode(file, name, Number(part("size").value));
    if (turn !== newest) return URL.revokeObjectURL(value.picture);
    if (props.value) URL.revokeObjectURL(props.value.picture);
    shown = { file, name };
    props.value = value;
    part("block").max = value.blocks;
    if (!view.encoding) part("block").value = value.blocks;
    await view.look();
    say("Point at the image to see the attention of a patch. Everything is computed on this device.");
  } catch (error) {
    if (turn === newest) say(error instanceof Refused ? error.message : `The model failed: ${error.message ?? error}`);
  }
  if (turn === newest) document.body.toggleAttribute("data-busy", false);
}

function say(sentence) {
  status.textContent = sentence;
}

/** Set the view from the controls. */
function change() {
  const [block, mass, opacity] = ["block", "mass", "opacity"].map((name) => Number(part(name).value));
  view.set({ block, mass, opacity, quantity: part("quantity").value, layer: part("layer").value });
  label();
}

/** Set the controls from the view, which changes its settings too. */
function update() {
  const { settings, encoding } = view;
  for (const name of ["quantity", "layer", "mass", "opacity"]) part(name).value = settings[name];
  part("block").value = settings.block || encoding?.blocks;
  label();
}

function label() {
  for (const name of ["block", "mass", "opacity"]) part(`${name}-value`).textContent = part(name).value;
}

async function save(name, make) {
  if (!view.encoding) return;
  saveFile(await make(view), `${shown.name.replace(/\.\w+$/, "")}-${name}`);
}

/** Show the first image of some files. @param {FileList | undefined} list */
function take(list) {
  const file = [...(list ?? [])].find(({ type }) => type.startsWith("image/"));
  if (file) show(file, file.name || "image");
  return Boolean(file);
}

async function example(name) {
  show(await (await fetch(new URL(`../examples/${name}.jpg`, import.meta.url))).blob(), name);
}

function options(id, entries) {
  part(id).replaceChildren(...entries.map(([value, words]) => el("option", { value }, words)));
}

options("quantity", Object.entries(QUANTITIES));
options("layer", Object.entries(LAYERS));
options("size", SIZES.map((size) => [size, `${size} pixels`])); // prettier-ignore
part("size").value = 224;
for (const name of ["quantity", "layer", "block", "mass", "opacity"]) part(name).addEventListener("input", change);
part("size").addEventListener("change", () => shown && show(shown.file, shown.name));
for (const name of ["file", "camera"]) part(name).addEventListener("change", ({ target }) => take(target.files));
for (const name of part("examples").dataset.names.split(" ")) {
  const address = new URL(`../examples/${name}.jpg`, import.meta.url).href;
  const image = el("img", { src: address, alt: name.replaceAll("_", " "), loading: "lazy" });
  part("examples").append(el("button", { type: "button", onclick: () => example(name) }, image));
}
for (const [words, [name, make]] of Object.entries(DOWNLOADS))
  part("downloads").append(el("button", { type: "button", onclick: () => save(name, make) }, words));
window.addEventListener("dragover", (event) => event.preventDefault());
window.addEventListener("drop", (event) => (event.preventDefault(), take(event.dataTransfer?.files)));
window.addEventListener("paste", (event) => take(event.clipboardData?.files) && event.preventDefault());
Object.assign(window, { lab: () => view }); // for tests and benchmarks

label();
example(part("examples").dataset.names.split(" ")[0]);
const bar = part("progress");
Model.load((share) => (bar.value = share)).then(
  (loaded) => {
    model = loaded;
    bar.hidden = true;
    if (shown) show(shown.file, shown.name);
  },
  (error) => say(`The model could not be loaded: ${error.message}`),
);
