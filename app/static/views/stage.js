// An image with everything drawn over it, and the ways to point at a place: pointer, touch and keys.
//
// Places are shares of width and height. If `paints`, dragging draws strokes; else a finger scrolls the page, and a click
// or tap counts where it falls. Wheel, pinch, double click and the keys + and − zoom; dragging then pans.

import { button, el, svg } from "./dom.js";
import { ARROWS, followPointers } from "./gestures.js";
import { PatchCanvas } from "./paint.js";

export const STAGE_PIXELS = 400_000; // of a map on the stage: more are not visible
const WIDE = 2.2; // ratio from which on two images are shown one above the other
const MAX_ZOOM = 16;
const ZOOM_STEP = 2; // of a double click or key
const ZOOMS = { "+": ZOOM_STEP, "=": ZOOM_STEP, "-": 1 / ZOOM_STEP, 0: 0 };

export class Stage {
  paints = false;
  open = false;
  step = { x: 1 / 16, y: 1 / 16 }; // of an arrow key
  cursor = null; // of pointer or arrow keys
  last = null; // of a stroke; null between strokes
  frame = 0;
  /** Share of the image at the left and the top edge of the stage, and the magnification. */
  window = { x: 0, y: 0, zoom: 1 };

  /** @param {string} label @param {string} keys  help @param {StageEvents} on @param {"img" | "canvas"} [kind] */
  constructor(label, keys, on, kind = "img") {
    this.on = on;
    this.image = el(kind, { class: "lab-image", alt: "", draggable: "false" });
    this.canvas = new PatchCanvas(el("canvas", { class: "lab-map" }));
    this.overlay = el("canvas", { class: "lab-paint" });
    this.ink = svg("svg", { preserveAspectRatio: "none" });
    this.markers = el("div", { class: "lab-markers" });
    this.ring = el("span", { class: "lab-ring", hidden: true });
    this.walker = el("span", { class: "lab-marker lab-walker", hidden: true });
    const layers = [this.canvas.canvas, this.overlay, this.ink, this.markers, this.ring, this.walker];
    for (const layer of layers) layer.setAttribute("aria-hidden", "true");
    this.sheet = el("div", { class: "lab-sheet" }, this.image, ...layers);
    const role = { tabindex: 0, role: "application", "aria-label": label, "aria-description": keys };
    const reset = { class: "lab-reset", "aria-label": "Show the whole image", hidden: true };
    this.reset = button("", () => this.zoomAt(0), reset);
    this.element = el("div", { class: "lab-stage", ...role }, this.sheet, this.reset);
    this.cell = el("div", { class: "lab-cell" }, this.element);
    this.listen();
  }

  /** Show another image. @param {{ image?: string, name: string } & Size & Grid} shown */
  show({ image, name, width, height, rows, columns }) {
    this.open = true;
    this.element.toggleAttribute("data-plain", false);
    this.step = { x: 1 / columns, y: 1 / rows };
    this.cursor = null;
    if (!image) Object.assign(this.image, { width, height });
    else if (this.image.getAttribute("src") !== image) {
      Object.assign(this.image, { src: image, alt: `Image ${name}` });
      this.zoomAt(0);
    }
    this.cell.style.setProperty("--ratio", String(width / height));
    this.cell.toggleAttribute("data-wide", width > WIDE * height);
    this.canvas.resize(rows, columns);
  }

  /** Show an image without anything over it. @param {{ image: string, name: string } & Size} shown */
  preview(shown) {
    this.show({ ...shown, rows: 1, columns: 1 });
    this.open = false;
    this.element.toggleAttribute("data-plain", true);
    this.canvas.clear();
    this.draw([]);
    this.mark([]);
  }

  /** The place in the middle of the stage. @returns {Place} */
  get middle() {
    const { x, y, zoom } = this.window;
    return { x: x + 0.5 / zoom, y: y + 0.5 / zoom };
  }

  /** @param {{ clientX: number, clientY: number }} event @returns {Place} */
  placeAt({ clientX, clientY }) {
    const box = this.sheet.getBoundingClientRect();
    const share = (part) => Math.min(1 - 1e-6, Math.max(0, part));
    return { x: share((clientX - box.left) / box.width), y: share((clientY - box.top) / box.height) };
  }

  /** Draw outlines on a grid, and the frame of a patch. @param {{ path: string, color: string }[]} outlines */
  draw(outlines, { rows, columns } = { rows: 1, columns: 1 }, patch = null, color = "#fff") {
    const box = (attributes) => svg("rect", { x: patch.column, y: patch.row, width: 1, height: 1, ...attributes });
    this.ink.setAttribute("viewBox", `0 0 ${columns} ${rows}`);
    const edges = outlines.flatMap(({ path: d, color: stroke }) => [svg("path", { d, class: "lab-edge" }), svg("path", { d, stroke })]); // prettier-ignore
    this.ink.replaceChildren(...edges, ...(patch ? [box({ class: "lab-edge" }), box({ stroke: color })] : []));
  }

  /** Draw numbered markers. @param {(Place & { color: string, number?: number | string })[]} marks */
  mark(marks) {
    const marker = ({ x, y, color, number = undefined }, index) =>
      el("span", { class: "lab-marker", style: `--pin: ${color}; left: ${100 * x}%; top: ${100 * y}%` }, String(number ?? index + 1)); // prettier-ignore
    this.markers.replaceChildren(...marks.map(marker));
  }

  /** Move the pin of the first view; null hides it. @param {Place} place */
  pin(place) {
    this.walker.hidden = !place;
    if (place) Object.assign(this.walker.style, { left: `${100 * place.x}%`, top: `${100 * place.y}%` });
  }

  /** Draw a circle around a place; null hides it. @param {Place} place */
  circle(place, width = "calc(14px / var(--zoom, 1))") {
    this.ring.hidden = !place;
    if (place) Object.assign(this.ring.style, { left: `${100 * place.x}%`, top: `${100 * place.y}%`, width });
  }

  /** Show a part of the image. @param {{ x: number, y: number, zoom: number }} part  as `window` */
  look({ x, y, zoom }) {
    const within = (share) => Math.min(1 - 1 / zoom, Math.max(0, share));
    this.window = { x: within(x), y: within(y), zoom };
    const shift = [this.window.x, this.window.y].map((share) => `${-100 * share * zoom}%`);
    this.sheet.style.transform = `translate(${shift}) scale(${zoom})`;
    this.element.style.setProperty("--zoom", String(zoom));
    this.element.toggleAttribute("data-zoomed", zoom > 1);
    Object.assign(this.reset, { textContent: `${zoom.toFixed(1)} ×`, hidden: zoom === 1 });
  }

  listen() {
    const { element } = this;
    followPointers(element, {
      point: (event) => this.follow(event),
      press: (event) => this.open && !this.paints && event.detail < 2 && this.press(this.placeAt(event), event.altKey),
      pans: (two) => this.open && !this.last && (two || (this.window.zoom > 1 && !this.paints)),
      zoom: (factor, at) => this.open && this.zoomAt(factor, at),
      pan: (right, down) => {
        const { width, height } = this.sheet.getBoundingClientRect(); // of the whole image
        const { x, y, zoom } = this.window;
        this.look({ zoom, x: x - right / width, y: y - down / height });
      },
    });
    for (const name of ["pointerup", "pointercancel"]) element.addEventListener(name, () => this.lift());
    element.addEventListener("dblclick", (event) => {
      if (!this.open || this.paints || event.target === this.reset) return;
      this.on.retract?.();
      this.zoomAt(ZOOM_STEP, event);
    });
    element.addEventListener("keydown", (event) => {
      if (this.open && this.key(event)) event.preventDefault();
    });
  }

  /** Follow a pointer that does not pan. @param {PointerEvent} event  null: it has left */
  follow(event) {
    if (!event) {
      if (this.last) return;
      cancelAnimationFrame(this.frame);
      return this.point(null);
    }
    if (!this.open) return;
    const place = this.placeAt(event);
    const starts = this.paints && event.type === "pointerdown" && event.button === 0 && event.isPrimary;
    if (this.last || starts) return this.stroke(place);
    cancelAnimationFrame(this.frame); // only the newest place of a frame is drawn
    this.frame = requestAnimationFrame(() => this.point(place));
  }

  /**
   * Zoom by a factor around a point of the screen or a place, by default the center; 0 shows the whole image. Returns
   * whether anything changes.
   * @param {number} factor @param {{ clientX: number, clientY: number } | Place} [point]
   */
  zoomAt(factor, point = this.middle) {
    const { x, y, zoom } = this.window;
    const next = Math.min(MAX_ZOOM, Math.max(1, zoom * factor));
    const at = "clientX" in point ? this.placeAt(point) : point;
    this.look({ zoom: next, x: at.x - ((at.x - x) * zoom) / next, y: at.y - ((at.y - y) * zoom) / next });
    return next !== zoom;
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
    else if (key in ZOOMS) this.zoomAt(ZOOMS[key], this.cursor ?? this.middle);
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
    const place = { x: within(from.x + right * times * x, x), y: within(from.y + down * times * y, y) };
    const { zoom, ...start } = this.window;
    const side = (axis) => Math.min(place[axis], Math.max(start[axis], place[axis] - 1 / zoom));
    if (zoom > 1) this.look({ zoom, x: side("x"), y: side("y") });
    this.point(place);
  }
}
