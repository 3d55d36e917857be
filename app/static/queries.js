// [CLS] and the pinned patches beside each other, each with its own map, so that they can be compared.

import { PatchCanvas } from "./paint.js";

export class Queries {
  /**
   * @param {HTMLElement} list
   * @param {{choose: (pin: object | null) => void, remove: (pin: object) => void}} on  null stands for [CLS]
   */
  constructor(list, on) {
    this.list = list;
    this.on = on;
    this.items = new Map(); // pin, or null -> {item, pick, canvas, note}
  }

  /** Another picture. */
  open({ picture, width, height, rows, columns }) {
    this.picture = picture;
    this.grid = [rows, columns];
    this.items.clear();
    this.list.style.setProperty("--ratio", width / height);
    this.list.replaceChildren();
  }

  /** One entry for [CLS] and for every pin; the active one is marked. Nothing where there are no pins. */
  show(pins, active) {
    const entries = pins.length ? [null, ...pins] : [];
    const same = entries.length === this.items.size && entries.every((pin) => this.items.has(pin));
    if (!same) this.replace(entries);
    for (const [pin, { pick }] of this.items) pick.setAttribute("aria-pressed", String(pin === active));
  }

  /** `paint(canvas, pin)` for every entry; what it returns stands beside the entry's name. */
  paint(paint) {
    for (const [pin, { canvas, note }] of this.items) note.textContent = paint(canvas, pin);
  }

  replace(entries) {
    const hadFocus = this.list.contains(document.activeElement);
    this.items = new Map(entries.map((pin, index) => [pin, this.items.get(pin) ?? this.build(pin)]));
    entries.forEach((pin, index) => this.name(pin, index));
    this.list.replaceChildren(...[...this.items.values()].map(({ item }) => item));
    if (hadFocus) this.list.querySelector("button")?.focus();
  }

  /** Pins are numbered as they stand; removing one renumbers the rest. */
  name(pin, index) {
    const { number, label, remove } = this.items.get(pin);
    label.textContent = pin ? `row ${pin.row}, column ${pin.column}` : "[CLS]";
    if (!pin) return;
    number.textContent = index;
    remove.setAttribute("aria-label", `Remove pin ${index}, ${label.textContent}`);
  }

  build(pin) {
    const item = node("li", "lab-query");
    item.style.setProperty("--pin", pin?.color ?? "var(--lab-ink)");
    const pick = node("button", "lab-query-pick", { type: "button" });
    const frame = node("span", "lab-tile-picture");
    const canvas = node("canvas");
    frame.append(node("img", "", { src: this.picture, alt: "", draggable: "false" }), canvas);
    const number = pin && node("span", "lab-marker");
    if (pin) frame.append(number);
    const label = node("span", "lab-query-name");
    const note = node("span", "lab-tile-note");
    pick.append(frame, label, note);
    pick.addEventListener("click", () => this.on.choose(pin));
    item.append(pick);
    const remove = pin && node("button", "lab-query-remove", { type: "button" });
    if (remove) {
      remove.textContent = "×";
      remove.addEventListener("click", () => this.on.remove(pin));
      item.append(remove);
    }
    const patches = new PatchCanvas(canvas);
    patches.resize(...this.grid);
    return { item, pick, number, label, note, remove, canvas: patches };
  }
}

function node(name, className = "", attributes = {}) {
  const made = document.createElement(name);
  if (className) made.className = className;
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  return made;
}
