// The tab Video: objects are marked on the first frame here, followed by the server, and looked at here again.

import { Alert } from "./alert.js";
import { Painting } from "./brush.js";
import { Encoding, keep } from "./encoding.js";
import { offerExamples } from "./examples.js";
import { listFacts } from "./facts.js";
import { outlinePath } from "./paint.js";
import { keyVectors, proposal } from "./proposal.js";
import { receivePhotos } from "./receive.js";
import { Frames } from "./video_frames.js";
import { VideoStage } from "./video_stage.js";

const TOOLS = { c: "click", b: "paint", e: "erase" };
const BRUSH_STEP = 4;

/**
 * Start the tab inside its component. Called once, by the line of script that Gradio runs when the component loads.
 * @param {HTMLElement} element  the component
 * @param {object} props  value: a clip, how far it is followed, or an error; facts: limits and examples, given once
 * @param {Function} watch  calls back when the server sends another value
 * @param {object} send  what the server is asked: example({name}), follow({clip, runs}), cancel({clip})
 */
export function mount({ element, props, watch, send }) {
  const film = new Film(element.querySelector(".video"), props.facts, send);
  const load = () => props.value && film.receive(props.value);
  watch("value", load);
  load();
  receivePhotos("video", props.facts.maxBytes, (sentence) => film.alert.say(sentence));
  if (!props.value) send.example({ name: props.facts.first });
}

class Film {
  constructor(root, facts, send) {
    this.root = root;
    this.find = (selector) => root.querySelector(selector);
    this.alert = new Alert(this.find(".lab-alert"));
    this.facts = facts;
    this.send = send;
    this.form = this.find(".lab-settings");
    this.scrub = this.find(".video-scrub");
    this.clip = null;
    this.state = "idle"; // or "waiting", "running", "done", "cancelled"
    this.done = 0; // frames that have masks
    this.number = 0; // the frame that is shown, from 0
    this.turn = 0; // counts frames asked for, so that a late one is dropped
    this.player = 0;
    this.stage = new VideoStage(this.find(".lab-stage"), facts.colors, {
      point: () => this.point(),
      leave: () => this.point(),
      down: (pixel) => this.down(pixel),
      drag: (from, to) => this.stroke(from, to),
      up: () => this.refresh(),
      key: (event) => this.key(event),
    });
    this.find(".video-limits").textContent = facts.limits;
    offerExamples(this.find(".lab-examples"), facts.examples, ({ name }) => send.example({ name }));
    this.listen();
    root.film = this; // for the browser's console, and for tests
  }

  listen() {
    const on = (selector, action) => this.find(selector).addEventListener("click", () => this.clip && action());
    on(".video-add", () => this.edit(() => this.painting.add()));
    on(".video-undo", () => this.edit(() => this.painting.undo()));
    on(".video-redo", () => this.edit(() => this.painting.redo()));
    on(".video-clear", () => this.edit(() => this.painting.clear()));
    on(".video-start", () => this.follow());
    on(".video-cancel", () => this.send.cancel({ clip: this.clip.token }));
    on(".video-play", () => (this.player ? this.pause() : this.play()));
    this.form.addEventListener("submit", (event) => event.preventDefault());
    this.form.addEventListener("input", () => this.showTool());
    this.scrub.addEventListener("input", () => {
      this.pause();
      this.trailing = false;
      this.show(Number(this.scrub.value) - 1);
    });
    for (const button of this.root.querySelectorAll("[data-download]")) {
      const { download } = button.dataset;
      button.addEventListener("click", () => this.alert.afresh(() => keep(`${this.frames.url}/${download}`, download)));
    }
    this.showTool();
  }

  // ---- what the server sends

  /** A clip with the encoding of its first frame, another encoding of it, how far it is followed, or an error. */
  receive({ clip, encoding, progress, error }) {
    this.alert.say(error ?? "");
    if (error && this.busy) this.arrive(this.done ? "cancelled" : "idle");
    if (clip) this.open(clip);
    if (encoding) this.look(encoding);
    if (progress) this.proceed(progress);
  }

  open(clip) {
    this.pause();
    Object.assign(this, { clip, done: 0, state: "idle", vectors: null, followed: null, trailing: false });
    this.frames = new Frames(clip, this.facts.palette);
    this.painting = new Painting({ ...clip, most: this.facts.objects });
    this.stage.open(clip);
    this.scrub.max = clip.frames;
    const note = this.find(".video-note");
    note.textContent = clip.note;
    note.hidden = !clip.note;
    for (const control of [this.scrub, this.find(".video-play")]) control.disabled = false;
    this.find(".video-start").textContent = `Follow through ${clip.frames} frames`;
    this.show(0);
    this.refresh();
    this.root.dataset.clip = clip.token; // says that the clip is open
  }

  /** Fetch the keys from which clicks propose masks. */
  async look(value) {
    const { token } = this.clip;
    const encoding = new Encoding(value);
    const block = await this.alert.attempt(() => encoding.block(encoding.blocks - 1));
    if (!block || token !== this.clip.token) return;
    Object.assign(this, { encoding, vectors: keyVectors(block) });
    listFacts(this.find(".lab-facts"), [...this.clip.facts, ...value.facts]);
    this.showTool();
    this.root.dataset.encoding = encoding.token; // says that clicks are understood
  }

  proceed({ clip, done, state, left }) {
    if (clip !== this.clip?.token) return;
    if (state === "running" && !["waiting", "running"].includes(this.state)) return; // came after the cancel
    this.done = done;
    this.left = left;
    this.arrive(state);
    if (this.trailing && done) this.show(done - 1);
  }

  /** Another state of the following; said aloud where it is news. */
  arrive(state) {
    const news = state !== this.state;
    this.state = state;
    this.refresh();
    if (news) this.find(".video-spoken").textContent = this.told;
  }

  get busy() {
    return this.state === "waiting" || this.state === "running";
  }

  follow() {
    this.pause();
    this.frames.forget();
    this.followed = this.painting.values.slice();
    this.done = 0;
    this.trailing = true;
    this.alert.say("");
    this.arrive("waiting");
    this.send.follow({ clip: this.clip.token, runs: this.painting.runs() });
  }

  // ---- marking

  get tool() {
    return this.form.elements.tool.value;
  }

  get radius() {
    return this.tool === "click" ? 0 : Number(this.form.elements.brush.value) / 2;
  }

  /** Whether the frame that is shown can be painted. */
  get marking() {
    return Boolean(this.clip) && this.number === 0 && !this.busy;
  }

  /** Show what a click or the brush would do where the cursor is. */
  point() {
    const { cursor } = this.stage;
    this.stage.brush(this.marking ? this.radius : 0);
    const kept = cursor && this.marking && this.tool === "click" ? this.proposed(cursor) : null;
    const { rows, columns } = this.encoding ?? { rows: 1, columns: 1 };
    this.stage.outline(kept ? outlinePath(kept, rows, columns) : "", { rows, columns });
  }

  /** The patches that a click on a pixel would take; null before the keys are here. */
  proposed({ x, y }) {
    if (!this.vectors) return null;
    const { rows, columns } = this.encoding;
    const row = Math.floor((y / this.clip.height) * rows);
    const column = Math.floor((x / this.clip.width) * columns);
    return proposal(this.vectors, this.encoding, { row, column }, Number(this.form.elements.reach.value) / 100);
  }

  down(pixel) {
    if (!this.marking) return;
    if (this.tool !== "click") {
      this.painting.remember();
      return this.stroke(pixel, pixel);
    }
    const kept = this.proposed(pixel);
    if (!kept) return;
    this.edit(() => {
      this.painting.remember();
      this.painting.fill(kept, this.encoding);
    });
  }

  stroke(from, to) {
    if (!this.marking || this.tool === "click") return;
    this.painting.line(from, to, this.radius, this.tool === "erase" ? 0 : this.painting.active);
    this.stage.paint(this.painting.values);
    this.point();
  }

  /** Change the objects, on the first frame. */
  edit(change) {
    if (this.busy) return;
    this.pause();
    change();
    this.refresh();
    if (this.number === 0) this.stage.paint(this.painting.values);
    else this.show(0);
  }

  /** Whether the key meant something here. */
  key({ key, ctrlKey, metaKey, shiftKey }) {
    const { brush, tool } = this.form.elements;
    const letter = key.toLowerCase();
    if (ctrlKey || metaKey) {
      if (letter !== "z") return false;
      this.edit(() => (shiftKey ? this.painting.redo() : this.painting.undo()));
    } else if (TOOLS[letter]) tool.value = TOOLS[letter];
    else if (key === "+") brush.value = Number(brush.value) + BRUSH_STEP;
    else if (key === "-") brush.value = Number(brush.value) - BRUSH_STEP;
    else if (this.painting.objects.includes(Number(key))) this.edit(() => (this.painting.active = Number(key)));
    else return false;
    this.showTool();
    return true;
  }

  // ---- looking

  /** Bring a frame and its objects to the stage, together. */
  async show(number) {
    const turn = ++this.turn;
    const labels = number > 0 && number < this.done ? this.frames.labels(number) : null;
    const shown = await this.alert.attempt(() => Promise.all([this.frames.picture(number), labels]));
    if (!shown || turn !== this.turn) return;
    this.number = number;
    this.stage.show(shown[0], number === 0 ? this.painting.values : shown[1]);
    this.scrub.value = number + 1;
    this.find(".video-place").value = `${number + 1} of ${this.clip.frames}`;
    this.root.dataset.frame = number; // says that it is on the screen
    this.point();
  }

  async play() {
    this.trailing = false;
    const player = (this.player = performance.now());
    this.showPlayer();
    while (this.player === player) {
      const due = performance.now() + 1000 / this.clip.fps;
      await this.show((this.number + 1) % this.clip.frames);
      await new Promise((resolve) => setTimeout(resolve, due - performance.now()));
    }
  }

  pause() {
    this.player = 0;
    this.showPlayer();
  }

  showPlayer() {
    const button = this.find(".video-play");
    button.setAttribute("aria-pressed", String(this.player > 0));
    button.setAttribute("aria-label", this.player ? "Pause" : "Play");
  }

  showTool() {
    const { reach, brush } = this.form.elements;
    this.find(".video-reach output").value = `${reach.value} %`;
    this.find(".video-brush output").value = `${brush.value} px`;
    this.root.dataset.tool = this.tool;
    const patch = this.encoding && this.clip ? this.clip.width / this.encoding.columns : 8;
    this.stage.step = this.tool === "click" ? patch : Math.max(2, this.radius / 2);
    if (this.clip) this.point();
  }

  /** Everything that follows from the objects, and from how far they are followed. */
  refresh() {
    const { painting, busy, clip } = this;
    this.listObjects();
    const enable = (selector, enabled) => (this.find(selector).disabled = !enabled);
    enable(".video-undo", !busy && painting.past.length);
    enable(".video-redo", !busy && painting.future.length);
    enable(".video-clear", !busy && !painting.empty);
    enable(".video-add", !busy && painting.objects.length < painting.most);
    enable(".video-start", !busy && !painting.empty);
    this.find(".video-cancel").hidden = !busy;
    for (const button of this.root.querySelectorAll("[data-download]")) button.disabled = !this.done;
    this.find(".video-told").textContent = this.told;
    const progress = this.find(".video-progress");
    progress.max = clip.frames;
    progress.value = this.done;
    this.root.dataset.state = this.state;
    this.scrub.style.setProperty("--done", this.done / clip.frames);
  }

  /** How far the objects are followed, in words. */
  get told() {
    const { done, clip, painting, followed } = this;
    const soFar = `${done} of ${clip.frames} frames`;
    const left = this.left > 0 ? ` · about ${Math.ceil(this.left)} s left` : "";
    const changed = followed?.some((number, pixel) => number !== painting.values[pixel]);
    const stale = changed ? " The objects have changed since: follow them again." : "";
    switch (this.state) {
      case "waiting":
        return "Waiting for the model.";
      case "running":
        return soFar + left;
      case "done":
        return `All ${clip.frames} frames are followed.${stale}`;
      case "cancelled":
        return `Stopped: ${soFar} are followed and can be kept.${stale}`;
      default:
        return painting.empty ? "Nothing is marked yet." : "Ready to be followed.";
    }
  }

  listObjects() {
    const { painting, busy } = this;
    const chips = painting.objects.map((number) => {
      const chip = element("li", { className: "lab-chip" });
      chip.style.setProperty("--pin", `rgb(${this.facts.colors[number - 1].join(" ")})`);
      const name = element("button", { type: "button", textContent: `Object ${number}`, disabled: busy });
      name.setAttribute("aria-pressed", String(number === painting.active));
      name.addEventListener("click", () => this.edit(() => (painting.active = number)));
      const remove = element("button", { type: "button", textContent: "×", disabled: busy });
      remove.setAttribute("aria-label", `Remove object ${number}`);
      remove.addEventListener("click", () => this.edit(() => painting.remove(number)));
      chip.append(name, remove);
      return chip;
    });
    this.find(".lab-queries").replaceChildren(...chips);
  }

  // ---- words
}

function element(name, properties = {}) {
  return Object.assign(document.createElement(name), properties);
}
