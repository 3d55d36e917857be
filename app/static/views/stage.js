// The picture with everything drawn over it, and the ways to point at one of its places: pointer, touch and keys.
//
// Places are shares of width and height. Where `paints` says so, pressing and dragging draws strokes; else the page
// scrolls under a finger, and a click or a tap counts where it falls. Two fingers, the wheel with Control, plus and minus
// come nearer; then a drag moves the picture.

import { el, find, svg } from "./dom.js";
import { Gestures, zoomed } from "./gestures.js";
import { PatchCanvas } from "./paint.js";

/**
 * @typedef {object} StageEvents
 * @property {(place: Place) => void} [point]  the pointer is there, or the arrow keys
 * @property {() => void} [leave]
 * @property {(place: Place, other: boolean) => void} [press]  clicked, tapped, or Enter; other: with the Alt key
 * @property {(from: Place, to: Place) => void} [stroke]  while painting; first with twice the same place
 * @property {() => void} [lift]  the stroke has ended
 * @property {() => void} [rest]  Escape
 * @property {() => void} [remove]  Delete or Backspace
 * @property {(again: boolean) => void} [undo]  Control Z; again: with Shift
 * @property {(event: KeyboardEvent) => boolean} [key]  any other key; whether it meant something
 * @property {(view: View) => void} [look]  another part of the picture is seen, in shares of the stage
 */

const NEAREST = 12; // times larger than the whole picture
const CLOSER = 1.5; // times, of a key or a button
const AIR = 0.1; // of the stage, around where the arrow keys stand
const ZOOMS = /** @type {Record<string, number>} */ ({ "+": CLOSER, "=": CLOSER, "-": 1 / CLOSER, 0: 0 });

export const STEPS = /** @type {Record<string, [number, number]>} */ ({
  ArrowUp: [0, -1],
  ArrowDown: [0, 1],
  ArrowLeft: [-1, 0],
  ArrowRight: [1, 0],
});

export class Stage {
  /** @param {HTMLElement} element  empty @param {StageEvents} on @param {{ film?: boolean }} [options]  film: frames, not one picture */
  constructor(element, on, { film = false } = {}) {
    this.element = element;
    this.on = on;
    this.paints = false;
    this.open = false;
    this.step = { x: 1 / 16, y: 1 / 16 }; // that an arrow key goes
    /** @type {Place | null} */
    this.cursor = null; // under the pointer, or where the arrow keys stand
    /** @type {Place | null} */
    this.last = null; // of a stroke; null between strokes
    this.frame = 0;
    this.view = { scale: 1, left: 0, top: 0 };
    const hidden = { "aria-hidden": "true" };
    const button = (/** @type {string} */ label, /** @type {string} */ sign, /** @type {number} */ factor) =>
      el("button", { type: "button", "aria-label": label, onclick: () => this.zoom(factor) }, sign);
    element.replaceChildren(
      el(
        "div",
        { class: "lab-sheet" },
        film
          ? el("canvas", { class: "lab-photo", ...hidden })
          : el("img", { class: "lab-photo", alt: "", draggable: "false" }),
        el("canvas", { class: "lab-map", ...hidden }),
        el("canvas", { class: "lab-paint", ...hidden }),
        svg("svg", { class: "lab-ink", preserveAspectRatio: "none", ...hidden }),
        svg("svg", { class: "lab-drawn", preserveAspectRatio: "none", ...hidden }),
        el("div", { class: "lab-markers", ...hidden }),
        el("span", { class: "lab-ring", hidden: true }),
        el("span", { class: "lab-cross", hidden: true }),
      ),
      el(
        "div",
        { class: "lab-zoom", role: "group", "aria-label": "Zoom", onpointerdown: own, onclick: own, onkeydown: own },
        button("Zoom in", "+", CLOSER),
        button("Zoom out", "−", 1 / CLOSER),
        button("Whole image", "⤢", 0),
      ),
    );
    this.sheet = find(element, ".lab-sheet");
    this.photo = find(element, ".lab-photo");
    this.canvas = new PatchCanvas(find(element, ".lab-map"));
    this.overlay = find(element, ".lab-paint");
    this.ink = find(element, ".lab-ink");
    this.drawn = find(element, ".lab-drawn");
    this.markers = find(element, ".lab-markers");
    this.ring = find(element, ".lab-ring");
    this.crossHair = find(element, ".lab-cross");
    this.gestures = new Gestures(element, {
      zoom: (factor, { x, y }) =>
        !this.paints && this.zoom(factor, { x: x / element.clientWidth, y: y / element.clientHeight }),
      pan: (right, down) => this.pan(right / element.clientWidth, down / element.clientHeight),
      wheels: ({ ctrlKey }) => ctrlKey || this.view.scale > 1,
      drags: () => this.view.scale > 1 && !this.paints,
    });
    this.listen();
  }

  /**
   * Another picture: its address, its name for people, its size in pixels and its patch grid.
   * @param {{ picture?: string, name: string, width: number, height: number, rows: number, columns: number }} shown
   */
  show({ picture, name, width, height, rows, columns }) {
    this.open = true;
    this.step = { x: 1 / columns, y: 1 / rows };
    this.cursor = null;
    if (picture) Object.assign(this.photo, { src: picture, alt: `Image ${name}` });
    else Object.assign(this.photo, { width, height });
    this.element.style.setProperty("--ratio", String(width / height));
    this.canvas.resize(rows, columns);
    this.ink.setAttribute("viewBox", `0 0 ${columns} ${rows}`);
    this.look({ scale: 1, left: 0, top: 0 });
  }

  // ---- zooming

  /** Come nearer by a factor, at the cursor or the middle; 0 shows all. @param {number} factor @param {{ x: number, y: number }} [at] */
  zoom(factor, at) {
    const { left, top, scale } = this.view;
    const { x, y } = this.cursor ?? { x: 0.5, y: 0.5 };
    this.look(zoomed(this.view, factor, at ?? { x: left + x * scale, y: top + y * scale }, 1, NEAREST));
    this.on.look?.(this.view);
  }

  /** Move the picture. @param {number} right @param {number} down  shares of the stage */
  pan(right, down) {
    this.look({ ...this.view, left: this.view.left + right, top: this.view.top + down });
    this.on.look?.(this.view);
  }

  /** See a part of the picture; the stage stays filled. @param {View} view  in shares of the stage */
  look({ scale, left, top }) {
    const [x, y] = [left, top].map((corner) => Math.min(0, Math.max(1 - scale, corner)));
    this.view = { scale, left: x, top: y };
    this.element.toggleAttribute("data-near", scale > 1);
    Object.assign(this.sheet.style, {
      left: `${100 * x}%`,
      top: `${100 * y}%`,
      width: `${100 * scale}%`,
      height: `${100 * scale}%`,
    });
  }

  /**
   * Outlines in units of patches, and the patch that is asked about, or null for [CLS].
   * @param {{ path: string, color: string }[]} outlines @param {Patch | null} [patch] @param {string} [color]
   */
  draw(outlines, patch = null, color = "#fff") {
    const box = (/** @type {string} */ kind, stroke = "none") =>
      patch ? [svg("rect", { x: patch.column, y: patch.row, width: 1, height: 1, class: kind, stroke })] : [];
    this.ink.replaceChildren(
      ...outlines.flatMap(({ path, color: stroke }) => [
        svg("path", { d: path, class: "lab-outline-edge" }),
        svg("path", { d: path, class: "lab-outline", stroke }),
      ]),
      ...box("lab-patch-edge"),
      ...box("lab-patch", color),
    );
  }

  /** Numbered markers. @param {(Place & { color: string, number?: number | string })[]} marks */
  mark(marks) {
    this.markers.replaceChildren(
      ...marks.map(({ x, y, color, number }, index) => {
        const place = `--pin: ${color}; left: ${100 * x}%; top: ${100 * y}%`;
        return el("span", { class: "lab-marker", style: place }, String(number ?? index + 1));
      }),
    );
  }

  /** The brush at the cursor, its diameter as a share of the width; none for 0. @param {number} share */
  ringAt(share) {
    this.ring.hidden = !this.cursor || !share;
    if (!this.cursor || !share) return;
    const { x, y } = this.cursor;
    Object.assign(this.ring.style, { left: `${100 * x}%`, top: `${100 * y}%`, width: `${100 * share}%` });
  }

  /** A cross-hair where the pointer over another stage is; none for null. @param {Place | null} place */
  cross(place) {
    this.crossHair.hidden = !place;
    if (place) Object.assign(this.crossHair.style, { left: `${100 * place.x}%`, top: `${100 * place.y}%` });
  }

  // ---- pointing

  listen() {
    const { element } = this;
    element.addEventListener("pointermove", (event) => this.move(event));
    element.addEventListener("pointerdown", (event) => {
      if (this.paints && this.open && event.button === 0) {
        element.setPointerCapture(event.pointerId);
        this.stroke(this.placeAt(event));
      } else this.move(event); // a tap moves nothing
    });
    for (const name of ["pointerup", "pointercancel"]) element.addEventListener(name, () => this.lift());
    for (const name of ["pointerleave", "blur"]) element.addEventListener(name, () => this.leave());
    element.addEventListener("click", (event) => {
      // A click counts where it falls, not where the last drawn frame was; a drag is none.
      if (this.open && !this.paints && !this.gestures.moved) this.press(this.placeAt(event), event.altKey);
    });
    element.addEventListener("keydown", (event) => {
      if (this.open && this.key(event)) event.preventDefault();
    });
  }

  /** @param {PointerEvent} event */
  move(event) {
    if (!this.open) return;
    const place = this.placeAt(event);
    if (this.last) return this.stroke(place);
    if (this.gestures.take(event)) return;
    cancelAnimationFrame(this.frame); // one map per frame: the newest
    this.frame = requestAnimationFrame(() => this.point(place));
  }

  /** @param {Place} place */
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
    this.cursor = null;
    this.on.leave?.();
  }

  /** @param {Place} place */
  point(place) {
    this.cursor = place;
    this.on.point?.(place);
  }

  /** @param {Place} place @param {boolean} [other] */
  press(place, other = false) {
    cancelAnimationFrame(this.frame);
    this.cursor = place;
    this.on.press?.(place, other);
  }

  /** Whether the key meant something here. @param {KeyboardEvent} event */
  key(event) {
    const { key, ctrlKey, metaKey, altKey, shiftKey } = event;
    const { rest, remove, undo } = this.on;
    const here = this.cursor ?? { x: 0.5, y: 0.5 };
    if (altKey) return false;
    if (ctrlKey || metaKey) {
      if (!undo || key.toLowerCase() !== "z") return false;
      undo(shiftKey);
    } else if (STEPS[key]) this.walk(here, STEPS[key], shiftKey ? 4 : 1);
    else if (rest && key === "Escape") rest();
    else if (remove && (key === "Delete" || key === "Backspace")) remove();
    else if (this.on.key?.(event)) return true;
    else if (ZOOMS[key] !== undefined) this.zoom(ZOOMS[key]);
    else if (key !== "Enter" && key !== " ") return false;
    else if (this.paints) {
      this.stroke(here);
      this.lift();
    } else this.press(here);
    return true;
  }

  /** @param {Place} from @param {[number, number]} direction @param {number} times */
  walk(from, [right, down], times) {
    const { x, y } = this.step;
    const within = (/** @type {number} */ value, /** @type {number} */ step) =>
      Math.min(1 - step / 2, Math.max(step / 2, value));
    const place = { x: within(from.x + right * times * x, x), y: within(from.y + down * times * y, y) };
    const { scale, left, top } = this.view;
    const hidden = (/** @type {number} */ seen) => Math.min(0, 1 - AIR - seen) + Math.max(0, AIR - seen);
    if (scale > 1) this.pan(hidden(left + place.x * scale), hidden(top + place.y * scale)); // the cursor stays in sight
    this.point(place);
  }

  /** @param {MouseEvent} event @returns {Place} */
  placeAt({ clientX, clientY }) {
    const box = this.sheet.getBoundingClientRect();
    const share = (/** @type {number} */ part) => Math.min(1 - 1e-6, Math.max(0, part));
    return { x: share((clientX - box.left) / box.width), y: share((clientY - box.top) / box.height) };
  }
}

/** A button on the stage is no place of the picture. @param {Event} event */
function own(event) {
  event.stopPropagation();
}
