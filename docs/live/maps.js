// Images with attention maps: the mass that every head keeps, one point, two models side by side.

import { AttentionView } from "../../app/static/views/attention_view.js";
import { el } from "../../app/static/views/dom.js";

const KEYS = "Move the pointer over the image, or use the arrow keys; Escape returns to the whole image.";
const IMAGES = ["sheep", "macaw", "shepherd"];

/** The page's own view, with data in the place of a server. @param {Record<string, any>} props */
function mount(props) {
  const element = el("div", { class: "lab-view" });
  const all = { pins: false, ...props };
  return new AttentionView({ element, props: all, watch: () => {}, emit: () => {} });
}

/** Show another image, at a patch of its object. @param {AttentionView} view @param {any} value */
async function show(view, value) {
  view.props.value = value;
  await view.reload();
  const { encoding, pins } = view;
  if (!encoding?.pinned) return;
  pins.read({ pins: "", patch: "" }, encoding);
  if (view.props.point) pins.pin(encoding.pinned, encoding);
  view.render();
}

/** @param {(event: any) => void} onchange @param {string} label @param {[string, string][]} options @param {string} name */
function choice(onchange, label, options, name) {
  const entries = options.map(([value, words]) => el("option", { value }, words));
  return el("label", {}, `${label} `, el("select", { name, onchange }, ...entries));
}

const NAMES = /** @type {[string, string][]} */ (IMAGES.map((name) => [name, name]));

/** Every head of the last block, and the smallest set of patches that keeps the mass. @param {HTMLElement} root @param {any} data */
export async function heads(root, data) {
  const view = mount({ layer: "mask", mass: 60 });
  const output = el("output", {}, "60 %");
  const keep = (/** @type {any} */ { target }) => {
    output.textContent = `${target.value} %`;
    view.set({ mass: Number(target.value) });
  };
  const mass = el("input", { type: "range", name: "mass", min: 10, max: 100, value: 60, oninput: keep });
  const image = choice(({ target }) => show(view, data[target.value]), "Image", NAMES, "image");
  const form = el("form", { class: "live-row" }, image, el("label", {}, "Mass kept ", mass, " ", output));
  root.replaceChildren(view.element, form, el("p", {}, KEYS));
  await show(view, data[IMAGES[0]]);
  Object.assign(root, { view }); // for tests
}

/** Similarity or attention of the patch under the pointer. @param {HTMLElement} root @param {any} data */
export async function point(root, data) {
  const view = mount({ quantity: "key-similarity", layer: "heat", point: true });
  const quantities = /** @type {[string, string][]} */ ([
    ["key-similarity", "patches with similar keys"],
    ["attention", "attention of this patch"],
    ["logits", "q · k of this patch"],
    ["key-pca", "principal components of the keys"],
  ]);
  const form = el(
    "form",
    { class: "live-row" },
    choice(({ target }) => show(view, data[target.value]), "Image", NAMES, "image"),
    choice(({ target }) => view.set({ quantity: target.value }), "Show", quantities, "quantity"),
  );
  root.replaceChildren(view.element, form, el("p", {}, KEYS));
  await show(view, data[IMAGES[0]]);
  Object.assign(root, { view });
}

/** Trained network and random weights with one pointer, for the first page. @param {HTMLElement} root @param {any} data */
export async function opening(root, data) {
  const sides = ["Trained", "Random weights"];
  const views = sides.map((label) =>
    mount({ layer: "heat", tiles: false, group: "opening", quantity: "attention", label }),
  );
  const figures = views.map(({ element }, side) => el("figure", {}, element, el("figcaption", {}, sides[side])));
  root.replaceChildren(el("div", { class: "live-pair" }, ...figures), el("p", {}, KEYS));
  await Promise.all(["sheep", "random"].map((name, side) => show(views[side], data[name])));
  Object.assign(root, { views });
}
