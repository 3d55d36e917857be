// Photographs whose patches answer: every head with the mass it keeps, one point, two models side by side.

import { controls, find } from "../../app/static/dom.js";
import { Encoding } from "../../app/static/encoding.js";
import { decodeBlock } from "../../app/static/maths/attention.js";
import { fromBase64 } from "../../app/static/maths/format.js";
import { QUANTITIES } from "../../app/static/maths/quantities.js";
import { html, render } from "../../app/static/vendor/lit-html.js";
import { Viewer } from "../../app/static/widgets/viewer.js";

/** @typedef {Told & { name: string, picture: string, block: string, colors: number[], credit: string, pin: number[] }} Photograph */

const KEYS = "Move the pointer over the picture, or use the arrow keys; Escape returns to the whole picture.";
const PHOTOGRAPHS = ["sheep", "macaw", "shepherd"];

/** What the page would fetch, from what a script brought. @param {Photograph} told */
function opened(told) {
  const encoding = new Encoding({ ...told, photo: told.name, token: "", facts: [] }, told.name, told.pin);
  encoding.picture = told.picture;
  const shape = { heads: told.heads, tokens: told.prefix + told.rows * told.columns, prefix: told.prefix };
  const bytes = /** @type {ArrayBuffer} */ (fromBase64(told.block).buffer);
  const colors = Float32Array.from(told.colors, (value) => value / 255);
  return { encoding, block: { ...decodeBlock(bytes, shape), colors, number: told.blocks - 1 } };
}

/** @param {string} label */
function stage(label) {
  return html`<div class="lab-stage" tabindex="0" role="application" aria-label=${label}></div>`;
}

/** @param {(name: string) => void} choose */
function photographs(choose) {
  return html`<label>Photograph
    <select @change=${(event) => choose(event.target.value)}>${PHOTOGRAPHS.map((name) => html`<option>${name}</option>`)}</select>
  </label>`;
}

/** Every head of the last block, and the smallest set of patches that keeps the mass. @param {HTMLElement} root @param {any} data */
export function heads(root, data) {
  render(
    html`
      ${stage("Photograph with what a head looks at")}
      <form class="live-row">
        ${photographs((name) => show(name))}
        <label>Mass kept <input type="range" name="mass" min="10" max="100" value="60" /> <output></output></label>
      </form>
      <div class="lab-tiles" role="radiogroup" aria-label="Which head"></div>
      <p>${KEYS}</p>
    `,
    root,
  );
  const viewer = new Viewer(root, data.colors, { drawn: () => {} }, { layer: "mask", show: "mean", mass: 0.6 });
  const form = find(root, "form");
  const { mass } = controls(form);
  const show = (/** @type {string} */ name) => {
    const { encoding, block } = opened(data[name]);
    viewer.open(encoding, block, "attention");
    viewer.render();
  };
  const keep = () => {
    find(root, "output").textContent = `${mass.value} %`;
    viewer.settings.mass = Number(mass.value) / 100;
  };
  form.addEventListener("submit", (event) => event.preventDefault());
  mass.addEventListener("input", () => (keep(), viewer.render()));
  keep();
  show(PHOTOGRAPHS[0]);
  Object.assign(root, { viewer }); // for tests
}

/** What is like the patch under the pointer, or where it looks. @param {HTMLElement} root @param {any} data */
export function point(root, data) {
  render(
    html`
      ${stage("Photograph to point at")}
      <form class="live-row">
        ${photographs((name) => show(name))}
        <label>Show
          <select name="quantity">
            <option value="likeness">what is like this patch</option>
            <option value="attention">where this patch looks</option>
            <option value="logits">q · k of this patch</option>
            <option value="key-pca">what the keys tell apart: PCA</option>
          </select>
        </label>
      </form>
      <div class="lab-tiles" role="radiogroup" aria-label="Which head"></div>
      <p>${KEYS}</p>
    `,
    root,
  );
  const viewer = new Viewer(root, data.colors, { drawn: () => {} }, { layer: "heat", show: "mean" });
  const form = find(root, "form");
  const { quantity } = controls(form);
  let name = PHOTOGRAPHS[0];
  const show = (/** @type {string} */ chosen = name) => {
    name = chosen;
    const { encoding, block } = opened(data[name]);
    viewer.open(encoding, block, quantity.value);
    find(root, ".lab-tiles").hidden = !QUANTITIES[quantity.value].heads;
    viewer.set({ patch: encoding.pinned });
  };
  form.addEventListener("submit", (event) => event.preventDefault());
  quantity.addEventListener("change", () => show());
  show();
  Object.assign(root, { viewer });
}

/** One pointer over the trained network and over random weights. @param {HTMLElement} root @param {any} data */
export function compare(root, data) {
  const sides = ["Trained", "Random weights"];
  render(
    html`<div class="live-pair">
        ${sides.map((label) => html`<figure class="lab">${stage(label)}<figcaption>${label}</figcaption><div class="lab-tiles" hidden></div></figure>`)}
      </div>
      <p>${KEYS}</p>`,
    root,
  );
  const figures = /** @type {HTMLElement[]} */ ([...root.querySelectorAll("figure")]);
  /** @type {Viewer[]} */
  const viewers = figures.map((figure) => {
    const both = (/** @type {Patch | null} */ patch) => viewers.forEach((viewer) => viewer.hover(patch));
    const on = { drawn: () => {}, point: both, press: both };
    return new Viewer(figure, data.colors, on, { layer: "heat" });
  });
  ["sheep", "random"].forEach((name, side) => {
    const { encoding, block } = opened(data[name]);
    viewers[side].open(encoding, block, "likeness");
    viewers[side].set({ patch: encoding.pinned });
  });
  Object.assign(root, { viewers });
}
