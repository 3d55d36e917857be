// A rail of images or clips: a tile that opens files, the user's own ones, and the examples.
//
// Props: `kind` is "image" or "clip"; `examples` has name, title and address of the thumbnail of each; `accept` is that of
// the file dialog; `remembers` is the name of the last own choice in the browser's memory; `start` is the chosen example.
// `chosen` is the name of the last choice, which "select" announces. The functions of the server are in app/handlers/own.py.

import { read } from "./address.js";
import { button, el, loadStyle } from "./dom.js";
import { Refusal } from "./encoding.js";
import { LiveCamera, frameOf } from "./live_camera.js";
import { store } from "./own_store.js";
import { sendFile } from "./upload.js";

/** @typedef {import("./own_store.js").Own} Own */

const THUMBNAIL = 96; // pixels
const LIVE_SIDE = 224; // pixels of the short side of a frame that is sent

export class RailView {
  turn = 0; // number of the newest choice
  chosen = ""; // NAME of an example or NAME/TITLE of an own file
  note = ""; // a sentence about the newest choice
  /** @type {AbortController} */
  sending = null; // of the newest own file
  /** @type {LiveCamera} */
  camera = null;
  input = el("input", { type: "file", multiple: true, onchange: () => this.take([...this.input.files]) });
  own = el("div", { class: "rail-list", role: "group", "aria-label": "Your own" });
  examples = el("div", { class: "rail-list", role: "group", "aria-label": "Examples" });
  problem = el("p", { class: "rail-note", role: "status" });
  keep = el("input", { type: "checkbox", onchange: () => store.setKeeps(this.keep.checked) });
  all = button("Remove all", () => this.removeAll());
  more = el(
    "details",
    { class: "rail-more" },
    el("summary", {}, "Yours"),
    el("label", {}, this.keep, "Keep in this browser"),
    this.all,
  );

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
    const camera = props.camera ? this.addCamera() : [];
    loadStyle(element);
    element.replaceChildren(open, ...camera, this.own, this.more, this.examples, this.problem);
    this.examples.replaceChildren(...props.examples.map((example) => this.exampleTile(...example)));
    store.addEventListener("change", () => this.draw());
    this.opened = this.restore();
  }

  /** Show the own files of the store, and choose the one that was shown before a reload. */
  async restore() {
    await store.loading;
    this.draw();
    const id = sessionStorage.getItem(this.memory);
    const item = store.items.get(id);
    if (item && !(this.props.address && read()[this.props.address])) await this.choose(item);
  }

  /** Key of the chosen own file in the storage of this browser tab. */
  get memory() {
    return `own ${this.props.remembers}`;
  }

  draw() {
    const items = store.list(this.kind);
    for (const image of this.own.querySelectorAll("img")) URL.revokeObjectURL(image.src);
    this.own.replaceChildren(...items.map((item) => this.ownTile(item)));
    this.more.hidden = !items.length && store.keeps;
    this.keep.checked = store.keeps;
    this.say(this.note);
    this.mark(this.chosen);
  }

  exampleTile(name, title, src) {
    const image = el("img", { src, alt: title, loading: "lazy" });
    return el(
      "div",
      { class: "rail-tile", "data-name": name },
      tileButton(title, () => this.chooseExample(name), image),
    );
  }

  /** @param {Own} item */
  ownTile(item) {
    const { id, title, thumbnail, name } = item;
    const image = thumbnail ? el("img", { src: URL.createObjectURL(thumbnail), alt: title }) : el("span", {}, title);
    const remove = button("×", () => this.remove(item), { class: "rail-remove", "aria-label": `Remove ${title}` });
    const attributes = { class: "rail-tile", "data-id": id, "data-name": name };
    return el(
      "div",
      attributes,
      tileButton(title, () => this.choose(item), image),
      remove,
    );
  }

  /** Mark the tile of what is shown. @param {string} name */
  mark(name) {
    this.chosen = name;
    for (const tile of this.element.querySelectorAll(".rail-tile")) {
      const isShown = tile.getAttribute("data-name") === name;
      tile.firstElementChild.setAttribute("aria-current", String(isShown));
    }
  }

  /** Say something about the newest choice, after what the store says. @param {string} note */
  say(note) {
    this.note = note;
    this.problem.textContent = [store.keeps && store.problem, note].filter(Boolean).join(" ");
  }

  chooseExample(name) {
    this.begin();
    sessionStorage.removeItem(this.memory);
    this.announce(name);
  }

  /** Begin another choice: what is still being sent is not shown any more. */
  begin() {
    this.turn += 1;
    this.sending?.abort();
    this.camera?.stop();
    this.say("");
    for (const view of openViews()) view.endPreview();
    return this.turn;
  }

  announce(name) {
    this.mark(name);
    this.emit("select", { name });
  }

  /** Show an own file, which is sent again if the server has forgotten it; false if it is refused. @param {Own} item */
  async choose(item) {
    const turn = this.begin();
    const controller = (this.sending = new AbortController());
    const stages = await this.preview(item, () => controller.abort());
    try {
      const name = await this.ready(item, controller.signal, (share) =>
        stages.forEach((view) => view.working.progress(share)),
      );
      if (turn !== this.turn) return true;
      sessionStorage.setItem(this.memory, item.id);
      this.announce(name);
    } catch (error) {
      if (turn !== this.turn) return true; // another was chosen meanwhile: this one is sent when it is chosen
      if (!item.name) await store.remove([item]);
      this.refuse(error, stages);
      return false;
    }
    return true;
  }

  /** Say why a file is not shown, and return to what was shown. */
  refuse(error, stages) {
    for (const view of stages) view.endPreview();
    if (!(error instanceof Refusal)) throw error;
    this.say(error.message);
    for (const view of openViews()) view.refuse(error.message);
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

  /** Return the names of all own files, for an export. */
  async names() {
    const names = [];
    for (const item of store.list(this.kind)) names.push(await this.ready(item));
    return names;
  }

  /** Show a file at once in the open views; returns them. @param {Own} item @param {() => void} cancel @returns {Promise<any[]>} */
  async preview(item, cancel) {
    if (!this.props.previews || item.name === this.chosen) return [];
    const image = URL.createObjectURL(item.file);
    const size = await sizeOf(image);
    const views = openViews();
    for (const view of views) view.preview({ image: size && image, name: item.title, ...size }, cancel);
    return views;
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
      const title = file.name || "image";
      const thumbnail = this.kind === "image" ? await shrunk(file) : undefined;
      items.push({ id, kind: this.kind, title, file, thumbnail, name: "" });
    }
    for (const item of [...items].reverse()) await store.put(item);
    const notes = []; // of those that are refused, and of the one that is shown
    for (const item of items) {
      const isShown = await this.choose(item);
      notes.push(this.note);
      if (isShown) break;
    }
    this.say(notes.filter(Boolean).join(" "));
  }

  /** @param {Own} item */
  async remove(item) {
    const isShown = this.chosen === item.name;
    await store.remove([item]);
    if (item.name) this.server.forget({ kind: this.kind, name: item.name });
    if (isShown) this.chooseExample(this.props.examples[0][0]);
  }

  async removeAll() {
    const items = store.list(this.kind);
    const isShown = items.some(({ name }) => name === this.chosen);
    await store.remove(items);
    for (const { name } of items) if (name) this.server.forget({ kind: this.kind, name });
    if (isShown) this.chooseExample(this.props.examples[0][0]);
  }

  /** Fetch the thumbnail of a file that the browser cannot decode, or of a clip. @param {string} name  NAME/TITLE */
  async thumbnailOf(name) {
    const [key] = name.split("/");
    const address = this.kind === "image" ? `lab/thumbnails/${key}.jpg` : `lab/clips/${key}/0.jpg`;
    const answer = await fetch(new URL(address, document.baseURI));
    return answer.ok ? shrunk(await answer.blob()) : undefined;
  }

  /** The live camera, whose frames the view of a prop shows. */
  addCamera() {
    const view = () => document.querySelector(`#${this.props.camera} .lab-view`)?.["view"];
    const toggle = button("Camera", () => (camera.video ? camera.stop() : begin()), { class: "rail-camera", "aria-pressed": "false" }); // prettier-ignore
    const shoot = button("Take", async () => this.take([new File([await frameOf(camera.video)], "camera.jpg")]), { class: "rail-camera", hidden: true }); // prettier-ignore
    const begin = () => {
      this.turn += 1;
      document.querySelector("#tabs [role=tab]")?.["click"](); // the first tab has the view
      return camera.start();
    };
    const encode = async (video) => {
      const frame = await frameOf(video, LIVE_SIDE);
      const image = await dataAddress(frame);
      const value = await this.server.frame({ image, model: view().props.value.model, block: view().state.block });
      if (value.error) throw new Refusal(value.error);
      return { ...value, image };
    };
    /** @param {import("./live_camera.js").CameraState} state */
    const change = ({ live, rate, problem }) => {
      toggle.setAttribute("aria-pressed", String(live));
      shoot.hidden = !live;
      if (rate) toggle.dataset.rate = rate.toFixed(1); // tests read it
      this.say(problem ?? (rate ? `${rate.toFixed(1)} frames per second` : ""));
      if (!live) view()?.showFrame(null);
    };
    const camera = new LiveCamera({ encode, show: (value) => view()?.showFrame(value), change });
    this.camera = camera;
    return [toggle, shoot];
  }
}

/** @param {Blob} file @returns {Promise<string>} */
function dataAddress(file) {
  return new Promise((resolve) => {
    const reader = new FileReader();
    reader.onload = () => resolve(String(reader.result));
    reader.readAsDataURL(file);
  });
}

/** @param {string} title @param {() => void} onclick @param {Node} content */
function tileButton(title, onclick, content) {
  return el("button", { type: "button", title, onclick }, content);
}

/** Return the views on the screen that show an image of a rail. @returns {any[]} */
function openViews() {
  const views = [...document.querySelectorAll(".lab-view")].map((element) => /** @type {any} */ (element).view);
  return views.filter((view) => view?.endPreview && view.element.getClientRects().length);
}

/** Return width and height of an image; null if the browser cannot decode it. @param {string} address */
async function sizeOf(address) {
  const image = new Image();
  image.src = address;
  await image.decode().catch(() => {});
  return image.naturalWidth ? { width: image.naturalWidth, height: image.naturalHeight } : null;
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
