// Progress of what takes long, with a button that ends it; it appears after a moment.

import { button, el } from "./dom.js";

const PATIENCE = 350; // milliseconds

export class Busy {
  work = 0; // number of the newest
  timer = 0;
  cancel = () => {};
  text = el("span");
  bar = el("progress", { "aria-label": "Progress" });
  button = button("Cancel", () => this.cancel());
  element = el("div", { class: "lab-busy", role: "status", hidden: true }, this.text, this.bar, this.button);

  /**
   * Show a work, in place of an earlier one, once it has taken a moment; returns its number.
   * @param {string} text @param {() => void} cancel @param {() => void} [late]  called at that moment
   */
  start(text, cancel, late = () => {}) {
    clearTimeout(this.timer);
    this.text.textContent = text;
    this.cancel = cancel;
    this.bar.removeAttribute("value");
    this.timer = window.setTimeout(() => {
      this.element.hidden = false;
      late();
    }, PATIENCE);
    return (this.work += 1);
  }

  /** Show how much is done. @param {number} share  from 0 to 1; all: the end is not known */
  progress(share) {
    if (share < 1) this.bar.value = String(share);
    else this.bar.removeAttribute("value");
  }

  /** End a work, unless another began meanwhile. @param {number} work */
  end(work) {
    if (work !== this.work) return;
    clearTimeout(this.timer);
    this.element.hidden = true;
  }
}
