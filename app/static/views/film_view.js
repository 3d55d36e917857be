// A clip frame by frame with the masks of its objects, and tools that mark objects on the first frame:
// `app.views.view`.
//
// The prop `value` is { clip, name, width, height, count, fps, note, colors, palette, frames }; `encoding` is the
// value of an attention view for the first frame; `following` is { run, id, done, state }, the progress of tracking.

import { css } from "../maths/format.js";
import { Painting, centers } from "../maths/painting.js";
import { Brush, Tools } from "./brush.js";
import { button, el } from "./dom.js";
import { Encoding, Refusal, fetchBytes } from "./encoding.js";
import { Memory } from "./memory.js";
import { Newest } from "./newest.js";
import { packed } from "./paint.js";
import { Stage } from "./stage.js";
import { View } from "./view.js";

const KEYS =
  "On the first frame the arrow keys move the cursor, Space marks or paints. C clicks objects, B draws, E erases, digits choose an object, Control Z undoes.";

export class FilmView extends View {
  clip = null; // the prop `value`
  encoding = null; // Gradio drops a prop when Python updates another
  token = ""; // of the encoding in use
  version = 0; // of model and resolution
  run = null; // of tracking: { run, id, done, state, marked }, its number, name, finished frames and first objects
  runs = 0; // number of the last run
  trailing = false; // show each frame as it is finished
  number = 0; // of the frame on the stage, from 0
  player = 0;
  frames = new Memory(200e6); // decoded
  masks = new Memory(64e6);
  showing = new Newest();
  play = button("▶", () => (this.player ? this.pause() : this.playOn()), { "aria-label": "Play" });
  scrub = el("input", { type: "range", min: 1, max: 1, value: 1, "aria-label": "Frame", oninput: () => this.seek() });
  place = el("output", {}, "–");
  progress = el("progress", { max: 1, value: 0, "aria-label": "Finished frames" });
  status = el("p", { class: "film-status lab-soft", role: "status" });
  chips = el("ul", { class: "lab-tools", "aria-label": "Objects" });
  stage = new Stage(
    "Frame of the clip with its objects",
    KEYS,
    {
      point: () => this.point(),
      leave: () => this.point(),
      press: (place, alt) => this.brush.press(place, alt),
      key: (event) => this.tools.key(event) || this.choose(Number(event.key)),
    },
    "canvas",
  );
  brush = new Brush(this.stage, () => this.refresh());
  tools = new Tools(this.brush);

  /** @param {Mounted} mounted */
  constructor(mounted) {
    super(mounted, { reach: 90 });
    Object.assign(this.stage.on, this.brush.events);
    this.element.classList.add("film");
    const time = el("div", { class: "film-time" }, this.play, this.scrub, this.place);
    const { stage, tools, chips, progress, status } = this;
    this.mount(["value", "encoding", "following"], stage.element, time, tools.element, chips, progress, status);
  }

  // ---- props

  async load() {
    const { value, encoding, following } = this.props;
    if (encoding) this.encoding = encoding;
    if (value.clip !== this.clip?.clip) this.open(value);
    this.announce(`${value.clip} ${this.version}`, { clip: value.clip }); // asks the server for an encoding
    if (following && following.run === this.run?.run) this.proceed(following);
    if (this.encoding?.clip !== value.clip || this.encoding.token === this.token) return;
    const encoded = new Encoding(this.encoding, this.server);
    return [encoded, await encoded.arrays("attention", encoded.blocks - 1), await this.frame(0)];
  }

  /** Take the keys of the first frame, which clicks compare. */
  show([encoding, block, photo]) {
    this.token = encoding.token;
    this.brush.encoded(encoding, block, photo);
    this.stage.step = { x: 1 / encoding.columns, y: 1 / encoding.rows };
    this.refresh();
    this.element.dataset.token = encoding.token; // tests wait for it
  }

  open(clip) {
    const { width, height, count, colors, palette } = clip;
    this.pause();
    Object.assign(this, { clip, run: null, trailing: false, token: "" });
    for (const memory of [this.frames, this.masks]) memory.clear();
    this.decoder = new OffscreenCanvas(width, height).getContext("2d", { willReadFrequently: true });
    this.objects = new Map(palette.map(([red, green, blue], number) => [packed(red, green, blue), number]));
    const painting = new Painting({ width, height, most: colors.length });
    this.brush.encoded(null, null, null);
    this.brush.colors = colors;
    this.stage.show({ name: clip.name, width, height, rows: 1, columns: 1 });
    this.brush.open(painting);
    Object.assign(this.scrub, { max: String(count), value: "1" });
    this.element.dataset.clip = clip.clip;
    this.seekTo(0);
    this.refresh();
  }

  decoder = null;
  objects = null; // by color of the mask files

  /** Model or resolution have changed: ask for another encoding of the first frame. */
  expire() {
    this.version += 1;
    this.look();
  }

  // ---- tracking

  get busy() {
    return this.run?.state === "waiting" || this.run?.state === "running";
  }

  /** Begin to track the marked objects; returns what the server needs. */
  begin() {
    const { painting } = this.brush;
    this.pause();
    this.runs += 1;
    this.run = { run: this.runs, id: "", done: 0, state: "waiting", marked: painting.values.slice() };
    this.trailing = true;
    this.refresh();
    return { clip: this.clip.clip, run: this.runs, runs: painting.runs() };
  }

  /** Stop tracking; finished frames are kept. */
  stop() {
    if (this.busy && this.run.done) this.run.state = "stopped";
    else if (this.busy) this.run = null;
    this.refresh();
  }

  /** What the downloads need: the frames that this page has shown. */
  get request() {
    return { id: this.run?.id ?? "", done: this.run?.done ?? 0, name: this.clip?.name ?? "clip" };
  }

  proceed({ id, done, state }) {
    if (!this.busy) return;
    Object.assign(this.run, { id, done, state });
    this.refresh();
    if (this.trailing && done) this.seekTo(done - 1);
  }

  // ---- marking

  point() {
    this.brush.ring();
    if (!this.brush.preview(this.stage.cursor)) this.stage.draw([], { rows: 1, columns: 1 });
  }

  /** Choose an object by its number; returns whether there is one. @param {number} number */
  choose(number) {
    const known = this.brush.painting.objects.includes(number);
    if (known) this.edit(() => (this.brush.painting.active = number));
    return known;
  }

  /** Change the objects, and show the first frame. @param {() => void} change */
  edit(change) {
    if (this.busy) return;
    this.pause();
    change();
    this.refresh();
    if (this.number) this.seekTo(0);
  }

  // ---- frames

  /** Decode a frame. @param {number} number @returns {Promise<ImageBitmap>} */
  frame(number) {
    const { frames, width, height } = this.clip;
    const fetched = () => this.decode(`${frames}/${number}.jpg`);
    return this.frames.remembered(String(number), 4 * width * height, fetched);
  }

  /** Decode the objects of a finished frame, one byte per pixel. @param {number} number @returns {Promise<Uint8Array>} */
  labels(number) {
    const { width, height } = this.clip;
    const address = `lab/followings/${this.run.id}/${number}.png`;
    return this.masks.remembered(address, width * height, async () => {
      this.decoder.drawImage(await this.decode(address), 0, 0);
      const { data } = this.decoder.getImageData(0, 0, width, height);
      return Uint8Array.from(new Uint32Array(data.buffer), (color) => this.objects.get(color) ?? 0);
    });
  }

  async decode(address) {
    return createImageBitmap(new Blob([await fetchBytes(address, undefined, this.server)]));
  }

  /** Show a frame together with its objects; of several requests, the last. @param {number} number */
  async seekTo(number) {
    const { clip, run } = this;
    const finished = run && number > 0 && number < run.done;
    try {
      const loaded = await this.showing.run(() =>
        Promise.all([this.frame(number), finished ? this.labels(number) : null]),
      );
      if (!loaded || clip !== this.clip) return;
      this.number = number;
      this.stage.photo.getContext("2d").drawImage(loaded[0], 0, 0, clip.width, clip.height);
      this.paint(number === 0 ? this.brush.painting.values : loaded[1]);
    } catch (error) {
      if (!(error instanceof Refusal)) throw error;
      this.pause();
      return this.refuse(error.message);
    }
    this.scrub.value = String(number + 1);
    this.place.textContent = `${number + 1} of ${clip.count}`;
    this.element.dataset.frame = String(number); // tests wait for it
    this.enable();
  }

  /** Draw objects and their numbers over the frame. @param {Uint8Array} values  null: none */
  paint(values) {
    const { width, height, colors } = this.clip;
    const objects = values ?? new Uint8Array(width * height);
    this.brush.show(objects);
    const marks = [...centers(objects, width, height)];
    this.stage.mark(marks.map(([number, place]) => ({ ...place, number, color: css(colors[number - 1]) })));
  }

  seek() {
    this.pause();
    this.trailing = false;
    this.seekTo(Number(this.scrub.value) - 1);
  }

  async playOn() {
    const { clip } = this;
    this.trailing = false;
    const player = (this.player = performance.now());
    this.showPlayer();
    while (this.player === player && this.element.clientWidth) {
      const due = performance.now() + 1000 / clip.fps;
      await this.seekTo((this.number + 1) % clip.count);
      await new Promise((resolve) => setTimeout(resolve, due - performance.now()));
    }
    if (this.player === player) this.pause(); // the tab was closed
  }

  pause() {
    this.player = 0;
    this.showPlayer();
  }

  showPlayer() {
    this.play.textContent = this.player ? "❚❚" : "▶";
    this.play.setAttribute("aria-label", this.player ? "Pause" : "Play");
  }

  // ---- objects and status

  render() {
    if (this.clip) this.enable();
  }

  /** Enable the brush on the first frame unless objects are tracked. */
  enable() {
    this.brush.reach = this.settings.reach / 100;
    this.brush.enabled = this.number === 0 && !this.busy;
    this.tools.apply();
    this.point();
  }

  /** Update what depends on the objects and on the progress of the run. */
  refresh() {
    const { brush, clip, run } = this;
    if (!clip) return;
    if (this.number === 0) this.paint(brush.painting.values);
    else if (!this.busy && !run) this.seekTo(0);
    this.listObjects();
    Object.assign(this.progress, { max: clip.count, value: run?.done ?? 0 });
    const words = this.words;
    if (this.status.textContent !== words) this.status.textContent = words;
    this.element.dataset.state = run?.state ?? "idle"; // tests wait for it
    this.enable();
  }

  /** Progress in words. */
  get words() {
    const { clip, run } = this;
    const { painting } = this.brush;
    if (!run) return `${painting.empty ? "Nothing is marked yet." : "Ready to track."} ${clip.note ?? ""}`.trim();
    const finished = `${run.done} of ${clip.count} frames`;
    const changed = run.marked.some((number, pixel) => number !== painting.values[pixel]);
    const outdated = changed ? " The objects have changed since: track them again." : "";
    if (run.state === "waiting") return "Waiting for the model.";
    if (run.state === "running") return finished;
    if (run.state === "done") return `All ${clip.count} frames are finished.${outdated}`;
    return `Stopped: ${finished} are finished and can be downloaded.${outdated}`;
  }

  listObjects() {
    const { busy, clip } = this;
    const { painting } = this.brush;
    const object = (number) => {
      const pressed = { class: "lab-swatch", "aria-pressed": String(number === painting.active), disabled: busy };
      return el(
        "li",
        { style: `--pin: ${css(clip.colors[number - 1])}` },
        button(`Object ${number}`, () => this.choose(number), pressed),
        button("×", () => this.remove(number), { "aria-label": `Remove object ${number}`, disabled: busy }),
      );
    };
    const full = busy || painting.objects.length >= painting.most;
    const add = button("+ Object", () => this.edit(() => painting.add()), { disabled: full });
    this.chips.replaceChildren(...painting.objects.map(object), el("li", {}, add));
  }

  /** Remove an object, and focus its neighbor. @param {number} number */
  remove(number) {
    const index = this.brush.painting.objects.indexOf(number);
    this.edit(() => this.brush.painting.remove(number));
    this.chips.children[index]?.querySelector("button")?.focus();
  }
}
