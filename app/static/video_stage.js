// A frame with its objects, and the ways to point at one of its pixels: pointer, touch and keys.

import { centres, tint } from "./brush.js";

const STEPS = { ArrowUp: [0, -1], ArrowDown: [0, 1], ArrowLeft: [-1, 0], ArrowRight: [1, 0] };

/**
 * @param {HTMLElement} element  holds two canvases, an svg, a place for markers and a ring
 * @param {number[][]} colors  of the objects
 * @param {object} on  what to call: point({x, y}), leave(), down({x, y}), drag(from, to), up(), key(event) -> taken
 */
export class VideoStage {
  constructor(element, colors, on) {
    this.element = element;
    this.colors = colors;
    this.on = on;
    [this.frame, this.overlay] = [...element.querySelectorAll("canvas")].map((canvas) => canvas.getContext("2d"));
    this.ink = element.querySelector("svg");
    this.markers = element.querySelector(".lab-markers");
    this.ring = element.querySelector(".video-ring");
    this.cursor = null; // pixel under the pointer, or where the arrow keys stand
    this.step = 8; // pixels that an arrow key moves
    this.last = null; // where the stroke is; null between strokes
    this.listen();
  }

  /** Another clip: size of its frames in pixels. */
  open({ width, height }) {
    Object.assign(this, { width, height, cursor: null });
    this.element.style.setProperty("--ratio", width / height);
    for (const { canvas } of [this.frame, this.overlay]) Object.assign(canvas, { width, height });
    this.image = this.overlay.createImageData(width, height);
    this.ring.hidden = true;
    this.outline("", { rows: 1, columns: 1 });
  }

  /** A frame and its objects together; null draws no objects. */
  show(picture, values) {
    this.frame.drawImage(picture, 0, 0, this.width, this.height);
    this.paint(values);
  }

  /** Objects over the frame that is shown, with their numbers. */
  paint(values) {
    if (values) tint(values, this.width, this.colors, this.image.data);
    else this.image.data.fill(0);
    this.overlay.putImageData(this.image, 0, 0);
    const places = values ? [...centres(values, this.width, this.height)] : [];
    this.markers.replaceChildren(...places.map(([number, place]) => this.marker(number, place)));
  }

  marker(number, { x, y }) {
    const marker = document.createElement("span");
    marker.className = "lab-marker";
    marker.textContent = number;
    marker.style.setProperty("--pin", `rgb(${this.colors[number - 1].join(" ")})`);
    Object.assign(marker.style, { left: `${100 * x}%`, top: `${100 * y}%` });
    return marker;
  }

  /** The border of patches that a click would take: a path in units of patches. */
  outline(path, { rows, columns }) {
    this.ink.setAttribute("viewBox", `0 0 ${columns} ${rows}`);
    for (const line of this.ink.querySelectorAll("path")) line.setAttribute("d", path);
  }

  /** The brush at the cursor, `radius` pixels wide; none for 0. */
  brush(radius) {
    this.ring.hidden = !this.cursor || !radius;
    if (this.ring.hidden) return;
    const { style } = this.ring;
    style.left = `${(100 * this.cursor.x) / this.width}%`;
    style.top = `${(100 * this.cursor.y) / this.height}%`;
    style.width = `${(200 * radius) / this.width}%`;
  }

  // ---- pointing

  listen() {
    const { element } = this;
    element.addEventListener("pointerdown", (event) => {
      if (!this.width || event.button !== 0) return;
      element.setPointerCapture(event.pointerId);
      this.last = this.cursor = this.pixelAt(event);
      this.on.down(this.cursor);
    });
    element.addEventListener("pointermove", (event) => {
      if (!this.width) return;
      this.cursor = this.pixelAt(event);
      if (this.last) this.on.drag(this.last, this.cursor);
      else this.on.point(this.cursor);
      if (this.last) this.last = this.cursor;
    });
    const end = () => {
      if (this.last) this.on.up();
      this.last = null;
    };
    element.addEventListener("pointerup", end);
    element.addEventListener("pointercancel", end);
    for (const name of ["pointerleave", "blur"]) {
      element.addEventListener(name, () => {
        if (this.last) return;
        this.cursor = null;
        this.on.leave();
      });
    }
    element.addEventListener("keydown", (event) => {
      if (this.width && this.key(event)) event.preventDefault();
    });
  }

  /** Whether the key meant something here. */
  key(event) {
    const { key, ctrlKey, metaKey, altKey, shiftKey } = event;
    if (ctrlKey || metaKey || altKey) return this.on.key(event);
    if (STEPS[key]) this.move(STEPS[key], shiftKey ? 4 : 1);
    else if (key === " " || key === "Enter") this.press();
    else return this.on.key(event);
    return true;
  }

  move([right, down], times) {
    const from = this.cursor ?? { x: this.width / 2, y: this.height / 2 };
    const within = (value, most) => Math.min(most - 0.5, Math.max(0.5, value));
    const by = this.step * times;
    this.cursor = { x: within(from.x + right * by, this.width), y: within(from.y + down * by, this.height) };
    this.on.point(this.cursor);
  }

  press() {
    this.cursor ??= { x: this.width / 2, y: this.height / 2 };
    this.on.down(this.cursor);
    this.on.up();
  }

  pixelAt({ clientX, clientY }) {
    const box = this.frame.canvas.getBoundingClientRect();
    const along = (part, most) => Math.min(most - 0.001, Math.max(0, part * most));
    return { x: along((clientX - box.left) / box.width, this.width), y: along((clientY - box.top) / box.height, this.height) };
  }
}
