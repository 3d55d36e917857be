// The gallery: small pictures with a map over each, one of which is on the stage.

import { el, find } from "./dom.js";
import { PatchCanvas } from "./paint.js";

/** @typedef {{ key: string, label: string, color?: string }} Show */

const STEPS = /** @type {Record<string, [number, number]>} */ ({
  ArrowLeft: [-1, 0],
  ArrowUp: [0, -1],
  ArrowRight: [1, 0],
  ArrowDown: [0, 1],
});

/** Colors between the values that they stand for, written by `tellScale`. */
function scale() {
  return [el("span"), el("i"), el("span")];
}

/** The same below a stage. @param {Element} stage */
export function scaleBelow(stage) {
  const below = el("p", { class: "lab-scale", hidden: true }, ...scale());
  stage.after(below);
  return below;
}

/** A small image with an empty map over it, and its scale. @param {string} picture @param {Node[]} more */
export function tilePicture(picture, ...more) {
  const image = el("img", { src: picture, alt: "", draggable: "false" });
  return [
    el("span", { class: "lab-tile-picture" }, image, el("canvas"), ...more),
    el("span", { class: "lab-scale", "aria-hidden": "true" }, ...scale()),
  ];
}

/** Write what the colours of a map stand for; nothing where they stand for no values. @param {Element} scale @param {[string, string] | null} ends */
export function tellScale(scale, ends) {
  /** @type {HTMLElement} */ (scale).hidden = !ends;
  if (ends) [scale.children[0].textContent, scale.children[2].textContent] = ends;
}

export class Tiles {
  /** @type {Map<string, { button: HTMLButtonElement, canvas: PatchCanvas, note: HTMLElement, scale: HTMLElement }>} */
  tiles = new Map();
  columns = 1; // in which arrow keys go up and down

  /** @param {HTMLElement} element  a radio group @param {(key: string) => void} onChoose */
  constructor(element, onChoose) {
    this.element = element;
    this.onChoose = onChoose;
  }

  /**
   * One tile for each of `shows` over the picture of an encoding.
   * @param {{ picture: string, width: number, height: number, rows: number, columns: number }} encoding @param {Show[]} shows
   */
  open({ picture, width, height, rows, columns }, shows) {
    this.element.style.setProperty("--ratio", String(width / height));
    this.element.replaceChildren(...shows.map((show) => this.tile(show, picture)));
    const buttons = [...this.element.querySelectorAll("button")];
    this.tiles = new Map(
      buttons.map((button, index) => {
        const canvas = new PatchCanvas(find(button, "canvas"));
        canvas.resize(rows, columns);
        const [note, scale] = [find(button, ".lab-tile-note"), find(button, ".lab-scale")];
        tellScale(scale, null);
        return [shows[index].key, { button, canvas, note, scale }];
      }),
    );
  }

  /** @param {Show} show @param {string} picture */
  tile({ key, label, color = "transparent" }, picture) {
    return el(
      "button",
      {
        type: "button",
        class: "lab-tile",
        role: "radio",
        "aria-checked": "false",
        "data-key": key,
        onclick: () => this.onChoose(key),
        onkeydown: (/** @type {KeyboardEvent} */ event) => this.key(event, key),
      },
      ...tilePicture(picture),
      el(
        "span",
        { class: "lab-tile-caption" },
        el("span", { class: "lab-tile-name", style: `--head: ${color}` }, label),
        el("span", { class: "lab-tile-note" }),
      ),
    );
  }

  /** @param {string} chosen */
  choose(chosen) {
    for (const [key, { button }] of this.tiles) {
      button.setAttribute("aria-checked", String(key === chosen));
      button.tabIndex = key === chosen ? 0 : -1;
    }
  }

  /** @param {KeyboardEvent} event @param {string} from */
  key(event, from) {
    const [across, down] = STEPS[event.key] ?? [0, 0];
    const by = across + down * this.columns;
    if (!by) return;
    event.preventDefault();
    const keys = [...this.tiles.keys()];
    const key = keys[(keys.indexOf(from) + by + keys.length) % keys.length];
    this.tiles.get(key)?.button.focus();
    this.onChoose(key);
  }
}
