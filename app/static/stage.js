// The picture with everything drawn over it, and the ways to point at one of its patches.

import { PatchCanvas } from "./paint.js";

const STEPS = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };

/**
 * @param {HTMLElement} element  holds an img, a canvas, an svg and a place for markers
 * @param {object} on  what to call: point({row, column}), leave(), pin({row, column}), remove(), undo(), rest()
 */
export class Stage {
  constructor(element, on) {
    this.element = element;
    this.on = on;
    this.photo = element.querySelector("img");
    this.canvas = new PatchCanvas(element.querySelector("canvas"));
    this.ink = element.querySelector("svg");
    this.markers = element.querySelector(".lab-markers");
    this.rows = this.columns = 0;
    this.cursor = null; // the patch under the pointer, or where the arrow keys stand
    this.frame = 0;
    this.listen();
  }

  /** Another picture: its address, its name for people, its size in pixels and its patch grid. */
  open({ picture, name, width, height, rows, columns }) {
    this.rows = rows;
    this.columns = columns;
    this.cursor = null;
    this.marked = null;
    this.photo.src = picture;
    this.photo.alt = `The photograph ${name}`;
    this.element.style.setProperty("--ratio", width / height);
    this.canvas.resize(rows, columns);
    this.ink.setAttribute("viewBox", `0 0 ${columns} ${rows}`);
  }

  /** Outlines as [{path, color}], and the patch that is asked about, or null for [CLS]. */
  draw(outlines, patch, color) {
    const lines = outlines.flatMap((outline) => [
      svg("path", { d: outline.path, class: "lab-outline-edge" }),
      svg("path", { d: outline.path, class: "lab-outline", stroke: outline.color }),
    ]);
    if (patch) {
      const box = { x: patch.column, y: patch.row, width: 1, height: 1 };
      lines.push(svg("rect", { ...box, class: "lab-patch-edge" }));
      lines.push(svg("rect", { ...box, class: "lab-patch", stroke: color }));
    }
    this.ink.replaceChildren(...lines);
  }

  /** Numbered markers of the pins; the same list again costs nothing. */
  mark(pins) {
    if (pins === this.marked) return;
    this.marked = pins;
    const markers = pins.map((pin, index) => {
      const marker = document.createElement("span");
      marker.className = "lab-marker";
      marker.textContent = index + 1;
      marker.style.setProperty("--pin", pin.color);
      marker.style.left = `${(100 * (pin.column + 0.5)) / this.columns}%`;
      marker.style.top = `${(100 * (pin.row + 0.5)) / this.rows}%`;
      return marker;
    });
    this.markers.replaceChildren(...markers);
  }

  listen() {
    const { element } = this;
    const move = (event) => {
      const patch = this.patchAt(event);
      cancelAnimationFrame(this.frame); // one map per frame: the newest
      this.frame = requestAnimationFrame(() => this.point(patch));
    };
    element.addEventListener("pointermove", move);
    element.addEventListener("pointerdown", move); // a tap moves nothing
    element.addEventListener("pointerleave", () => this.leave());
    element.addEventListener("blur", () => this.leave());
    element.addEventListener("click", (event) => {
      // A click counts where it falls, not where the last drawn frame was.
      if (this.rows) this.pin(this.patchAt(event));
    });
    element.addEventListener("keydown", (event) => {
      if (this.rows && this.key(event)) event.preventDefault();
    });
  }

  /** Whether the key meant something here. */
  key({ key, ctrlKey, metaKey, altKey }) {
    if ((ctrlKey || metaKey) && key.toLowerCase() === "z") this.on.undo();
    else if (ctrlKey || metaKey || altKey) return false;
    else if (STEPS[key]) this.step(...STEPS[key]);
    else if (key === "Enter" || key === " ") this.pin(this.cursor ?? this.centre());
    else if (key === "Delete" || key === "Backspace") this.on.remove();
    else if (key === "Escape") this.on.rest();
    else return false;
    return true;
  }

  step(down, right) {
    const from = this.cursor ?? this.centre();
    const within = (value, count) => Math.min(count - 1, Math.max(0, value));
    this.point({ row: within(from.row + down, this.rows), column: within(from.column + right, this.columns) });
  }

  point(patch) {
    if (!this.rows) return;
    this.cursor = patch;
    this.on.point(patch);
  }

  pin(patch) {
    cancelAnimationFrame(this.frame);
    this.cursor = patch;
    this.on.pin(patch);
  }

  leave() {
    cancelAnimationFrame(this.frame);
    this.cursor = null;
    this.on.leave();
  }

  centre() {
    return { row: this.rows >> 1, column: this.columns >> 1 };
  }

  patchAt({ clientX, clientY }) {
    const box = this.photo.getBoundingClientRect();
    const index = (part, count) => Math.min(count - 1, Math.max(0, Math.floor(part * count)));
    return {
      row: index((clientY - box.top) / box.height, this.rows),
      column: index((clientX - box.left) / box.width, this.columns),
    };
  }
}

function svg(name, attributes) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  return node;
}
