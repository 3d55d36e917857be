// Masks made by hand over a stage: clicks on objects, strokes of pointer, finger or keys, and the tools for them.

import { Guide } from "../maths/guided.js";
import { outlinePath, resized } from "../maths/labels.js";
import { within } from "../maths/levels.js";
import { Painting, light, tint } from "../maths/painting.js";
import { proposal, tidy } from "../maths/proposal.js";
import { button, el, svg } from "./dom.js";

const LONG_SIDE = 1024; // cells of a mask
const REFINED_SIDE = 640; // pixels at which the edges of a click are refined
const MIN_PART = 1 / 800; // of the image: smaller parts of a refined mask are removed
const MAX_PAINTINGS = 4;
const TOOLS = { c: "click", b: "draw", e: "erase" }; // by key

export class Brush {
  enabled = true; // false: the image cannot be painted
  erasing = false;
  lights = false; // darken the outside of the mask instead of coloring the inside
  size = 0.08; // diameter, as a share of the long side
  reach = 0.9; // share of the positive similarity that a click keeps
  painting = new Painting({ width: 1, height: 1, most: 1 });
  encoding = null;
  block = null;
  guide = null;
  photo = null;

  /** @param {Stage} stage @param {() => void} changed  called after every change of the mask but strokes in progress */
  constructor(stage, changed, colors = [[255, 255, 255]]) {
    this.stage = stage;
    this.changed = changed;
    this.colors = colors;
    this.context = stage.overlay.getContext("2d");
    this.image = this.context.createImageData(1, 1);
  }

  open(painting) {
    const { width, height } = painting;
    this.painting = painting;
    Object.assign(this.stage.overlay, { width, height });
    this.image = this.context.createImageData(width, height);
    this.show();
  }

  /** Stage events of a brush. */
  get events() {
    return {
      stroke: (from, to) => this.stroke(from, to),
      lift: () => this.changed(),
      undo: () => this.act("undo"),
      remove: () => this.act("clear"),
    };
  }

  /** Call a method of the painting that changes it. @param {string} method @param {...any} options */
  act(method, ...options) {
    this.painting[method](...options);
    this.changed();
  }

  // ---- clicks

  /** Take the keys that clicks compare. `photo` is used to refine edges. @param {Encoding} encoding @param {Block} block */
  encoded(encoding, block, photo) {
    Object.assign(this, { encoding, block, photo, guide: null });
  }

  /** Return the patches that a click selects; null without keys. @param {Place} place @returns {Labels} */
  proposed(place) {
    const { block, encoding } = this;
    if (!block || !place || !this.enabled || this.stage.paints) return null;
    const { rows, columns } = encoding;
    return { rows, columns, values: proposal(block, encoding, encoding.patchAt(place), this.reach) };
  }

  /** Draw the outline of what a click selects; returns whether it selects something. @param {Place} place */
  preview(place) {
    const patches = this.proposed(place);
    if (patches) this.stage.draw([{ path: outlinePath(patches), color: "#fff" }], patches);
    return Boolean(patches);
  }

  /** Add the object at a place, or subtract it. @param {Place} place @param {boolean} subtract */
  press(place, subtract = false) {
    const patches = this.proposed(place);
    if (!patches) return;
    this.painting.remember();
    this.painting.take(this.refined(patches), subtract ? 0 : this.painting.active);
    this.changed();
  }

  /** Move the edges of patches to those of the image. @param {Labels} patches @returns {Labels} */
  refined(patches) {
    const { encoding, photo } = this;
    const { width, height } = within(encoding, REFINED_SIDE / Math.max(encoding.width, encoding.height));
    if (!this.guide) {
      const radius = Math.max(1, Math.round(Math.max(height / encoding.rows, width / encoding.columns)));
      this.guide = new Guide(pixelsOf(photo, width, height), width, height, radius);
    }
    const mask = this.guide.refine(resized(patches, { rows: height, columns: width }).values);
    return { rows: height, columns: width, values: tidy(mask, width, MIN_PART * mask.length) };
  }

  // ---- strokes

  stroke(from, to) {
    const { painting, enabled, erasing } = this;
    if (!enabled) return;
    if (from === to) painting.remember();
    const pixel = ({ x, y }) => ({ x: x * painting.width, y: y * painting.height });
    painting.line(pixel(from), pixel(to), this.radius, erasing ? 0 : painting.active);
    this.show();
    this.ring();
  }

  get radius() {
    return Math.max(0.5, (this.size * Math.max(this.painting.width, this.painting.height)) / 2);
  }

  /** Show the size of the brush at the cursor. */
  ring(shown = this.stage.paints) {
    this.stage.ringAt(shown ? (2 * this.radius) / this.painting.width : 0);
  }

  /** Draw the painting, or other values of its size. */
  show(values = this.painting.values) {
    const { width, empty } = this.painting;
    if (this.lights && !empty) light(values, width, this.image.data);
    else tint(values, width, this.colors, this.image.data);
    this.context.putImageData(this.image, 0, 0);
  }

  /** Draw a dashed border. */
  outline() {
    const { width, height, labels } = this.painting;
    const d = labels ? outlinePath(labels) : "";
    this.stage.drawn.setAttribute("viewBox", `0 0 ${width} ${height}`);
    this.stage.drawn.replaceChildren(svg("path", { d, class: "lab-edge" }), svg("path", { d, class: "lab-dashed" }));
  }
}

/** Read the pixels of an image at a size. @param {CanvasImageSource} image */
function pixelsOf(image, width, height) {
  const context = new OffscreenCanvas(width, height).getContext("2d");
  context.drawImage(image, 0, 0, width, height);
  return context.getImageData(0, 0, width, height).data;
}

let groups = 0;

/** The tools of a mask: click or brush, its size, undo. */
export class Tools {
  /** @param {Brush} brush */
  constructor(brush) {
    this.brush = brush;
    this.name = `tool-${(groups += 1)}`;
    const choice = (value, label) =>
      el("label", {}, el("input", { type: "radio", name: this.name, value, checked: value === "click" }), label);
    const act = (method, label) => button(label, () => brush.act(method), { class: `lab-${method}` });
    this.size = el("input", { type: "range", min: 1, max: 25, value: 8 });
    this.undo = act("undo", "Undo");
    this.element = el(
      "div",
      { class: "lab-tools", role: "group", "aria-label": "Your mask", oninput: () => this.apply() },
      choice("click", "Click"),
      choice("draw", "Draw"),
      choice("erase", "Erase"),
      el("label", {}, "Brush", this.size),
      this.undo,
      act("clear", "Clear"),
    );
    this.apply();
  }

  get tool() {
    return this.element.querySelector(":checked")["value"];
  }

  /** Handle the key of a tool; returns whether it is one. @param {KeyboardEvent} event */
  key({ key }) {
    const input = TOOLS[key.toLowerCase()] && this.element.querySelector(`[value=${TOOLS[key.toLowerCase()]}]`);
    input?.["click"]();
    return Boolean(input);
  }

  /** Apply the tool to the brush, and show which buttons can be used. */
  apply() {
    const { tool, size, brush } = this;
    brush.erasing = tool === "erase";
    brush.size = Number(size.value) / 100;
    brush.stage.paints = tool !== "click" && brush.enabled;
    brush.stage.element.dataset.tool = brush.stage.paints ? tool : "click";
    this.undo.disabled = !brush.painting.past.length;
  }
}

// ---- memory of masks

/** @type {Map<string, Painting>} */
const PAINTINGS = new Map(); // by image

/** Return the mask over an image. @param {Encoding} encoding */
export function paintingOf({ photo, width, height }) {
  if (PAINTINGS.has(photo)) return PAINTINGS.get(photo);
  const painting = new Painting({ ...within({ width, height }, LONG_SIDE / Math.max(width, height)), most: 1 });
  PAINTINGS.set(photo, painting);
  if (PAINTINGS.size > MAX_PAINTINGS) PAINTINGS.delete([...PAINTINGS.keys()][0]);
  return painting;
}
