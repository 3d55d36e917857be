// A radio group of small images with a map over each.

import { el, find } from "./dom.js";
import { PatchCanvas } from "./paint.js";
import { ARROWS } from "./stage.js";

/** @typedef {{ key: string, label: string, color?: string, marker?: number }} Tile */

/** Create an empty color bar. @param {Record<string, any>} [attributes] */
export function colorBar(attributes) {
  return el("span", { class: "lab-scale", hidden: true, ...attributes }, el("span"), el("i"), el("span"));
}

/** Write the values at both ends of a color bar; null hides it. @param {Element} bar @param {string[]} ends */
export function writeScale(bar, ends) {
  bar.toggleAttribute("hidden", !ends);
  if (ends) [bar.children[0].textContent, bar.children[2].textContent] = ends;
}

export class Tiles {
  tiles = new Map();
  columns = 1; // for the arrow keys up and down

  /** @param {string} label @param {(key: string) => void} choose @param {string} [kind]  class */
  constructor(label, choose, kind = "") {
    this.choose = choose;
    this.element = el("div", { class: `lab-tiles ${kind}`, role: "radiogroup", "aria-label": label });
  }

  /** Show one tile per entry. @param {{ picture: string } & Size & Grid} encoding @param {Tile[]} entries */
  open({ picture, width, height, rows, columns }, entries) {
    const focused = this.element.contains(document.activeElement);
    this.element.style.setProperty("--ratio", String(width / height));
    this.tiles = new Map(
      entries.map(({ key, label, color, marker }) => {
        const canvas = el("canvas");
        const image = [el("img", { src: picture, alt: "", draggable: "false" }), canvas];
        const badge = marker !== undefined && el("span", { class: "lab-marker" }, String(marker));
        const name = el("span", { class: color ? "lab-swatch" : "" }, label);
        const [note, scale] = [el("span", { class: "lab-note" }), colorBar({ "aria-hidden": "true" })];
        const button = el(
          "button",
          {
            type: "button",
            class: "lab-tile",
            role: "radio",
            "data-key": key,
            style: color && `--pin: ${color}`,
            onclick: () => this.choose(key),
            onkeydown: (event) => this.key(event, key),
          },
          el("span", { class: "lab-tile-picture" }, ...image, badge),
          scale,
          el("span", { class: "lab-caption" }, name, note),
        );
        const painted = new PatchCanvas(canvas);
        painted.resize(rows, columns);
        return [key, { button, canvas: painted, note, scale }];
      }),
    );
    this.element.replaceChildren(...[...this.tiles.values()].map(({ button }) => button));
    this.refocus = focused;
  }

  refocus = false; // the focused tile was replaced

  /** Mark the chosen tile. @param {string} chosen */
  mark(chosen) {
    for (const [key, { button }] of this.tiles) {
      button.setAttribute("aria-checked", String(key === chosen));
      button.tabIndex = key === chosen ? 0 : -1;
      if (key === chosen && this.refocus) button.focus();
    }
    this.refocus = false;
  }

  key(event, from) {
    const [across, down] = ARROWS[event.key] ?? [0, 0];
    const by = across + down * this.columns;
    if (!by) return;
    event.preventDefault();
    const keys = [...this.tiles.keys()];
    const key = keys[(keys.indexOf(from) + by + keys.length) % keys.length];
    this.tiles.get(key).button.focus();
    this.choose(key);
  }
}
