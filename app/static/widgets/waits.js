// What the visitor waits for: the place in the queue, a download's size, and a way out. The picture stays in sight.

import { megabytes } from "../maths/format.js";
import { html, nothing, render } from "../vendor/lit-html.js";

const PATIENCE = 300; // milliseconds: what comes sooner needs no word

export class Waits {
  /** @param {HTMLElement} element */
  constructor(element) {
    this.element = element;
    /** @type {{ word: Word, cancel: () => void }[]} */
    this.waits = [];
  }

  /** @param {() => void} cancel */
  begin(cancel) {
    const wait = { word: /** @type {Word} */ ({ state: "asking" }), cancel };
    const timer = setTimeout(() => {
      this.waits.push(wait);
      this.show();
    }, PATIENCE);
    return {
      told: (/** @type {Word} */ word) => {
        wait.word = word;
        if (this.waits.includes(wait)) this.show();
      },
      end: () => {
        clearTimeout(timer);
        if (!this.waits.includes(wait)) return;
        this.waits = this.waits.filter((other) => other !== wait);
        this.show();
      },
    };
  }

  show() {
    const wait = this.waits.at(-1);
    document.documentElement.toggleAttribute("data-busy", Boolean(wait));
    render(wait ? this.words(wait) : nothing, this.element);
  }

  /** @param {{ word: Word, cancel: () => void }} wait */
  words({ word, cancel }) {
    const { state, done = 0, total = 0 } = word;
    const progress = state === "downloading" && total > 0;
    return html`<div class="lab-wait">
      <span class="lab-wait-mark" aria-hidden="true"></span>
      <span>${inWords(word)}</span>
      ${progress ? html`<progress max=${total} .value=${done} aria-label="Downloaded"></progress>` : nothing}
      <button type="button" class="lab-quiet" @click=${cancel}>Cancel</button>
    </div>`;
  }
}

/** @param {Word} word */
export function inWords({ state, place = 0, model = "the model", done = 0, total = 0 }) {
  switch (state) {
    case "waiting":
      return place ? `Waiting for the model: ${place} before you` : "Waiting for the model: you are next";
    case "downloading":
      return `Downloading ${model}: ${megabytes(Math.round(done / 1e5) * 1e5)}${total ? ` of ${megabytes(Math.round(total / 1e5) * 1e5)}` : ""}`;
    case "sending":
      return total > 1 ? `Sending photograph ${done} of ${total}` : "Sending the file";
    case "loading":
      return `Loading ${model}`;
    case "looking":
      return "The model is looking";
    default:
      return "Asking the server";
  }
}
