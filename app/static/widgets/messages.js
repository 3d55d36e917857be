// The sentences that tell what cannot be had, and why; each stays until something else is asked for.

import { html, render } from "../vendor/lit-html.js";

export class Messages {
  /** @param {HTMLElement} element  an alert */
  constructor(element) {
    this.element = element;
    /** @type {Map<string, string>} */
    this.sentences = new Map();
  }

  /** One sentence about something; an empty one takes it away. @param {string} sentence @param {string} about */
  say(sentence, about) {
    if ((this.sentences.get(about) ?? "") === sentence) return;
    if (sentence) this.sentences.set(about, sentence);
    else this.sentences.delete(about);
    this.show();
  }

  /** Something else was asked for. */
  clear() {
    this.sentences.clear();
    this.show();
  }

  show() {
    this.element.hidden = !this.sentences.size;
    render(
      [...new Set(this.sentences.values())].map((sentence) => html`<p>${sentence}</p>`),
      this.element,
    );
  }
}
