// The header of all tabs: which photograph (or clip), which model, which resolution.

import { valueOf } from "../dom.js";
import { html, nothing, render } from "../vendor/lit-html.js";
import { megabytes } from "../maths/format.js";

/** @typedef {import("../lab.js").Lab} Lab */

const OWN_LISTED = 3; // photographs of a visitor's own that stay one click away

/** What a tab takes: a photograph or a clip from the header, and whether its model counts there. */
const NEEDS = /** @type {Record<string, { clip?: boolean, model?: boolean, size?: boolean }>} */ ({
  explore: { model: true, size: true },
  segment: { model: true, size: true },
  compare: { model: true, size: true },
  "class-map": {},
  video: { clip: true, model: true, size: true },
  training: { size: true },
  learn: { size: true },
});

export class Header {
  /** @param {HTMLElement} element @param {Lab} lab */
  constructor(element, lab) {
    this.element = element;
    this.lab = lab;
    this.sending = lab.asker("photo");
    /** @type {{ photo: string, name: string }[]} */
    this.own = [];
    this.listenForFiles(document);
  }

  get needs() {
    return NEEDS[this.lab.state.tab] ?? {};
  }

  get kind() {
    return this.needs.clip ? "clip" : "photo";
  }

  // ---- what is seen

  show() {
    const { state, facts } = this.lab;
    if (state.name && !this.own.some(({ photo }) => photo === state.photo)) {
      const before = this.own.filter(({ name }) => name !== state.name);
      this.own = [...before, { photo: state.photo, name: state.name }].slice(-OWN_LISTED);
    }
    const { clip, model, size } = this.needs;
    render(
      html`
        <div class="lab-source">
          <label class="lab-choose">
            <input type="file" accept=${facts.kinds[this.kind]} @change=${this.chosen} />
            <span>${clip ? "Choose a clip" : "Choose a photograph"}</span>
          </label>
          <div class="lab-examples" role="group" aria-label=${clip ? "Clips" : "Photographs"}>
            ${clip ? this.clips() : this.photographs()}
          </div>
          <p class="lab-soft">${clip ? facts.limits.clip : "Or drop or paste one anywhere."}</p>
        </div>
        <div class="lab-lists">
          ${model ? this.models() : nothing}
          ${size ? this.sizes() : nothing}
        </div>
      `,
      this.element,
    );
  }

  photographs() {
    const { state, facts } = this.lab;
    const open = (/** @type {string} */ photo, name = "") => this.lab.change({ photo, name, patch: "", pins: "" });
    return [
      ...this.own.map(({ photo, name }) =>
        this.picture(name, `api/photos/${photo}/thumbnail.jpg`, photo, photo === state.photo, () => open(photo, name)),
      ),
      ...facts.examples.map(({ photo, title }) =>
        this.picture(title, `api/photos/${photo}/thumbnail.jpg`, photo, photo === state.photo, () => open(photo)),
      ),
    ];
  }

  clips() {
    const { state, facts } = this.lab;
    const open = (/** @type {string} */ clip) => this.lab.change({ clip, clipName: "" });
    const own = state.clipName ? [{ clip: state.clip, title: state.clipName }] : [];
    return [...own, ...facts.clips].map(({ clip, title }) =>
      this.picture(title, `api/clips/${clip}/thumbnail.jpg`, clip, clip === state.clip, () => open(clip)),
    );
  }

  /** @param {string} title @param {string} address @param {string} key @param {boolean} open @param {() => void} choose */
  picture(title, address, key, open, choose) {
    return html`<button type="button" class="lab-example" title=${title} data-example=${key} aria-pressed=${open} @click=${choose}>
      <img src=${address} alt=${title} height="48" />
    </button>`;
  }

  models() {
    return html`<div class="lab-list"><label for="model">Model</label>
      <select id="model" @change=${(event) => this.lab.change({ model: valueOf(event) })} @focus=${this.refresh}
        @pointerenter=${this.refresh}>${modelOptions(this.lab, this.lab.state.model)}</select></div>`;
  }

  sizes() {
    const { state, facts } = this.lab;
    const sizes = [...new Set([...facts.sizes, state.size])].sort((one, other) => one - other);
    const option = (/** @type {number} */ size) =>
      html`<option value=${size} .selected=${size === state.size}>${size} pixels</option>`;
    return html`<div class="lab-list"><label for="size">Resolution, short side</label>
      <select id="size" @change=${(event) => this.lab.change({ size: Number(valueOf(event)) })}>${sizes.map(option)}</select></div>`;
  }

  /** Models that were made since: runs, checkpoints. */
  refresh = () => this.lab.refreshFacts().then(() => this.show());

  // ---- files

  chosen = (/** @type {Event} */ event) => {
    const input = /** @type {HTMLInputElement} */ (event.target);
    this.take([...(input.files ?? [])]);
    input.value = ""; // so that the same file can be chosen again
  };

  /** Send the first of the files, and open it. @param {File[]} files */
  async take(files) {
    const [file] = files;
    if (!file) return;
    const { kind, lab } = this;
    lab.messages.clear();
    const most = lab.facts.limits.uploadBytes;
    if (file.size > most) {
      const words = `${file.name} has ${megabytes(file.size)}, more than the ${megabytes(most)} allowed: choose a smaller file.`;
      lab.messages.say(words, "photo");
      return;
    }
    const sent = await this.sending.ask(({ signal }) => lab.send(kind, file, signal));
    if (!sent) return;
    if (kind === "clip") lab.change({ clip: sent.clip, clipName: sent.name });
    else lab.change({ photo: sent.photo, name: sent.name, patch: "", pins: "" });
    if (files.length > 1)
      lab.messages.say(`Of the ${files.length} files only ${file.name} was opened: choose one at a time.`, "photo");
  }

  /** A file dropped or pasted anywhere goes the way of a chosen one. @param {Document} page */
  listenForFiles(page) {
    let depth = 0; // dragenter and dragleave come in pairs, once per element crossed
    const over = (/** @type {boolean} */ is) => page.body.classList.toggle("lab-dropping", is);
    const carriesFiles = (/** @type {DragEvent} */ { dataTransfer }) => dataTransfer?.types.includes("Files") ?? false;
    page.addEventListener("dragenter", (event) => {
      if (carriesFiles(event)) over(++depth > 0);
    });
    page.addEventListener("dragleave", (event) => {
      if (carriesFiles(event)) over(--depth > 0);
    });
    page.addEventListener("dragover", (event) => {
      if (carriesFiles(event)) event.preventDefault();
    });
    page.addEventListener("drop", (event) => {
      if (!carriesFiles(event)) return;
      event.preventDefault();
      over(Boolean((depth = 0)));
      this.take([...(event.dataTransfer?.files ?? [])]);
    });
    page.addEventListener("paste", (event) => {
      const files = [...(event.clipboardData?.files ?? [])];
      if (!files.length) return;
      event.preventDefault();
      this.take(files);
    });
  }
}

/** Every model, and the chosen one even where it is not among them. @param {Lab} lab @param {string} chosen */
export function modelOptions({ facts }, chosen) {
  const known = facts.models.some(({ name }) => name === chosen);
  const models = known ? facts.models : [...facts.models, { name: chosen, label: chosen }];
  return models.map(({ name, label }) => html`<option value=${name} .selected=${name === chosen}>${label}</option>`);
}
