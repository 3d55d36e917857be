// The gallery: small pictures with a map over each, one of which is on the stage.

import { find } from "../dom.js";
import { html, render } from "../vendor/lit-html.js";
import { PatchCanvas } from "./paint.js";

/** @typedef {{ key: string, label: string, color?: string }} Show */

const STEPS = /** @type {Record<string, number>} */ ({ ArrowLeft: -1, ArrowUp: -1, ArrowRight: 1, ArrowDown: 1 });

/** A small picture with an empty map over it. @param {string} picture @param {object | string} [more] */
export function tilePicture(picture, more = "") {
  return html`<span class="lab-tile-picture"><img src=${picture} alt="" draggable="false" /><canvas></canvas>${more}</span>`;
}

export class Tiles {
  /** @param {HTMLElement} element  a radio group @param {(key: string) => void} onChoose */
  constructor(element, onChoose) {
    this.element = element;
    this.onChoose = onChoose;
    /** @type {Map<string, { button: HTMLButtonElement, canvas: PatchCanvas, note: HTMLElement }>} */
    this.tiles = new Map();
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
        const note = find(button, ".lab-tile-note");
        return [shows[index].key, { button, canvas, note }];
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
    const by = STEPS[event.key];
    if (!by) return;
    event.preventDefault();
    const keys = [...this.tiles.keys()];
    const key = keys[(keys.indexOf(from) + by + keys.length) % keys.length];
    this.tiles.get(key)?.button.focus();
    this.onChoose(key);
  }
}
