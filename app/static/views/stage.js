// An image with everything drawn over it, and the ways to point at a place: pointer, touch and keys.
//
// Places are shares of width and height. If `paints`, dragging draws strokes; else a finger scrolls the page, and a click
// or tap counts where it falls.

import { el, svg } from "./dom.js";
import { PatchCanvas } from "./paint.js";

/**
 * @typedef {object} StageEvents
 * @property {(place: Place) => void} [point]  by the pointer or the arrow keys; null: the pointer has left
 * @property {(place: Place, alt: boolean) => void} [press]  by a click, a tap or Enter
 * @property {(from: Place, to: Place) => void} [stroke]  the first has twice the same place
 * @property {() => void} [lift]  end of a stroke
 * @property {(event: KeyboardEvent) => boolean} [key]  returns whether the key has a meaning
 */

export const STAGE_PIXELS = 400_000; // of a map on the stage: more are not visible
export const ARROWS = { ArrowUp: [0, -1], ArrowDown: [0, 1], ArrowLeft: [-1, 0], ArrowRight: [1, 0] };

export class Stage {
  paints = false;
  open = false;
  step = { x: 1 / 16, y: 1 / 16 }; // of an arrow key
  cursor = null; // of pointer or arrow keys
  last = null; // of a stroke; null between strokes
  frame = 0;

  /** @param {string} label @param {string} keys  help @param {StageEvents} on @param {"img" | "canvas"} [kind] */
  constructor(label, keys, on, kind = "img") {
    this.on = on;
    this.photo = el(kind, { class: "lab-photo", alt: "", draggable: "false" });
    this.canvas = new PatchCanvas(el("canvas", { class: "lab-map" }));
    this.overlay = el("canvas", { class: "lab-paint" });
    this.ink = svg("svg", { preserveAspectRatio: "none" });
    this.markers = el("div", { class: "lab-markers" });
    this.ring = el("span", { class: "lab-ring", hidden: true });
    const layers = [this.canvas.canvas, this.overlay, this.ink, this.markers, this.ring];
    for (const layer of layers) layer.setAttribute("aria-hidden", "true");
    this.sheet = el("div", { class: "lab-sheet" }, this.photo, ...layers);
    const role = { tabindex: 0, role: "application", "aria-label": label, "aria-description": keys };
    this.element = el("div", { class: "lab-stage", ...role }, this.sheet);
    this.listen();
  }

  /** Show another image. @param {{ image?: string, name: string } & Size & Grid} shown */
  show({ image, name, width, height, rows, columns }) {
    this.open = true;
    this.step = { x: 1 / columns, y: 1 / rows };
    this.cursor = null;
    if (image) Object.assign(this.photo, { src: image, alt: `Image ${name}` });
    else Object.assign(this.photo, { width, height });
    this.element.style.setProperty("--ratio", String(width / height));
    this.canvas.resize(rows, columns);
  }

  /** Draw outlines on a grid, and the frame of a patch. @param {{ path: string, color: string }[]} outlines */
  draw(outlines, { rows, columns } = { rows: 1, columns: 1 }, patch = null, color = "#fff") {
    const box = (attributes) => svg("rect", { x: patch.column, y: patch.row, width: 1, height: 1, ...attributes });
    this.ink.setAttribute("viewBox", `0 0 ${columns} ${rows}`);
    this.ink.replaceChildren(
      ...outlines.flatMap(({ path, color: stroke }) => [
        svg("path", { d: path, class: "lab-edge" }),
        svg("path", { d: path, stroke }),
      ]),
      ...(patch ? [box({ class: "lab-edge" }), box({ stroke: color })] : []),
    );
  }

  /** Draw numbered markers. @param {(Place & { color: string, number?: number | string })[]} marks */
  mark(marks) {
    this.markers.replaceChildren(
      ...marks.map(({ x, y, color, number }, index) => {
        const style = `--pin: ${color}; left: ${100 * x}%; top: ${100 * y}%`;
        return el("span", { class: "lab-marker", style }, String(number ?? index + 1));
      }),
    );
  }

  /** Draw a circle around a place; null hides it. @param {Place} place */
  circle(place, width = "14px") {
    this.ring.hidden = !place;
    if (place) Object.assign(this.ring.style, { left: `${100 * place.x}%`, top: `${100 * place.y}%`, width });
  }

  listen() {
    const { element } = this;
    element.addEventListener("pointermove", (event) => this.move(event));
    element.addEventListener("pointerdown", (event) => {
      if (this.paints && this.open && event.button === 0) {
        element.setPointerCapture(event.pointerId);
        this.stroke(this.placeAt(event));
      } else this.move(event); // a tap has no move
    });
    for (const name of ["pointerup", "pointercancel"]) element.addEventListener(name, () => this.lift());
    for (const name of ["pointerleave", "blur"]) element.addEventListener(name, () => this.leave());
    element.addEventListener("click", (event) => {
      if (this.open && !this.paints) this.press(this.placeAt(event), event.altKey);
    });
    element.addEventListener("keydown", (event) => {
      if (this.open && this.key(event)) event.preventDefault();
    });
  }

  move(event) {
    if (!this.open) return;
    const place = this.placeAt(event);
    if (this.last) return this.stroke(place);
    cancelAnimationFrame(this.frame); // only the newest place of a frame is drawn
    this.frame = requestAnimationFrame(() => this.point(place));
  }

  stroke(place) {
    this.cursor = place;
    this.on.stroke?.(this.last ?? place, place);
    this.last = place;
  }

  lift() {
    if (!this.last) return;
    this.last = null;
    this.on.lift?.();
  }

  leave() {
    if (this.last) return;
    cancelAnimationFrame(this.frame);
    this.point(null);
  }

  point(place) {
    this.cursor = place;
    this.on.point?.(place);
  }

  press(place, alt = false) {
    cancelAnimationFrame(this.frame);
    this.cursor = place;
    this.on.press?.(place, alt);
  }

  key(event) {
    const { key, ctrlKey, metaKey, altKey, shiftKey } = event;
    const here = this.cursor ?? { x: 0.5, y: 0.5 };
    if (altKey) return false;
    if (this.on.key?.(event)) return true;
    if (ctrlKey || metaKey) return false;
    if (ARROWS[key]) this.walk(here, ARROWS[key], shiftKey ? 4 : 1);
    else if (key !== "Enter" && key !== " ") return false;
    else if (this.paints) {
      this.stroke(here);
      this.lift();
    } else this.press(here);
    return true;
  }

  walk(from, [right, down], times) {
    const within = (value, step) => Math.min(1 - step / 2, Math.max(step / 2, value));
    const { x, y } = this.step;
    this.point({ x: within(from.x + right * times * x, x), y: within(from.y + down * times * y, y) });
  }

  /** @param {MouseEvent} event @returns {Place} */
  placeAt({ clientX, clientY }) {
    const box = this.sheet.getBoundingClientRect();
    const share = (part) => Math.min(1 - 1e-6, Math.max(0, part));
    return { x: share((clientX - box.left) / box.width), y: share((clientY - box.top) / box.height) };
  }
}
