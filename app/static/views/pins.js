// [CLS] and the pinned patches beside each other, each with its own map, so that they can be compared.

import { el, find } from "./dom.js";
import { PatchCanvas } from "./paint.js";
import { tellScale, tilePicture } from "./tiles.js";

export class PinList {
  /**
   * @param {HTMLElement} list
   * @param {{ choose: (pin: Pin | null) => void, remove: (pin: Pin) => void }} on  null stands for [CLS]
   */
  constructor(list, on) {
    this.list = list;
    this.on = on;
    /** @type {(Pin | null)[]} */
    this.entries = [];
    this.rest = "[CLS]";
  }

  /**
   * One entry for [CLS] and for every pin; the active one is marked. Nothing where there are no pins.
   * @param {Encoding} encoding @param {Pin[]} pins @param {Pin | null} active
   * @param {string} rest  who is asked where no pin is active
   */
  show(encoding, pins, active, rest) {
    const focused = [...this.list.children].findIndex((item) => item.contains(document.activeElement));
    this.entries = pins.length ? [null, ...pins] : [];
    this.rest = rest;
    this.list.style.setProperty("--ratio", String(encoding.width / encoding.height));
    this.list.replaceChildren(...this.entries.map((pin, index) => this.entry(encoding, pin, index, pin === active)));
    if (focused >= 0 && !this.list.contains(document.activeElement)) {
      this.list.children[Math.min(focused, this.entries.length) - 1]?.querySelector("button")?.focus();
    }
  }

  /** @param {Encoding} encoding @param {Pin | null} pin @param {number} index @param {boolean} active */
  entry(encoding, pin, index, active) {
    const patch = pin && encoding.patchAt(pin);
    const name = patch ? `row ${patch.row}, column ${patch.column}` : this.rest;
    const marker = pin ? [el("span", { class: "lab-marker" }, String(index))] : [];
    const remove = { class: "lab-query-remove", "aria-label": `Remove pin ${index}, ${name}` };
    return el(
      "li",
      { class: "lab-query", style: `--pin: ${pin?.color ?? "var(--lab-ink)"}` },
      el(
        "button",
        { type: "button", class: "lab-query-pick", "aria-pressed": String(active), onclick: () => this.on.choose(pin) },
        ...tilePicture(encoding.picture, ...marker),
        el("span", {}, name),
        el("span", { class: "lab-tile-note" }),
      ),
      pin && el("button", { type: "button", ...remove, onclick: () => this.on.remove(pin) }, "×"),
    );
  }

  /**
   * `paint(canvas, pin)` for every entry; it returns what stands beside the entry's name, and below its picture.
   * @param {{ rows: number, columns: number }} grid
   * @param {(canvas: PatchCanvas, pin: Pin | null) => { note: string, ends: [string, string] | null }} paint
   */
  paint({ rows, columns }, paint) {
    [...this.list.children].forEach((item, index) => {
      const canvas = new PatchCanvas(find(item, "canvas"));
      canvas.resize(rows, columns);
      const { note, ends } = paint(canvas, this.entries[index]);
      find(item, ".lab-tile-note").textContent = note;
      tellScale(find(item, ".lab-scale"), ends);
    });
  }
}
