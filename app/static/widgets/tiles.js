// The gallery: small pictures with a map over each, one of which is on the stage.

import { find } from "../dom.js";
import { html, render } from "../vendor/lit-html.js";
import { PatchCanvas } from "./paint.js";

/** @typedef {{ key: string, label: string, color?: string }} Show */

const STEPS = /** @type {Record<string, [number, number]>} */ ({
  ArrowLeft: [-1, 0],
  ArrowUp: [0, -1],
  ArrowRight: [1, 0],
  ArrowDown: [0, 1],
});

/** Colours between the values that they stand for, written by `tellScale`. */
const SCALE = html`<span></span><i></i><span></span>`;

/** The same below a stage. @param {Element} stage */
export function scaleBelow(stage) {
  const scale = Object.assign(document.createElement("p"), { className: "lab-scale", hidden: true });
  render(SCALE, scale);
  stage.after(scale);
  return scale;
}

/** A small picture with an empty map over it, and its scale. @param {string} picture @param {object | string} [more] */
export function tilePicture(picture, more = "") {
  return html`<span class="lab-tile-picture"><img src=${picture} alt="" draggable="false" /><canvas></canvas>${more}</span
    ><span class="lab-scale" aria-hidden="true">${SCALE}</span>`;
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
    render(
      shows.map((show) => this.tile(show, picture)),
      this.element,
    );
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
    return html`<button type="button" class="lab-tile" role="radio" aria-checked="false" data-key=${key}
      @click=${() => this.onChoose(key)} @keydown=${(event) => this.key(event, key)}>
      ${tilePicture(picture)}
      <span class="lab-tile-caption"><span class="lab-tile-name" style=${`--head: ${color}`}>${label}</span><span class="lab-tile-note"></span></span>
    </button>`;
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
