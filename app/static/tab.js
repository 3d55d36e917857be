// What every tab has: its part of the page, the lab, its own way of asking, and ways to listen to its controls.

import { find, findAll, valueOf } from "./dom.js";

export class Tab {
  /** @param {HTMLElement} root  its markup, in the panel of the tab's name @param {Lab} lab */
  constructor(root, lab) {
    this.root = root;
    this.lab = lab;
    this.asker = lab.asker(root.parentElement?.id ?? "");
    for (const form of findAll(root, "form")) form.addEventListener("submit", (event) => event.preventDefault());
    root.addEventListener("input", () => this.label());
    Object.assign(root, { tab: this }); // for the browser's console, and for tests
  }

  /** Bring what the lab says to the screen: the tab was shown, or something was changed. */
  look() {}

  /** The tab is hidden: what it asked for would come to no screen, and is asked for anew where it is shown again. */
  leave() {
    this.asker.stop();
  }

  /** @param {string} selector */
  find(selector) {
    return find(this.root, selector);
  }

  /** @param {string} selector */
  findAll(selector) {
    return findAll(this.root, selector);
  }

  /** Do something when whatever fits is pressed. @param {string} selector @param {(pressed: Part) => void} action */
  onPress(selector, action) {
    for (const part of this.findAll(selector)) part.addEventListener("click", () => action(part));
  }

  /** Fetch or make a file when its button is pressed; a refusal is said. @param {(file: string) => Promise<unknown>} keep */
  onDownload(keep) {
    this.onPress("[data-download]", ({ dataset }) => this.asker.attempt(() => keep(dataset.download ?? "")));
  }

  /**
   * Do something when a list is chosen from; when it is reached for, look first whether there is more to choose.
   * @param {string} selector @param {(value: string) => void} choose @param {() => unknown} refresh
   */
  onChoose(selector, choose, refresh) {
    const list = this.find(selector);
    list.addEventListener("change", (event) => choose(valueOf(event)));
    for (const reach of ["focus", "pointerenter"]) list.addEventListener(reach, refresh);
  }

  /** Write beside every slider where it stands: with its unit, or out of how many. */
  label() {
    for (const output of this.findAll("output[data-unit]")) {
      const { value, max } = /** @type {Part} */ (output.previousElementSibling);
      output.value = value + (output.dataset.unit === "of" ? ` of ${max}` : output.dataset.unit);
    }
  }

  /** Whether something is to be seen. @param {string} selector @param {unknown} shown */
  reveal(selector, shown) {
    for (const part of this.findAll(selector)) part.hidden = !shown;
  }
}
