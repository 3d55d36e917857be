// A rail of images or clips: a tile that opens files, the user's own ones, and the examples.
//
// Props: `kind` is "image" or "clip"; `examples` has name, title and address of the thumbnail of each; `accept` is that of
// the file dialog; `remembers` is the name of the last own choice in the browser's memory; `start` is the chosen example.
// `chosen` is the name of the last choice, which "select" announces. The functions of the server are in app/handlers/own.py.

import { read } from "./address.js";
import { camera } from "./camera.js";
import { button, el, loadStyle } from "./dom.js";
import { Refusal } from "./encoding.js";
import { store } from "./own_store.js";
import { sendFile } from "./upload.js";
import { openViews, refuseOnStage } from "./view.js";

const THUMBNAIL = 96; // pixels

export class RailView {
  turn = 0; // number of the newest choice
  chosen = ""; // NAME of an example or NAME/TITLE of an own file
  note = ""; // a sentence about the newest choice
  /** @type {AbortController} */
  sending = null; // of the newest own file
  stopCamera = () => {};
  input = el("input", { type: "file", multiple: true, onchange: () => this.take([...this.input.files]) });
  own = el("div", { class: "rail-list", role: "group", "aria-label": "Your own" });
  examples = el("div", { class: "rail-list", role: "group", "aria-label": "Examples" });
  problem = el("p", { class: "rail-note", role: "status" });
  keep = el("input", { type: "checkbox", onchange: () => store.setKeeps(this.keep.checked) });
  keeps = el("label", {}, this.keep, "Keep in this browser");
  all = button("Remove all", () => this.remove(store.list(this.kind)));
  more = el("details", { class: "rail-more" }, el("summary", {}, "Yours"), this.keeps, this.all);

  /** @param {Mounted} mounted */
  constructor({ element, props, emit, server }) {
    this.element = element;
    this.props = props;
    this.emit = emit;
    this.server = server;
    this.kind = props.kind;
    this.chosen = props.start ?? "";
    this.input.accept = props.accept;
    element.classList.add("lab-rail");
    const open = el("label", { class: "rail-open", title: props.label }, el("span", {}, "Open"), this.input);
    loadStyle(element);
    const buttons = props.camera ? camera(this) : [];
    element.replaceChildren(open, ...buttons, this.own, this.more, this.problem, this.examples);
    for (const [name, title, src] of props.examples)
      this.examples.append(tile(title, src, () => this.chooseExample(name), { "data-name": name }));
    store.addEventListener("change", () => this.draw());
    this.opened = this.restore();
  }

  /** Show the own files of the store, and choose the one that was shown before a reload. */
  async restore() {
    await store.loading;
    this.draw();
    const item = store.items.get(sessionStorage.getItem(this.memory));
    if (item && !(this.props.address && read()[this.props.address])) await this.choose(item);
  }

  /** Key of the chosen own file in the storage of this browser tab. */
  get memory() {
    return `own ${this.props.remembers}`;
  }

  /** Return the names of all own files, for an export. */
  async names() {
    const names = [];
    for (const item of store.list(this.kind)) names.push(await this.ready(item));
    return names;
  }

  /**
   * Return the name under which the server has a file; send it if the server does not have it.
   * @param {Own} item @param {AbortSignal} [signal] @param {(share: number) => void} [progress]
   */
  async ready(item, signal, progress = () => {}) {
    if (item.name && (await this.server.holds({ kind: this.kind, name: item.name }))) return item.name;
    const path = await sendFile(item.file, item.title, signal, progress);
    const { name, error, note } = await this.server.keep({ kind: this.kind, path, title: item.title });
    signal?.throwIfAborted();
    if (error) throw new Refusal(error);
    if (note) this.say(note);
    const thumbnail = item.thumbnail ?? (await this.thumbnailOf(name));
    await store.put(Object.assign(item, { name, thumbnail }));
    return name;
  }

  /** Fetch the thumbnail of a file that the browser cannot decode, or of a clip. @param {string} name  NAME/TITLE */
  async thumbnailOf(name) {
    const [key] = name.split("/");
    const address = this.kind === "image" ? `lab/thumbnails/${key}.jpg` : `lab/clips/${key}/0.jpg`;
    const answer = await fetch(new URL(address, document.baseURI));
    return answer.ok ? shrunk(await answer.blob()) : undefined;
  }

  draw() {
    const items = store.list(this.kind);
    for (const image of this.own.querySelectorAll("img")) URL.revokeObjectURL(image.src);
    const ownTile = (item) => {
      const { id, title, thumbnail, name } = item;
      const src = thumbnail && URL.createObjectURL(thumbnail);
      const element = tile(title, src, () => this.choose(item), { "data-id": id, "data-name": name });
      const attributes = { class: "rail-remove", "aria-label": `Remove ${title}` };
      element.append(button("×", () => this.remove([item]), attributes));
      return element;
    };
    this.own.replaceChildren(...items.map(ownTile));
    this.more.hidden = !items.length && store.keeps;
    this.keep.checked = store.keeps;
    this.say(this.note);
    this.mark(this.chosen);
  }

  mark(name) {
    this.chosen = name;
    for (const one of this.element.querySelectorAll(".rail-tile"))
      one.firstElementChild.setAttribute("aria-current", String(one.getAttribute("data-name") === name));
  }

  /** Say something about the newest choice, after what the store says. @param {string} note */
  say(note) {
    this.note = note;
    this.problem.textContent = [store.keeps && store.problem, note].filter(Boolean).join(" ");
  }

  /** Show a file at once in the open views; returns them. @param {Own} item @param {() => void} cancel @returns {Promise<any[]>} */
  async preview(item, cancel) {
    if (!this.props.previews || item.name === this.chosen) return [];
    const src = URL.createObjectURL(item.file);
    const image = el("img", { src });
    await image.decode().catch(() => {}); // the server may be able to
    const { naturalWidth: width, naturalHeight: height } = image;
    const views = openViews();
    for (const view of views) view.preview({ image: width ? src : undefined, name: item.title, width, height }, cancel);
    return views;
  }

  /** Say why nothing new is shown: in the stage, or here if no stage is open. @param {string} sentence */
  refuse(sentence) {
    if (!refuseOnStage(sentence)) this.say(sentence);
  }

  /** Begin another choice: what is still being sent is not shown any more. */
  begin() {
    this.turn += 1;
    this.sending?.abort();
    this.stopCamera();
    this.say("");
    for (const view of openViews()) view.endPreview();
    return this.turn;
  }

  announce(name) {
    this.mark(name);
    this.emit("select", { name });
  }

  chooseExample(name) {
    this.begin();
    sessionStorage.removeItem(this.memory);
    this.announce(name);
  }

  /** Show an own file, which is sent again if the server has forgotten it; returns why it is refused, or "". @param {Own} item */
  async choose(item) {
    const turn = this.begin();
    const controller = (this.sending = new AbortController());
    const views = await this.preview(item, () => controller.abort());
    const progress = (share) => views.forEach(({ working }) => working.progress(share));
    try {
      const name = await this.ready(item, controller.signal, progress);
      if (turn !== this.turn) return "";
      sessionStorage.setItem(this.memory, item.id);
      this.announce(name);
    } catch (error) {
      if (turn !== this.turn) return ""; // another was chosen meanwhile: this one is sent when it is chosen
      if (!item.name) await store.remove([item]);
      for (const view of views) view.endPreview();
      if (!(error instanceof Refusal)) throw error;
      this.refuse(error.message);
      return error.message;
    }
    return "";
  }

  /** Take opened, dropped or pasted files in; the first is shown. @param {File[]} files */
  async take(files) {
    this.input.value = "";
    /** @type {Own[]} */
    const items = [];
    const now = Date.now();
    for (const [index, file] of files.entries()) {
      const rank = String(files.length - index).padStart(5, "0"); // the store sorts by id, the first is the newest
      const id = `${now} ${rank} ${Math.random()}`;
      const thumbnail = this.kind === "image" ? await shrunk(file) : undefined;
      items.push({ id, kind: this.kind, title: file.name || "image", file, thumbnail, name: "" });
    }
    for (const item of [...items].reverse()) await store.put(item);
    const refused = [];
    for (const item of items) {
      const sentence = await this.choose(item);
      if (!sentence) return this.say([...refused, this.note].filter(Boolean).join(" "));
      refused.push(sentence);
    }
    this.refuse(refused.join(" "));
  }

  /** Remove own files here and on the server; without the one that is shown, the first example is. @param {Own[]} items */
  async remove(items) {
    const isShown = items.some(({ name }) => name === this.chosen);
    await store.remove(items);
    for (const { name } of items) if (name) this.server.forget({ kind: this.kind, name });
    if (isShown) this.chooseExample(this.props.examples[0][0]);
  }
}

/** @param {string} title @param {string} src  of the thumbnail, if any @param {() => void} onclick @param {Record<string, string>} data */
function tile(title, src, onclick, data) {
  const content = src ? el("img", { src, alt: title, loading: "lazy" }) : title;
  return el("div", { class: "rail-tile", ...data }, el("button", { type: "button", title, onclick }, content));
}

/** Return the center of an image as a small JPEG; undefined if the browser cannot decode it. @param {Blob} file */
async function shrunk(file) {
  const image = await createImageBitmap(file).catch(() => null);
  if (!image) return undefined;
  const side = Math.min(image.width, image.height);
  const canvas = new OffscreenCanvas(THUMBNAIL, THUMBNAIL);
  const [x, y] = [(image.width - side) / 2, (image.height - side) / 2];
  canvas.getContext("2d").drawImage(image, x, y, side, side, 0, 0, THUMBNAIL, THUMBNAIL);
  return canvas.convertToBlob({ type: "image/jpeg" });
}
