// The header of all tabs: which photograph (or clip), which model, which resolution.

import { valueOf } from "../dom.js";
import { html, nothing, render } from "../vendor/lit-html.js";
import { megabytes } from "../maths/format.js";
import { hasCamera, takePicture } from "./camera.js";

const OWN_LISTED = 24; // photographs of a visitor's own that stay one click away, and that are taken at once

/** What a tab takes: a photograph or a clip from the header, and whether its model counts there. */
const NEEDS = /** @type {Record<string, { clip?: boolean, model?: boolean, size?: boolean }>} */ ({
  explore: { model: true, size: true },
  segment: { model: true, size: true },
  compare: { model: true, size: true },
  match: { model: true, size: true },
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
    if (state.name) this.list([{ photo: state.photo, name: state.name }]);
    const { clip, model, size } = this.needs;
    render(
      html`
        <div class="lab-source">
          <label class="lab-choose">
            <input type="file" accept=${facts.kinds[this.kind]} ?multiple=${!clip} @change=${this.chosen} />
            <span>${clip ? "Choose a clip" : "Choose photographs"}</span>
          </label>
          <div class="lab-examples" role="group" aria-label=${clip ? "Clips" : "Photographs"}>
            ${clip ? this.clips() : this.photographs()}
          </div>
          <p class="lab-soft">${clip ? facts.limits.clip : this.ways()}</p>
        </div>
        <div class="lab-lists">
          ${model ? this.models() : nothing}
          ${size ? this.sizes() : nothing}
        </div>
      `,
      this.element,
    );
  }

  /** Other ways to bring a photograph. */
  ways() {
    return html`Or drop or paste some anywhere, take
      <label class="lab-way"><input type="file" webkitdirectory @change=${this.chosen} /><span>a folder</span></label>${
        hasCamera
          ? html` or <button type="button" class="lab-way" @click=${this.photograph}>the camera</button>`
          : nothing
      }.`;
  }

  /** Keep photographs of the visitor's own at hand; a name stands for the newest that has it. @param {{ photo: string, name: string }[]} photographs */
  list(photographs) {
    const { lab } = this;
    const fresh = photographs.filter(({ photo }) => !lab.own.some((one) => one.photo === photo));
    const before = lab.own.filter(({ name }) => !fresh.some((one) => one.name === name));
    lab.own = [...before, ...fresh].slice(-OWN_LISTED);
  }

  photographs() {
    const { state, facts, own } = this.lab;
    const open = (/** @type {string} */ photo, name = "") => this.lab.change({ photo, name, patch: "", pins: "" });
    return [
      ...own.map(({ photo, name }) =>
        thumbnail(name, `api/photos/${photo}/thumbnail.jpg`, photo, photo === state.photo, () => open(photo, name)),
      ),
      ...facts.examples.map(({ photo, title }) =>
        thumbnail(title, `api/photos/${photo}/thumbnail.jpg`, photo, photo === state.photo, () => open(photo)),
      ),
    ];
  }

  clips() {
    const { state, facts } = this.lab;
    const open = (/** @type {string} */ clip) => this.lab.change({ clip, clipName: "" });
    const own = state.clipName ? [{ clip: state.clip, title: state.clipName }] : [];
    return [...own, ...facts.clips].map(({ clip, title }) =>
      thumbnail(title, `api/clips/${clip}/thumbnail.jpg`, clip, clip === state.clip, () => open(clip)),
    );
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

  photograph = () =>
    this.sending.attempt(async () => this.take([await takePicture()].filter((taken) => taken !== null)));

  /** Send photographs and open the first of them; of clips, the first alone. @param {File[]} chosen */
  async take(chosen) {
    const { kind, lab } = this;
    const kinds = lab.facts.kinds.photo.split(",");
    const several = kind === "photo" && chosen.length > 1;
    const files = several
      ? chosen.filter(({ name }) => kinds.some((kind) => name.toLowerCase().endsWith(kind)))
      : chosen;
    const taken = files.slice(0, several ? OWN_LISTED : 1);
    if (!chosen.length) return;
    lab.messages.clear();
    const most = lab.facts.limits.uploadBytes;
    const heavy = taken.find(({ size }) => size > most);
    if (heavy) {
      const words = `${heavy.name} has ${megabytes(heavy.size)}, more than the ${megabytes(most)} allowed: choose a smaller file.`;
      lab.messages.say(words, "photo");
      return;
    }
    const sent = await this.sending.ask(async ({ signal, told }) => {
      const answers = [];
      for (const [place, file] of taken.entries()) {
        told({ state: "sending", done: place + 1, total: taken.length });
        answers.push(await lab.send(kind, file, signal));
      }
      return answers;
    });
    if (!sent) return;
    if (kind === "clip") lab.change({ clip: sent[0].clip, clipName: sent[0].name });
    else if (sent.length) {
      this.list(sent);
      lab.change({ photo: sent[0].photo, name: sent[0].name, patch: "", pins: "" });
    }
    if (taken.length < chosen.length) lab.messages.say(leftOut(taken, chosen.length, kind), "photo");
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

/** What was not taken of many files. @param {File[]} taken @param {number} count @param {string} kind */
function leftOut(taken, count, kind) {
  if (kind === "clip") return `Of the ${count} files only ${taken[0].name} was opened: choose one clip at a time.`;
  const most = taken.length === OWN_LISTED ? `, at most ${OWN_LISTED} at once` : "";
  return `Of the ${count} files ${taken.length} were opened: photographs alone${most}.`;
}

/** A picture to choose. @param {string} title @param {string} address @param {string} key @param {boolean} open @param {() => void} choose */
export function thumbnail(title, address, key, open, choose) {
  return html`<button type="button" class="lab-example" title=${title} data-example=${key} aria-pressed=${open} @click=${choose}>
    <img src=${address} alt=${title} height="48" />
  </button>`;
}

/** Every model, and the chosen one even where it is not among them. @param {Lab} lab @param {string} chosen */
export function modelOptions({ facts }, chosen) {
  const known = facts.models.some(({ name }) => name === chosen);
  const models = known ? facts.models : [...facts.models, { name: chosen, label: chosen }];
  return models.map(({ name, label }) => html`<option value=${name} .selected=${name === chosen}>${label}</option>`);
}
