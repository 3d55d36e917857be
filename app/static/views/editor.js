// The base of views with masks made by hand: clicks on objects, strokes of pointer, finger or keys, and the tools for them.

import { css } from "../maths/format.js";
import { Guide } from "../maths/guided.js";
import { outlinePath, resized } from "../maths/labels.js";
import { fitted } from "../maths/levels.js";
import { Painting, tint } from "../maths/painting.js";
import { proposal, tidy } from "../maths/proposal.js";
import { button, el } from "./dom.js";
import { Encoding } from "./encoding.js";
import { Stage } from "./stage.js";
import { View } from "./view.js";

const REFINED_SIDE = 640; // pixels at which the edges of a click are refined
const MIN_PART = 1 / 800; // of the image: smaller parts of a refined mask are removed
const MAX_PAINTINGS = 8; // kept
const TOOLS = { c: "click", x: "subtract", b: "draw", e: "erase" }; // by key

let groups = 0;

export class Editor extends View {
  enabled = true; // false: the image cannot be painted
  lights = false; // darken the outside of the mask instead of coloring the inside
  colors = []; // of the objects
  digits = 0; // added to a digit to give the number of its object
  painting = new Painting({ width: 1, height: 1 });
  paintings = new Map(); // of the last images, the newest last
  block = null;
  guide = null;
  image = null; // pixels of the painting
  chips = el("ul", { class: "lab-tools", "aria-label": "Objects" });
  size = el("input", { type: "range", min: 1, max: 25, value: 8 }); // of the brush, percent of the long side
  status = el("p", { class: "lab-chip", role: "status" });
  brush = el("label", { hidden: true }, "Brush", this.size);

  /** @param {Mounted} mounted @param {Record<string, any>} settings @param {[string, string, ("img" | "canvas")?]} texts  of `Stage` */
  constructor(mounted, settings, [label, keys, kind]) {
    super(mounted, { reach: 90, ...settings }); // reach: percent of the positive similarity that a click keeps
    this.stage = new Stage(label, keys, this, kind);
    this.context = this.stage.overlay.getContext("2d");
    const name = `tool-${(groups += 1)}`;
    const choice = (value, label) =>
      el("label", {}, el("input", { type: "radio", name, value, checked: value === "click" }), label);
    const act = (method, label) => button(label, () => this.act(method), { class: `lab-${method}` });
    this.undo = act("undo", "Undo");
    this.tools = el(
      "div",
      { class: "lab-tools", role: "group", "aria-label": "Your mask", oninput: () => this.apply() },
      ...[choice("click", "+ Click"), choice("subtract", "− Click"), choice("draw", "Draw"), choice("erase", "Erase")],
      ...[this.brush, this.undo, act("clear", "Clear")],
    );
    this.stage.cell.append(
      el("div", { class: "lab-top" }, this.tools),
      el("div", { class: "lab-bottom" }, this.status),
    );
  }

  async load(signal) {
    const { value } = this.props;
    if (!value.token) return;
    const encoding = this.encoding?.token === value.token ? this.encoding : new Encoding(value);
    return { encoding, block: await encoding.arrays("attention", encoding.blocks - 1, signal) };
  }

  /** Take the painting of an image. @param {string} key @param {() => Painting} make  the first one */
  take(key, make) {
    const painting = this.paintings.get(key) ?? make();
    this.paintings.delete(key);
    this.paintings.set(key, painting);
    if (this.paintings.size > MAX_PAINTINGS) this.paintings.delete([...this.paintings.keys()][0]);
    this.painting = painting;
    const { width, height } = painting;
    Object.assign(this.stage.overlay, { width, height });
    this.image = this.context.createImageData(width, height);
  }

  /** Return the patches that a click selects, if it selects any. @param {Place} place @returns {Labels} */
  proposed(place) {
    const { block, encoding } = this;
    if (!block || !place || !this.enabled || this.stage.paints) return null;
    const { rows, columns } = encoding;
    return { rows, columns, values: proposal(block, encoding, encoding.patchAt(place), this.settings.reach / 100) };
  }

  /** Move the edges of patches to those of the image. @param {Labels} patches @returns {Labels} */
  refined(patches) {
    const { encoding, stage } = this;
    const { width, height } = fitted(encoding, REFINED_SIDE);
    if (!this.guide) {
      const context = new OffscreenCanvas(width, height).getContext("2d");
      context.drawImage(stage.image, 0, 0, width, height);
      const radius = Math.max(1, Math.round(Math.max(height / encoding.rows, width / encoding.columns)));
      this.guide = new Guide(context.getImageData(0, 0, width, height).data, width, height, radius);
    }
    const mask = this.guide.refine(resized(patches, { rows: height, columns: width }).values);
    return { rows: height, columns: width, values: tidy(mask, width, MIN_PART * mask.length) };
  }

  /** Radius of the brush in pixels of the painting. */
  get radius() {
    return Math.max(0.5, (Number(this.size.value) * Math.max(this.painting.width, this.painting.height)) / 200);
  }

  get tool() {
    return this.tools.querySelector(":checked")["value"];
  }

  /** True if the objects cannot be changed. */
  get busy() {
    return false;
  }

  show({ encoding, block }) {
    const { token } = encoding;
    if (this.encoding?.token !== token || !this.stage.open) this.open(encoding, block);
    this.element.dataset.token = token; // tests wait for it
    this.emitShown(token);
  }

  restore() {
    if (this.encoding) this.open(this.encoding, this.block);
  }

  /** Take another image. @param {Encoding} encoding @param {Block} block */
  open(encoding, block) {
    Object.assign(this, { encoding, block, guide: null });
    this.stage.show(encoding);
  }

  /** Draw the painting, or other values of its size. */
  showMask(values = this.painting.values) {
    tint(values, this.painting.width, this.colors, this.image.data, this.lights && !this.painting.empty);
    this.context.putImageData(this.image, 0, 0);
  }

  showBrush() {
    const { paints, cursor } = this.stage;
    this.stage.circle(paints && cursor, `${(200 * this.radius) / this.painting.width}%`);
  }

  /** Apply the tool, and show which buttons can be used. */
  apply() {
    const { stage, tool, painting } = this;
    stage.paints = this.enabled && (tool === "draw" || tool === "erase");
    stage.element.dataset.tool = stage.paints ? tool : "click";
    this.brush.hidden = !stage.paints;
    this.undo.disabled = !painting.past.length;
    this.point();
  }

  /** List the objects as buttons. @param {(number: number) => string} name @param {(number: number) => Node} extra  button of each */
  listObjects(name = (number) => `Object ${number}`, extra = () => null, add = "+ Object") {
    const { painting, busy } = this;
    const object = (number) => {
      const pressed = { class: "lab-swatch", "aria-pressed": String(number === painting.active), disabled: busy };
      const color = { style: `--pin: ${css(this.colors[number - 1])}` };
      const choose = button(name(number), () => this.choose(number), pressed);
      return el("li", color, choose, extra(number));
    };
    const disabled = busy || painting.objects.length >= painting.most;
    const more = button(add, () => this.edit(() => painting.add()), { disabled });
    this.chips.replaceChildren(...painting.objects.map(object), el("li", {}, more));
  }

  /** Called after every change of the mask but strokes in progress. */
  changed() {}

  act(method) {
    this.painting[method]();
    this.changed();
  }

  /** Show the size of the brush, and what a click selects; returns those patches. */
  point(place = this.stage.cursor) {
    const patches = this.proposed(place);
    this.showBrush();
    this.stage.draw(patches ? [{ path: outlinePath(patches), color: "#fff" }] : [], patches ?? undefined);
    return patches;
  }

  /** Add the object at a place, or subtract it. @param {Place} place @param {boolean} subtract */
  press(place, subtract) {
    const patches = this.proposed(place);
    if (!patches) return;
    this.painting.remember();
    this.painting.take(this.refined(patches), subtract || this.tool === "subtract" ? 0 : this.painting.active);
    this.changed();
  }

  retract() {
    if (this.painting.past.length) this.act("undo");
  }

  stroke(from, to) {
    const { painting } = this;
    if (from === to) painting.remember();
    const pixel = ({ x, y }) => ({ x: x * painting.width, y: y * painting.height });
    painting.line(pixel(from), pixel(to), this.radius, this.tool === "erase" ? 0 : painting.active);
    this.showMask();
    this.showBrush();
  }

  lift() {
    this.changed();
  }

  /** Handle the key of a tool or object. @param {KeyboardEvent} event */
  key({ key, ctrlKey, metaKey }) {
    const letter = key.toLowerCase();
    const tool = TOOLS[letter];
    if (ctrlKey || metaKey) {
      if (letter !== "z") return false;
      this.act("undo");
    } else if (key === "Delete" || key === "Backspace") this.act("clear");
    else if (tool) this.tools.querySelector(`[value=${tool}]`)["click"]();
    else return /^\d$/.test(key) && this.choose(Number(key) + this.digits);
    return true;
  }

  /** Choose an object by its number; returns whether there is one. @param {number} number */
  choose(number) {
    const known = this.painting.objects.includes(number);
    if (known) this.edit(() => (this.painting.active = number));
    return known;
  }

  edit(change) {
    change();
    this.listObjects();
  }
}
