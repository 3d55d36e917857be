// The gallery: every head's map over the picture, and which of them the stage shows.

import { PatchCanvas } from "./paint.js";

const STEPS = { ArrowLeft: -1, ArrowUp: -1, ArrowRight: 1, ArrowDown: 1 };

export class Tiles {
  /**
   * @param {HTMLElement} element  a radio group
   * @param {(key: string) => void} onChoose
   */
  constructor(element, onChoose) {
    this.element = element;
    this.onChoose = onChoose;
    this.tiles = new Map(); // key -> {button, canvas, note}
    element.addEventListener("keydown", (event) => {
      const step = STEPS[event.key];
      if (step === undefined) return;
      event.preventDefault();
      this.step(step);
    });
  }

  /** One tile for each of `shows` ([{key, label, color}]) over the picture of an encoding. */
  open({ picture, width, height, rows, columns }, shows) {
    this.tiles.clear();
    this.element.style.setProperty("--ratio", width / height);
    const buttons = shows.map((show) => {
      const tile = this.build(show, picture);
      tile.canvas.resize(rows, columns);
      this.tiles.set(show.key, tile);
      return tile.button;
    });
    this.element.replaceChildren(...buttons);
  }

  build({ key, label, color }, picture) {
    const button = node("button", "lab-tile", { type: "button", role: "radio", "aria-checked": "false" });
    const frame = node("span", "lab-tile-picture");
    const canvas = node("canvas");
    frame.append(node("img", "", { src: picture, alt: "", draggable: "false" }), canvas);
    const caption = node("span", "lab-tile-caption");
    const name = node("span", "lab-tile-name");
    name.textContent = label;
    name.style.setProperty("--head", color);
    const note = node("span", "lab-tile-note");
    caption.append(name, note);
    button.append(frame, caption);
    button.addEventListener("click", () => this.onChoose(key));
    return { button, canvas: new PatchCanvas(canvas), note };
  }

  choose(chosen) {
    for (const [key, { button }] of this.tiles) {
      button.setAttribute("aria-checked", String(key === chosen));
      button.tabIndex = key === chosen ? 0 : -1;
    }
  }

  step(by) {
    const keys = [...this.tiles.keys()];
    const now = keys.findIndex((key) => this.tiles.get(key).button.tabIndex === 0);
    const key = keys[(now + by + keys.length) % keys.length];
    this.tiles.get(key).button.focus();
    this.onChoose(key);
  }
}

function node(name, className = "", attributes = {}) {
  const made = document.createElement(name);
  if (className) made.className = className;
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  return made;
}
