// A mask drawn by hand over a stage, with pointer, finger or keys, and its tools. Segment and Compare share the mask.

import { outlinePath } from "../maths/labels.js";
import { within } from "../maths/levels.js";
import { Painting, light, tint } from "../maths/painting.js";
import { el, svg } from "./dom.js";
import { Refusal } from "./encoding.js";

const LONG_SIDE = 1024; // cells of a mask's long side
const MIN_OPACITY = 127; // of 255, from which a pixel of a mask file counts
const MIN_LEVEL = 32; // of 255: label files have dark colors, JPEGs a little noise in their black
const SHAPE_TOLERANCE = 0.02;
const MAX_STORED = 200_000; // characters of a mask in the browser's session storage
const MASKS_KEPT = 4;
const WHITE = [[255, 255, 255]];

export class Brush {
  /** @param {Stage} stage @param {() => void} changed  called after a stroke, or another change of the mask */
  constructor(stage, changed) {
    this.stage = stage;
    this.changed = changed;
    this.erasing = false;
    this.lights = false; // darken what is outside the mask, instead of tinting what is inside
    this.size = 0.08; // diameter, as a share of the long side
    this.painting = new Painting({ width: 1, height: 1, most: 1 });
    this.context = /** @type {CanvasRenderingContext2D} */ (stage.overlay.getContext("2d"));
    this.image = this.context.createImageData(1, 1);
  }

  /** @param {Painting} painting */
  open(painting) {
    this.painting = painting;
    const { width, height } = painting;
    Object.assign(this.stage.overlay, { width, height });
    this.image = this.context.createImageData(width, height);
    this.show();
  }

  /** Draw between two places. @param {Place} from @param {Place} to */
  stroke(from, to) {
    const { painting } = this;
    if (from === to) painting.remember();
    const pixel = (/** @type {Place} */ { x, y }) => ({ x: x * painting.width, y: y * painting.height });
    painting.line(pixel(from), pixel(to), this.radius, this.erasing ? 0 : painting.active);
    this.show();
    this.ring();
  }

  /** In cells of the painting. */
  get radius() {
    return Math.max(0.5, (this.size * Math.max(this.painting.width, this.painting.height)) / 2);
  }

  /** Show the size of the brush at the cursor. */
  ring(shown = true) {
    this.stage.ringAt(shown ? (2 * this.radius) / this.painting.width : 0);
  }

  /** @param {"undo" | "redo" | "clear" | "invert"} action */
  act(action) {
    this.painting[action]();
    this.show();
    this.changed();
  }

  show() {
    const { width, empty, values } = this.painting;
    if (this.lights && !empty) light(values, width, this.image.data);
    else tint(values, width, WHITE, this.image.data);
    this.context.putImageData(this.image, 0, 0);
  }

  /** A dashed border, which is told from other outlines without color. */
  outline() {
    const { width, height, labels } = this.painting;
    this.stage.drawn.setAttribute("viewBox", `0 0 ${width} ${height}`);
    const d = labels ? outlinePath(labels.values, height, width) : "";
    this.stage.drawn.replaceChildren(
      svg("path", { d, class: "lab-drawn-edge" }),
      svg("path", { d, class: "lab-drawn-line" }),
    );
  }

  /** Take an image file as the mask: what is neither black nor transparent is inside. Throws a Refusal. @param {File} file */
  async load(file) {
    const { width, height } = this.painting;
    const picture = await createImageBitmap(file).catch(() => {
      throw new Refusal("The browser cannot read this file as an image: choose a PNG or JPEG mask.");
    });
    if (Math.abs(picture.width / picture.height / (width / height) - 1) > SHAPE_TOLERANCE) {
      throw new Refusal("The mask has another shape than the image: choose one of the same width and height.");
    }
    const canvas = new OffscreenCanvas(width, height);
    const context = /** @type {OffscreenCanvasRenderingContext2D} */ (canvas.getContext("2d"));
    context.imageSmoothingEnabled = false; // labels have no values in between
    context.drawImage(picture, 0, 0, width, height);
    this.painting.replace(insideOf(context.getImageData(0, 0, width, height).data));
    this.show();
    this.changed();
  }
}

/** @param {Uint8ClampedArray} data */
function insideOf(data) {
  const inside = (/** @type {number} */ at) =>
    Math.max(data[at], data[at + 1], data[at + 2]) > MIN_LEVEL && data[at + 3] > MIN_OPACITY;
  return Uint8Array.from({ length: data.length / 4 }, (_, cell) => (inside(4 * cell) ? 1 : 0));
}

/** Masks by image, for all views of the page; a reload brings the last one back. */
class Drawings {
  /** @type {Map<string, Painting>} */
  paintings = new Map();

  /** The mask over an image. @param {Encoding} encoding */
  of({ photo, width, height }) {
    const known = this.paintings.get(photo);
    if (known) return known;
    const painting = new Painting({ ...within({ width, height }, LONG_SIDE / Math.max(width, height)), most: 1 });
    const stored = JSON.parse(sessionStorage.getItem("drawn") ?? "null");
    painting.resume(stored?.about === photo ? stored.runs : []);
    this.paintings.set(photo, painting);
    if (this.paintings.size > MASKS_KEPT) this.paintings.delete([...this.paintings.keys()][0]);
    return painting;
  }

  /** Let a reload bring a mask back, unless that would fill the browser's storage. @param {Encoding} encoding */
  keep({ photo }) {
    const painting = this.paintings.get(photo);
    const text = painting && !painting.empty ? JSON.stringify({ about: photo, runs: painting.runs() }) : "";
    if (text && text.length < MAX_STORED) sessionStorage.setItem("drawn", text);
    else sessionStorage.removeItem("drawn");
  }
}

export const drawings = new Drawings();

/**
 * The tools of a mask that lies on one stage or several: what the pointer does, size of the brush, undo, a file.
 * @param {string} pointer  label of the tool that does not draw
 * @param {Brush[]} brushes  the first one does what buttons ask
 * @param {{ away?: boolean, refused: (sentence: string) => void }} options
 */
export function drawingTools(pointer, brushes, { away = false, refused }) {
  const group = `tool-${(groups += 1)}`;
  const choice = (/** @type {string} */ value, /** @type {string} */ label) =>
    el(
      "label",
      {},
      el("input", { type: "radio", name: group, value, checked: value === "point" }),
      el("span", {}, label),
    );
  const act = (/** @type {"undo" | "clear" | "invert"} */ name, /** @type {string} */ label) =>
    el("button", { type: "button", class: `lab-${name}`, onclick: () => brushes[0].act(name) }, label);
  const size = el("input", { type: "range", min: 1, max: 25, value: 8, "aria-label": "Brush size in percent" });
  const file = el("input", { type: "file", accept: "image/*", "aria-label": "Mask file", tabindex: -1, hidden: true });
  const takeAway = el("input", { type: "checkbox" });
  const form = el(
    "div",
    { class: "lab-tools", role: "group", "aria-label": "Your mask" },
    el("fieldset", { class: "lab-switch" }, choice("point", pointer), choice("draw", "Draw"), choice("erase", "Erase")),
    away && el("label", { class: "lab-tick" }, takeAway, el("span", {}, "Subtract")),
    el("label", { class: "lab-brush-size" }, el("span", {}, "Brush"), size),
    act("undo", "Undo"),
    act("clear", "Clear"),
    act("invert", "Invert"),
    el("button", { type: "button", onclick: () => file.click() }, "Open a mask…"),
    file,
  );
  const tool = () => /** @type {HTMLInputElement} */ (form.querySelector(":checked[type=radio]")).value;
  const apply = () => {
    for (const brush of brushes) {
      brush.erasing = tool() === "erase";
      brush.stage.paints = tool() !== "point";
      brush.stage.element.dataset.tool = tool();
      brush.size = Number(size.value) / 100;
    }
  };
  form.addEventListener("input", apply);
  form.addEventListener("keydown", (event) => event.stopPropagation());
  file.addEventListener("change", async () => {
    const [chosen] = file.files ?? [];
    file.value = ""; // so that the same file can be chosen again
    if (!chosen) return;
    await brushes[0].load(chosen).catch((/** @type {unknown} */ error) => {
      if (!(error instanceof Refusal)) throw error;
      refused(error.message);
    });
  });
  apply();
  return { form, takesAway: () => takeAway.checked, draws: () => tool() !== "point" };
}

let groups = 0;

/** What keys mean to a mask. @param {() => Brush} brush */
export function drawingKeys(brush) {
  return {
    undo: (/** @type {boolean} */ again) => brush().act(again ? "redo" : "undo"),
    remove: () => brush().act("clear"),
  };
}

/** Let the browser save a file. @param {Blob} content @param {string} name */
export function saveBlob(content, name) {
  const href = URL.createObjectURL(content);
  el("a", { href, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(href), 60_000);
}
