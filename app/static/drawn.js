// A mask that the visitor draws over a picture, with pointer or keys, or brings as a file. It never leaves the browser.

import { Refusal } from "./encoding.js";
import { outlinePath } from "./paint.js";

const LONGEST = 1024; // cells of the long side: finer than a brush
const MAX_HISTORY = 20;
const VISIBLE = 127; // of 255, from where a cell counts as drawn
const FAINTEST = 32; // of 255: files of labels have dark colours, JPEGs a little noise in their black
const SPECK = 0.01; // cells: a line of no length at all is not drawn, not even its round ends
const SHAPE_TOLERANCE = 0.02;

export class DrawnMask {
  /**
   * @param {HTMLElement} stage  holds a canvas .lab-brush over the picture and a ring .lab-ring
   * @param {() => void} onChange  called when a stroke is finished, and after everything else that changes the mask
   */
  constructor(stage, onChange) {
    this.canvas = stage.querySelector(".lab-brush");
    this.ring = stage.querySelector(".lab-ring");
    this.context = this.canvas.getContext("2d", { willReadFrequently: true });
    this.onChange = onChange;
    this.erasing = false;
    this.size = 0.08; // diameter of the brush, as a share of the long side
    this.rows = this.columns = 0;
    this.values = null; // bytes of 0 and 1; null while nothing is drawn
    this.history = [];
    this.listen();
  }

  /** Start anew on a picture of that many pixels. */
  open({ width, height }) {
    const scale = Math.min(1, LONGEST / Math.max(width, height));
    this.columns = this.canvas.width = Math.max(1, Math.round(width * scale));
    this.rows = this.canvas.height = Math.max(1, Math.round(height * scale));
    this.values = null;
    this.history = [];
  }

  /** The mask as labels, or null while nothing is drawn. */
  get mask() {
    const { rows, columns, values } = this;
    return values && { rows, columns, values };
  }

  /** Show a mask of this size, or none. */
  set(values) {
    const image = this.context.createImageData(this.columns, this.rows);
    values?.forEach((inside, cell) => image.data.fill(255 * inside, 4 * cell, 4 * cell + 4));
    this.context.putImageData(image, 0, 0);
    this.values = values?.some((inside) => inside) ? values : null;
  }

  change(values) {
    this.history = [...this.history.slice(1 - MAX_HISTORY), this.values];
    this.set(values);
    this.onChange();
  }

  clear() {
    if (this.values) this.change(null);
  }

  invert() {
    const filled = this.values ?? new Uint8Array(this.rows * this.columns);
    this.change(filled.map((inside) => 1 - inside));
  }

  undo() {
    if (!this.history.length) return;
    this.set(this.history.pop());
    this.onChange();
  }

  // ---- drawing

  listen() {
    const { canvas } = this;
    let last = null; // where the stroke is; null between strokes
    const place = (event) => {
      const box = canvas.getBoundingClientRect();
      return { x: (event.clientX - box.left) / box.width, y: (event.clientY - box.top) / box.height };
    };
    canvas.addEventListener("pointerdown", (event) => {
      if (event.button !== 0) return;
      canvas.setPointerCapture(event.pointerId);
      last = place(event);
      this.line(last, last);
    });
    canvas.addEventListener("pointermove", (event) => {
      const here = place(event);
      this.pointAt(here);
      if (last) this.line(last, here);
      if (last) last = here;
    });
    const end = () => {
      if (last) this.finish();
      last = null;
    };
    canvas.addEventListener("pointerup", end);
    canvas.addEventListener("pointercancel", end);
    canvas.addEventListener("pointerleave", () => (this.ring.hidden = true));
    canvas.addEventListener("click", (event) => event.stopPropagation()); // it has drawn already
  }

  /** Draw where a key was pressed: `place` as shares of width and height. */
  dab(place) {
    this.line(place, place);
    this.finish();
  }

  line(from, to) {
    const { context, columns, rows } = this;
    context.globalCompositeOperation = this.erasing ? "destination-out" : "source-over";
    context.strokeStyle = "#fff";
    context.lineCap = "round";
    context.lineWidth = this.size * Math.max(columns, rows);
    context.beginPath();
    context.moveTo(from.x * columns, from.y * rows);
    context.lineTo(to.x * columns + SPECK, to.y * rows);
    context.stroke();
  }

  /** Take over what the stroke left on the canvas. */
  finish() {
    const { data } = this.context.getImageData(0, 0, this.columns, this.rows);
    this.change(Uint8Array.from({ length: this.rows * this.columns }, (_, cell) => (data[4 * cell + 3] > VISIBLE ? 1 : 0)));
  }

  /** Show how large the brush is, at shares of width and height. */
  pointAt({ x, y }) {
    const { ring, rows, columns, size } = this;
    ring.hidden = false;
    ring.style.left = `${100 * x}%`;
    ring.style.top = `${100 * y}%`;
    ring.style.width = `${(100 * size * Math.max(rows, columns)) / columns}%`;
  }

  /** Draw the border of the mask into an svg: dashed, so that it is told from others without colour. */
  outline(ink) {
    ink.setAttribute("viewBox", `0 0 ${this.columns} ${this.rows}`);
    const path = this.values ? outlinePath(this.values, this.rows, this.columns) : "";
    const lines = ["lab-drawn-edge", "lab-drawn-line"].map((name) => {
      const line = document.createElementNS("http://www.w3.org/2000/svg", "path");
      line.setAttribute("d", path);
      line.setAttribute("class", name);
      return line;
    });
    ink.replaceChildren(...lines);
  }

  // ---- a file

  /** Take a picture file as the mask: what is not black, or not transparent, is inside. Throws a Refusal. */
  async load(file) {
    const picture = await createImageBitmap(file).catch(() => {
      throw new Refusal("This file is no picture that the browser can read: choose a PNG or JPEG mask.");
    });
    const ratio = picture.width / picture.height / (this.columns / this.rows);
    if (Math.abs(ratio - 1) > SHAPE_TOLERANCE) {
      throw new Refusal("The mask has another shape than the picture: choose one of the same width and height.");
    }
    const canvas = new OffscreenCanvas(this.columns, this.rows);
    const context = canvas.getContext("2d");
    context.imageSmoothingEnabled = false; // labels have no values in between
    context.drawImage(picture, 0, 0, this.columns, this.rows);
    this.change(insideOf(context.getImageData(0, 0, this.columns, this.rows).data));
  }
}

function insideOf(data) {
  const inside = (cell) => Math.max(...data.subarray(cell, cell + 3)) > FAINTEST && data[cell + 3] > VISIBLE;
  return Uint8Array.from({ length: data.length / 4 }, (_, cell) => (inside(4 * cell) ? 1 : 0));
}
