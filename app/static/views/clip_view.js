// A clip frame by frame with the masks of its objects, and tools that mark objects on any frame:
// `app.views.view`.
//
// The prop `value` is { clip, name, width, height, count, fps, note, colors, palette, frames }; `encoding` is the
// value of an attention view for a frame of the clip, with clip and frame; `tracked` is { run, id, done, state, progress } of tracking.

import { Painting } from "../maths/painting.js";
import { button, el } from "./dom.js";
import { Editor } from "./editor.js";
import { Encoding, Refusal, fetchBytes } from "./encoding.js";
import { section, shownSection } from "./export.js";
import { Memory } from "./memory.js";
import { Newest, rested } from "./newest.js";
import { packed } from "./paint.js";

const KEYS =
  "The arrow keys move the cursor, Space marks or paints. C clicks objects, X subtracts, B draws, E erases, digits choose an object, Control Z undoes.";

const FILM = 10; // frames of the film

export class ClipView extends Editor {
  clip = null; // the prop `value`
  encoded = null; // the last prop `encoding`: Gradio drops a prop when Python updates another
  run = null; // of tracking: { run, id, done, state, progress }: number, name, finished frames
  outdated = false; // the marks have changed since
  marks = new Map(); // paintings that differ from what was tracked, by number of the frame
  runs = 0; // number of the last run
  trailing = false; // show each frame as it is finished
  number = 0; // of the frame on the stage, from 0
  player = 0;
  frames = new Memory(200e6); // decoded
  masks = new Memory(64e6);
  showing = new Newest();
  decoder = null;
  encodeSoon = rested(() => this.reload()); // after the user has found a frame
  objects = null; // by color of the mask files
  play = button("▶", () => (this.player ? this.pause() : this.playOn()), { "aria-label": "Play" });
  scrub = el("input", { type: "range", min: 1, max: 1, "aria-label": "Frame", oninput: () => this.seek() });
  film = el("div", { class: "clip-film", "aria-hidden": "true" }); // some frames; the slider below chooses
  place = el("output", {}, "–");
  progress = el("progress", { hidden: true, "aria-label": "Finished frames" });

  constructor(mounted) {
    super(mounted, {}, ["Frame of the clip with its objects", KEYS, "canvas"]);
    this.element.classList.add("clip");
    const { stage, chips, progress, film, scrub, play, place } = this;
    stage.cell.append(progress);
    const time = el("div", { class: "clip-time" }, play, el("div", { class: "clip-frames" }, film, scrub), place);
    this.mount(["value", "encoding", "tracked"], stage.cell, time, this.asideOf(chips));
  }

  async load() {
    const { value, encoding, tracked } = this.props;
    if (encoding) this.encoded = encoding;
    if (value.clip !== this.clip?.clip) this.openClip(value);
    const { number } = this;
    if (!this.busy && !this.player) this.emitShown(`${value.clip} ${number}`); // the server encodes the frame
    if (tracked && tracked.run === this.run?.run) this.proceed(tracked);
    if (this.encoded?.clip !== value.clip || this.encoded.frame !== number) return;
    if (this.block && this.encoded.token === this.encoding?.token) return;
    const encoded = new Encoding(this.encoded);
    return { encoding: encoded, block: await encoded.arrays("attention", encoded.blocks - 1) };
  }

  openClip(clip) {
    const { name, width, height, count, colors, palette } = clip;
    this.pause();
    Object.assign(this, { clip, colors, run: null, marks: new Map(), trailing: false, encoding: null, block: null });
    for (const memory of [this.frames, this.masks, this.paintings]) memory.clear();
    this.decoder = new OffscreenCanvas(width, height).getContext("2d", { willReadFrequently: true });
    this.objects = new Map(palette.map(([red, green, blue], number) => [packed(red, green, blue), number]));
    this.stage.show({ name, width, height, rows: 1, columns: 1 });
    this.take(clip.clip, () => new Painting({ width, height }, colors.length));
    Object.assign(this.scrub, { max: String(count), value: "1" });
    this.element.dataset.clip = clip.clip;
    const length = Math.min(FILM, count);
    const film = Array.from({ length }, (_, at) => {
      const number = Math.floor(((at + 0.5) * count) / length);
      const src = new URL(`${clip.frames}/${number}.jpg`, document.baseURI).href;
      return el("img", { src, alt: "", loading: "lazy", onclick: () => this.seek(number) });
    });
    this.film.replaceChildren(...film);
    this.seekTo(0);
    this.refresh();
  }

  get busy() {
    return this.run?.state === "waiting" || this.run?.state === "running";
  }

  frame(number) {
    const { frames, width, height } = this.clip;
    const key = `${frames}/${number}.jpg`;
    return this.frames.remembered(key, async () => [await decode(key), 4 * width * height]);
  }

  /** Decode the objects of a finished frame, one byte per pixel. @param {number} number @returns {Promise<Uint8Array>} */
  labels(number) {
    const { width, height } = this.clip;
    const key = `lab/tracked/${this.run.id}/${number}.png`;
    return this.masks.remembered(key, async () => {
      this.decoder.drawImage(await decode(key), 0, 0);
      const { data } = this.decoder.getImageData(0, 0, width, height);
      return [Uint8Array.from(new Uint32Array(data.buffer), (color) => this.objects.get(color) ?? 0), width * height];
    });
  }

  /** The frames that this page has shown, as arguments of a download. */
  get request() {
    return { id: this.run?.id ?? "", done: this.run?.done ?? 0, name: this.fileName };
  }

  get fileName() {
    return this.clip.name;
  }

  sections() {
    const files = { "overlay.webm": "WebM", "davis.zip": "DAVIS masks", "masks.json": "COCO masks" };
    const formats = Object.entries(files).map(
      ([file, label]) => /** @type {Format} */ ([label, file, () => this.ask({ file })]),
    );
    const tracked = section("Tracked frames", formats);
    return [shownSection(this.stage.element), ...(this.run?.done ? [tracked] : [])];
  }

  /** Take the keys of a frame, which clicks compare. */
  show({ encoding, block }) {
    if (encoding.value.frame !== this.number) return;
    Object.assign(this, { encoding, block, guide: null });
    this.stage.step = { x: 1 / encoding.columns, y: 1 / encoding.rows };
    this.refresh();
    this.element.dataset.token = encoding.token; // tests wait for it
  }

  /** Take the user's painting of a frame, else one of its tracked objects. @param {Uint8Array} tracked */
  openFrame(number, tracked) {
    const { objects, active, most } = this.painting;
    const known = [...new Set([...objects, ...(tracked ?? [])])].filter(Boolean).sort((one, other) => one - other);
    const fresh = Object.assign(new Painting(this.clip, most, known), { active });
    if (tracked) Object.assign(fresh, { values: tracked.slice(), base: tracked });
    if (number !== this.number) Object.assign(this, { block: null, guide: null });
    Object.assign(this, { number, painting: this.marks.get(number) ?? fresh });
    if (!this.busy && !this.player) this.encodeSoon();
  }

  /** Show a frame together with its objects; of several requests, the last. @param {number} number */
  async seekTo(number) {
    const { clip, run } = this;
    const finished = run && number < run.done && !this.marks.has(number);
    try {
      const loaded = await this.showing.run(() =>
        Promise.all([this.frame(number), finished ? this.labels(number) : null]),
      );
      if (!loaded || clip !== this.clip) return;
      this.openFrame(number, loaded[1]);
      this.stage.image.getContext("2d").drawImage(loaded[0], 0, 0, clip.width, clip.height);
      this.showMask();
    } catch (error) {
      if (!(error instanceof Refusal)) throw error;
      this.pause();
      return this.refuse(error.message);
    }
    this.scrub.value = String(number + 1);
    this.place.textContent = `${number + 1} of ${clip.count}`;
    this.element.dataset.frame = String(number); // tests wait for it
    this.render();
  }

  /** Enable the tools unless objects are tracked or the clip plays. */
  render() {
    if (!this.clip) return;
    this.enabled = !this.busy && !this.player;
    this.apply();
  }

  /** Update what depends on the objects and on the progress of the run. */
  refresh() {
    const { painting, clip, run } = this;
    if (!clip) return;
    this.showMask();
    this.listObjects();
    Object.assign(this.progress, { value: run?.progress ?? 0, hidden: !this.busy });
    const { statusText } = this;
    if (this.status.textContent !== statusText) this.status.textContent = statusText;
    this.element.dataset.state = run?.state ?? "idle"; // tests wait for it
    this.render();
  }

  get statusText() {
    const { clip, run, marks, outdated } = this;
    const numbers = [...marks.keys()].sort((one, other) => one - other).map((number) => number + 1);
    const marked = numbers.length ? `Ready to track. Marked frames: ${numbers.join(", ")}.` : "Nothing is marked yet.";
    if (!run) return `${marked} ${clip.note ?? ""}`.trim();
    const finished = `${run.done} of ${clip.count} frames`;
    const again = outdated ? " The marks have changed since: track again." : "";
    return {
      waiting: "Waiting for the model.",
      running: run.backward ? `Tracking backward. ${finished} are finished.` : finished,
      done: `All ${clip.count} frames are finished.${again}`,
      stopped: `Stopped: ${finished} are finished and can be downloaded.${again}`,
    }[run.state];
  }

  listObjects() {
    const remove = (number) =>
      button("×", () => this.remove(number), { "aria-label": `Remove object ${number}`, disabled: this.busy });
    super.listObjects((number) => `Object ${number}`, remove);
  }

  /** Begin to track; returns what the server needs. A mask decides the objects of its painting, and those tracked there. */
  begin() {
    this.pause();
    this.runs += 1;
    this.run = { run: this.runs, id: "", done: 0, state: "waiting", progress: 0 };
    Object.assign(this, { trailing: true, outdated: false });
    this.refresh();
    const marks = [...this.marks].map(([frame, painting]) => {
      const objects = [...new Set([...painting.values, ...(painting.base ?? [])])].filter(Boolean);
      return { frame, runs: painting.runs(), objects };
    });
    return { clip: this.clip.clip, run: this.runs, marks };
  }

  proceed({ id, done, state, progress }) {
    if (!this.busy) return;
    Object.assign(this.run, { id, done, state, progress, backward: done === this.run.done });
    this.refresh();
    if (this.trailing && done) this.seekTo(done - 1);
  }

  stop() {
    if (this.busy && this.run.done) this.run.state = "stopped";
    else if (this.busy) this.run = null;
    this.refresh();
    if (!this.run) this.seekTo(this.number);
  }

  edit(change) {
    if (this.busy) return;
    this.pause();
    change();
    this.changed();
  }

  changed() {
    const { painting, number } = this;
    this.outdated = true;
    if (painting.values.some((value, pixel) => value !== (painting.base?.[pixel] ?? 0)))
      this.marks.set(number, painting);
    else this.marks.delete(number);
    this.refresh();
  }

  remove(number) {
    const index = this.painting.objects.indexOf(number);
    this.edit(() => this.painting.remove(number));
    this.chips.children[index]?.querySelector("button")?.focus();
  }

  seek(number = Number(this.scrub.value) - 1) {
    this.pause();
    this.trailing = false;
    this.seekTo(number);
  }

  async playOn() {
    const { clip } = this;
    this.trailing = false;
    const player = performance.now();
    this.pause(player);
    while (this.player === player && this.element.clientWidth) {
      const due = performance.now() + 1000 / clip.fps;
      await this.seekTo((this.number + 1) % clip.count);
      await new Promise((resolve) => setTimeout(resolve, due - performance.now()));
    }
    if (this.player === player) this.pause(); // the tab was closed
  }

  /** Stop the player, or show another one. */
  pause(player = 0) {
    this.player = player;
    this.play.textContent = player ? "❚❚" : "▶";
    this.play.setAttribute("aria-label", player ? "Pause" : "Play");
    this.render();
    if (!player && this.clip && !this.busy) this.encodeSoon();
  }
}

async function decode(address) {
  return createImageBitmap(new Blob([await fetchBytes(address)]));
}
