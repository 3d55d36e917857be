// A radio group of small images with a map over each.

import { el } from "./dom.js";
import { PatchCanvas } from "./paint.js";

/** @typedef {{ key: string, label: string, color?: string, marker?: number }} Tile */

let groups = 0;

/** Create a color bar. */
export function colorBar() {
  return el("span", { class: "lab-chip lab-scale", hidden: true }, "low", el("i"), "high");
}

export class Tiles {
  tiles = new Map();
  opened = "";
  marked = "";
  name = `tiles-${(groups += 1)}`;

  /** @param {string} label @param {(key: string) => void} choose @param {string} [kind]  class */
  constructor(label, choose, kind = "") {
    this.choose = choose;
    this.element = el("div", { class: `lab-tiles ${kind}`, role: "radiogroup", "aria-label": label });
  }

  /** Show one tile per entry. @param {{ image: string } & Size & Grid} encoding @param {Tile[]} entries */
  open({ image, width, height, rows, columns }, entries) {
    this.element.style.setProperty("--ratio", String(width / height));
    const opened = JSON.stringify([rows, columns, entries]);
    if (opened !== this.opened) this.build(entries);
    this.opened = opened;
    for (const element of this.element.querySelectorAll("img"))
      if (element.getAttribute("src") !== image) element.src = image;
  }

  /** @param {Tile[]} entries */
  build(entries) {
    this.marked = "";
    const tile = (/** @type {Tile} */ { key, label, color, marker }) => {
      const canvas = el("canvas");
      const layers = [el("img", { alt: "", draggable: "false" }), canvas];
      const badge = marker !== undefined && el("span", { class: "lab-marker" }, String(marker));
      const input = el("input", { type: "radio", name: this.name, value: key, onchange: () => this.choose(key) });
      const name = el("span", { class: color ? "lab-name lab-swatch" : "lab-name" }, label);
      const element = el(
        "label",
        { class: "lab-tile", "data-key": key, style: color && `--pin: ${color}` },
        ...[input, el("span", { class: "lab-tile-image" }, ...layers, badge), name],
      );
      return { element, input, canvas: new PatchCanvas(canvas) };
    };
    this.tiles = new Map(entries.map((entry) => [entry.key, tile(entry)]));
    this.element.replaceChildren(...[...this.tiles.values()].map(({ element }) => element));
  }

  /** Mark a tile; a newly marked one is scrolled to the middle of its row. @param {string} chosen */
  mark(chosen) {
    for (const [key, { input }] of this.tiles) input.checked = key === chosen;
    const [row, tile] = [this.element, this.tiles.get(chosen)?.element];
    if (!tile || chosen === this.marked || !row.clientWidth) return;
    this.marked = chosen;
    row.scrollLeft = tile.offsetLeft - (row.clientWidth - tile.offsetWidth) / 2;
  }
}
