// Film: a clip frame by frame with the masks of its objects, and tools that mark objects on the first frame.
//
// Props: `value` is { clip, name, width, height, count, fps, note, marked, colors, palette } and either `frames`, the
// address of the frames, or `pictures` and `masks`, the frames and run lengths themselves; `encoding` is the value of an
// attention view for the first frame; `following` is { run, id, done, left, state }. Emits "shown" when the first frame
// needs an encoding and "edited" when a key chooses a tool.

import { css } from "../maths/format.js";
import { outlinePath } from "../maths/labels.js";
import { Painting, centres, fromRuns, tint } from "../maths/painting.js";
import { Clicks } from "./clicks.js";
import { el, style } from "./dom.js";
import { Encoding, Refusal, fetchBytes } from "./encoding.js";
import { Memory } from "./memory.js";
import { Newest } from "./newest.js";
import { packed } from "./paint.js";
import { Stage } from "./stage.js";

/**
 * @typedef {object} Clip
 * @property {string} clip  name on the server
 * @property {string} name
 * @property {number} width
 * @property {number} height
 * @property {number} count  of frames
 * @property {number} fps
 * @property {string} note
 * @property {number[]} marked  run lengths of the objects that the file has on its first frame
 * @property {number[][]} colors  of the objects
 * @property {number[][]} palette  of the mask files
 * @property {string} [frames]
 * @property {string[]} [pictures]
 * @property {number[][]} [masks]
 *
 * @typedef {object} Run  tracking of the marked objects
 * @property {number} run  number that the answers repeat
 * @property {string} id  name on the server, "" while waiting
 * @property {number} done  finished frames
 * @property {number} left  estimated seconds
 * @property {"waiting" | "running" | "done" | "stopped"} state
 * @property {Uint8Array} marked  the objects at its start
 */

const TOOLS = /** @type {Record<string, string>} */ ({ c: "click", b: "paint", e: "erase" });
const PICTURE_BYTES = 200e6; // decoded frames that are kept
const MASK_BYTES = 64e6;
const MAX_STORED = 200_000; // characters of a marking in the browser's session storage
const DEFAULT_PATCHES = 16;
const KEYS =
  "On the first frame the arrow keys move the cursor, Space marks or paints. C clicks objects, B paints, E erases, digits choose an object, Control Z undoes.";

let nextId = 0;

export class FilmView {
  play = el("button", { type: "button", class: "film-play", "aria-label": "Play", onclick: () => this.togglePlayer() });
  scrub = el("input", { type: "range", min: 1, max: 1, value: 1, "aria-label": "Frame", oninput: () => this.seek() });
  place = el("output", {}, "–");
  progress = el("progress", { max: 1, value: 0, "aria-label": "Finished frames" });
  status = el("p", { class: "film-status", role: "status" });
  chips = el("ul", { "aria-label": "Objects" });
  buttons = {
    add: button("+ Object", () => this.edit(() => this.painting.add())),
    undo: button("Undo", () => this.edit(() => this.painting.undo())),
    redo: button("Redo", () => this.edit(() => this.painting.redo())),
    clear: button("Clear", () => this.edit(() => this.painting.clear())),
  };
  tools = el("div", { class: "film-objects" }, this.chips, ...Object.values(this.buttons));
  stage = new Stage(
    el("div", {
      class: "lab-stage",
      tabindex: 0,
      role: "application",
      "aria-label": "Frame of the clip with its objects",
    }),
    {
      point: () => this.point(),
      leave: () => this.point(),
      press: (place, other) => this.press(place, other),
      stroke: (from, to) => this.stroke(from, to),
      lift: () => this.refresh(),
      undo: (again) => this.edit(() => this.painting[again ? "redo" : "undo"]()),
      key: (event) => this.key(event),
    },
    { film: true },
  );
  frame = /** @type {CanvasRenderingContext2D} */ (this.stage.photo.getContext("2d"));
  overlay = /** @type {CanvasRenderingContext2D} */ (this.stage.overlay.getContext("2d"));

  /** @param {any} context */
  constructor({ element, props, watch, emit, server }) {
    this.root = /** @type {HTMLElement} */ (element);
    this.props = props;
    this.emit = emit;
    this.server = server;
    this.settings = { tool: "click", reach: 90, brush: 24 };
    this.showing = new Newest();
    this.clicks = new Clicks();
    this.painting = new Painting({ width: 1, height: 1, most: 1 });
    /** @type {Clip | null} */
    this.clip = null;
    /** @type {Run | null} */
    this.run = null;
    this.runs = 0; // number of the last run
    this.trailing = false; // show each frame as it is finished
    this.number = 0; // frame on the stage, from 0
    this.player = 0;
    this.stale = true; // the first frame needs an encoding
    this.token = ""; // of the encoding in use
    /** @type {Memory<Promise<any>>} */
    this.pictures = new Memory(PICTURE_BYTES);
    /** @type {Memory<Promise<Uint8Array>>} */
    this.masks = new Memory(MASK_BYTES);
    this.root.classList.add("film");
    for (const sheet of ["views.css", "film.css"]) style(this.root, new URL(sheet, import.meta.url).href);
    const keys = `film-keys-${(nextId += 1)}`;
    this.stage.element.setAttribute("aria-describedby", keys);
    this.root.replaceChildren(
      this.stage.element,
      el("p", { id: keys, class: "lab-spoken" }, KEYS),
      el("div", { class: "film-time" }, this.play, this.scrub, this.place),
      this.tools,
      this.progress,
      this.status,
    );
    watch(["value", "encoding", "following"], () => this.update());
    new ResizeObserver(() => this.update()).observe(this.root);
    this.update();
  }

  // ---- props

  /** Take in new props. A hidden view does nothing. */
  update() {
    if (!this.root.clientWidth) return;
    const { value, encoding, following } = this.props;
    if (encoding) this.answered = encoding; // Gradio drops a prop when Python updates another
    if (value && value.clip !== this.clip?.clip) this.open(value);
    if (!this.clip) return;
    if (this.stale && !this.clip.pictures) {
      this.stale = false;
      this.emit("shown", { clip: this.clip.clip });
    }
    this.encode();
    if (following && following.run === this.run?.run) this.proceed(following);
  }

  /** @type {any} */
  answered = null;

  /** Model or resolution have changed: ask for another encoding of the first frame when visible. */
  expire() {
    this.stale = true;
    this.update();
  }

  /** @param {Clip} clip */
  open(clip) {
    this.pause();
    Object.assign(this, { clip, run: null, trailing: false, token: "", stale: true });
    this.clicks.forget();
    this.pictures.clear();
    this.masks.clear();
    const { width, height, count, colors } = clip;
    this.decoder = new OffscreenCanvas(width, height).getContext("2d", { willReadFrequently: true });
    this.numbers = new Map(clip.palette.map(([red, green, blue], number) => [packed(red, green, blue), number]));
    this.painting = new Painting({ width, height, most: colors.length });
    this.painting.resume(clip.pictures ? (clip.masks?.[0] ?? []) : (stored(clip.clip) ?? clip.marked));
    this.stage.show({ name: clip.name, width, height, rows: 1, columns: 1 });
    Object.assign(this.stage.overlay, { width, height });
    this.image = this.overlay.createImageData(width, height);
    Object.assign(this.scrub, { max: String(count), value: "1" });
    for (const part of [this.tools, this.progress, this.status])
      part?.toggleAttribute("hidden", Boolean(clip.pictures));
    this.root.dataset.clip = clip.clip;
    this.show(0);
    this.refresh();
  }

  /** Fetch the keys of the first frame once its encoding is known. */
  async encode() {
    const { clip, answered: value } = this;
    if (!value || value.clip !== clip?.clip || value.token === this.token) return;
    this.token = value.token;
    try {
      const encoding = new Encoding(value, this.server);
      const block = await encoding.arrays("attention", encoding.blocks - 1);
      if (value.token !== this.token || clip !== this.clip) return;
      this.clicks.open(encoding, block, () => this.firstFrame ?? this.stage.photo);
      this.firstFrame = await this.picture(0);
      this.applySettings();
      this.root.dataset.token = value.token; // tests wait for it
    } catch (error) {
      this.token = "";
      this.fail(error);
    }
  }

  /** @type {any} */
  firstFrame = null;

  // ---- tracking

  get busy() {
    return this.run?.state === "waiting" || this.run?.state === "running";
  }

  /** Begin to track the marked objects; returns what the server needs. */
  begin() {
    this.pause();
    this.runs += 1;
    const marked = this.painting.values.slice();
    this.run = { run: this.runs, id: "", done: 0, left: 0, state: "waiting", marked };
    this.trailing = true;
    this.refresh();
    return { clip: this.clip?.clip ?? "", run: this.runs, runs: this.painting.runs() };
  }

  /** Tracking has ended early; finished frames stay. */
  stop() {
    if (this.busy && this.run?.done) this.run.state = "stopped";
    else if (this.busy) this.run = null;
    this.refresh();
  }

  /** What the downloads need: the frames that this page has seen. */
  get request() {
    return { id: this.run?.id ?? "", done: this.run?.done ?? 0, name: this.clip?.name ?? "clip" };
  }

  /** @param {any} answer */
  proceed(answer) {
    const { run } = this;
    if (!run || !this.busy) return;
    Object.assign(run, { id: answer.id, done: answer.done, left: answer.left, state: answer.state });
    this.refresh();
    if (this.trailing && run.done) this.show(run.done - 1);
  }

  // ---- marking

  /** @param {Partial<FilmView["settings"]>} settings */
  set(settings) {
    Object.assign(this.settings, settings);
    this.applySettings();
  }

  /** Tool of the Gradio control after a key has chosen another. */
  get tool() {
    return this.settings.tool;
  }

  /** Whether the frame on the stage can be marked. */
  get marking() {
    return Boolean(this.clip) && !this.clip?.pictures && this.number === 0 && !this.busy;
  }

  applySettings() {
    const { tool, reach, brush } = this.settings;
    const clicks = tool === "click";
    this.clicks.reach = reach / 100;
    this.root.dataset.tool = tool;
    this.stage.paints = !clicks && this.marking;
    this.stage.element.dataset.tool = this.stage.paints ? tool : "point";
    if (!this.clip) return;
    const { width, height } = this.clip;
    const { rows, columns } = this.clicks.encoding ?? { rows: DEFAULT_PATCHES, columns: DEFAULT_PATCHES };
    const step = Math.max(2, brush / 4);
    this.stage.step = clicks ? { x: 1 / columns, y: 1 / rows } : { x: step / width, y: step / height };
    this.point();
  }

  /** Preview what a click or the brush would do at the cursor. */
  point() {
    const { cursor } = this.stage;
    const clicks = this.settings.tool === "click";
    this.stage.ringAt(this.marking && !clicks ? this.settings.brush / this.painting.width : 0);
    const patches = cursor && this.marking && clicks ? this.clicks.proposed(cursor) : null;
    const { rows, columns } = this.clicks.encoding ?? { rows: 1, columns: 1 };
    this.stage.ink.setAttribute("viewBox", `0 0 ${columns} ${rows}`);
    this.stage.draw(patches ? [{ path: outlinePath(patches.values, rows, columns), color: "#fff" }] : []);
  }

  /** @param {Place} place @param {boolean} [remove] */
  press(place, remove = false) {
    const patches = this.marking && this.settings.tool === "click" ? this.clicks.proposed(place) : null;
    if (!patches) return;
    this.edit(() => {
      this.painting.remember();
      this.painting.take(this.clicks.refined(patches), remove ? 0 : this.painting.active);
    });
  }

  /** @param {Place} from @param {Place} to */
  stroke(from, to) {
    if (!this.marking) return;
    const { painting, settings } = this;
    if (from === to) painting.remember();
    const pixel = (/** @type {Place} */ { x, y }) => ({ x: x * painting.width, y: y * painting.height });
    painting.line(
      pixel(from),
      pixel(to),
      Math.max(0.5, settings.brush / 2),
      settings.tool === "erase" ? 0 : painting.active,
    );
    this.paint(painting.values);
    this.point();
  }

  /** Change the objects and show the first frame. @param {() => void} change */
  edit(change) {
    if (this.busy || !this.clip) return;
    this.pause();
    change();
    this.refresh();
    if (this.number === 0) this.paint(this.painting.values);
    else this.show(0);
  }

  /** Handle a key; returns whether it had a meaning. @param {KeyboardEvent} event */
  key({ key }) {
    const tool = TOOLS[key.toLowerCase()];
    if (tool) {
      this.set({ tool });
      this.emit("edited", { tool });
    } else if (this.painting.objects.includes(Number(key))) this.edit(() => (this.painting.active = Number(key)));
    else return false;
    return true;
  }

  // ---- frames

  /** @param {number} number @returns {Promise<ImageBitmap>} */
  picture(number) {
    const clip = /** @type {Clip} */ (this.clip);
    return remembered(this.pictures, `${clip.clip}/${number}`, 4 * clip.width * clip.height, async () => {
      if (clip.pictures) return createImageBitmap(await (await fetch(clip.pictures[number])).blob());
      return this.decoded(`${clip.frames}/${number}.jpg`, ["frames", clip.clip, number]);
    });
  }

  /** Objects of a finished frame, one byte per pixel. @param {number} number @returns {Promise<Uint8Array>} */
  labels(number) {
    const { width, height, clip, frames, masks } = /** @type {Clip} */ (this.clip);
    if (masks) return Promise.resolve(fromRuns(masks[number], width * height));
    const id = this.run?.id ?? "";
    return remembered(this.masks, `${clip}/${id}/${number}`, width * height, async () => {
      const address = frames && `lab/followings/${id}/${number}.png`;
      const mask = await this.decoded(address, ["masks", id, number]);
      const context = /** @type {OffscreenCanvasRenderingContext2D} */ (this.decoder);
      context.drawImage(mask, 0, 0);
      const { data } = context.getImageData(0, 0, width, height);
      return Uint8Array.from(new Uint32Array(data.buffer), (color) => this.numbers?.get(color) ?? 0);
    });
  }

  /** An image file by its address, or from the server function where there are no routes.
   * @param {string | undefined} address @param {[string, string, number]} question
   */
  async decoded(address, question) {
    if (this.clip?.frames && address) return createImageBitmap(new Blob([await fetchBytes(address)]));
    const text = await this.server?.fetch_frame?.(question);
    if (typeof text !== "string") throw new Refusal("The server does not send this frame. Open the clip again.");
    return createImageBitmap(await (await fetch(`data:application/octet-stream;base64,${text}`)).blob());
  }

  /** Show a frame together with its objects; of several requests, the last. @param {number} number */
  async show(number) {
    const { clip, run } = this;
    if (!clip) return;
    const finished = clip.masks ? number > 0 : run && number > 0 && number < run.done;
    try {
      const shown = await this.showing.run(() =>
        Promise.all([this.picture(number), finished ? this.labels(number) : null]),
      );
      if (!shown || clip !== this.clip) return;
      this.number = number;
      this.frame.drawImage(shown[0], 0, 0, clip.width, clip.height);
      this.paint(number === 0 ? this.painting.values : shown[1]);
    } catch (error) {
      this.pause();
      return this.fail(error);
    }
    this.scrub.value = String(number + 1);
    this.place.textContent = `${number + 1} of ${clip.count}`;
    this.root.dataset.frame = String(number); // tests wait for it
    this.applySettings();
  }

  /** @param {unknown} error */
  fail(error) {
    if (!(error instanceof Refusal)) throw error;
    this.status.textContent = error.message;
  }

  /** Draw objects and their numbers over the frame; null draws none. @param {Uint8Array | null} values */
  paint(values) {
    const { clip, image } = this;
    if (!clip || !image) return;
    const { width, height, colors } = clip;
    const objects = values ?? new Uint8Array(width * height);
    tint(objects, width, colors, image.data);
    this.overlay.putImageData(image, 0, 0);
    const marks = [...centres(objects, width, height)];
    this.stage.mark(marks.map(([number, place]) => ({ ...place, number, color: css(colors[number - 1]) })));
  }

  /** @type {ImageData | undefined} */
  image;

  seek() {
    this.pause();
    this.trailing = false;
    this.show(Number(this.scrub.value) - 1);
  }

  togglePlayer() {
    if (this.player) this.pause();
    else this.start();
  }

  async start() {
    const { clip } = this;
    if (!clip) return;
    this.trailing = false;
    const player = (this.player = performance.now());
    this.showPlayer();
    while (this.player === player && this.root.clientWidth) {
      const due = performance.now() + 1000 / clip.fps;
      await this.show((this.number + 1) % clip.count);
      await new Promise((resolve) => setTimeout(resolve, due - performance.now()));
    }
    if (this.player === player) this.pause(); // the tab was closed
  }

  pause() {
    this.player = 0;
    this.showPlayer();
  }

  showPlayer() {
    this.play?.setAttribute("aria-pressed", String(this.player > 0));
    this.play?.setAttribute("aria-label", this.player ? "Pause" : "Play");
  }

  // ---- objects and status

  /** Update everything that depends on the objects and on the progress of the run. */
  refresh() {
    const { painting, busy, clip, run, buttons } = this;
    if (!clip || !buttons) return;
    this.listObjects();
    if (!clip.pictures) store(clip.clip, painting);
    buttons.add.disabled = busy || painting.objects.length >= painting.most;
    buttons.undo.disabled = busy || !painting.past.length;
    buttons.redo.disabled = busy || !painting.future.length;
    buttons.clear.disabled = busy || painting.empty;
    Object.assign(this.progress, { max: clip.count, value: run?.done ?? 0 });
    const words = this.words;
    if (this.status.textContent !== words) this.status.textContent = words;
    this.root.dataset.state = run?.state ?? "idle"; // tests wait for it
    this.root.dataset.done = String(run?.done ?? 0);
    this.applySettings();
  }

  /** Progress in words. */
  get words() {
    const { clip, painting, run } = this;
    if (!clip) return "";
    const note = clip.note ? ` ${clip.note}` : "";
    if (!run) return (painting.empty ? "Nothing is marked yet." : "Ready to track.") + note;
    const finished = `${run.done} of ${clip.count} frames`;
    const changed = run.marked.some((number, pixel) => number !== painting.values[pixel]);
    const outdated = changed ? " The objects have changed since: track them again." : "";
    switch (run.state) {
      case "waiting":
        return "Waiting for the model.";
      case "running":
        return finished + (run.left > 0 ? ` · about ${Math.ceil(run.left)} s left` : "");
      case "done":
        return `All ${clip.count} frames are finished.${outdated}`;
      default:
        return `Stopped: ${finished} are finished and can be downloaded.${outdated}`;
    }
  }

  listObjects() {
    const { painting, busy, clip } = this;
    const chip = (/** @type {number} */ number) =>
      el(
        "li",
        { class: "film-chip", style: `--pin: ${css(clip?.colors[number - 1] ?? [])}` },
        el(
          "button",
          {
            type: "button",
            "aria-pressed": String(number === painting.active),
            disabled: busy,
            onclick: () => this.edit(() => (painting.active = number)),
          },
          `Object ${number}`,
        ),
        el(
          "button",
          {
            type: "button",
            "aria-label": `Remove object ${number}`,
            disabled: busy,
            onclick: () => this.remove(number),
          },
          "×",
        ),
      );
    this.chips.replaceChildren(...painting.objects.map(chip));
  }

  /** Remove an object and move the focus to its neighbor. @param {number} number */
  remove(number) {
    const index = this.painting.objects.indexOf(number);
    this.edit(() => this.painting.remove(number));
    const { children } = this.chips;
    children[Math.min(index, children.length - 1)]?.querySelector("button")?.focus();
  }
}

/** @param {string} label @param {() => void} onclick */
function button(label, onclick) {
  return el("button", { type: "button", onclick }, label);
}

/**
 * @template T
 * @param {Memory<Promise<T>>} memory @param {string} key @param {number} bytes @param {() => Promise<T>} make
 */
function remembered(memory, key, bytes, make) {
  const known = memory.get(key);
  if (known) return known;
  const made = make();
  made.catch(() => memory.forget(key)); // to be fetched again
  return memory.put(key, made, bytes);
}

/** Keep the marking for a reload of the page. @param {string} clip @param {Painting} painting */
function store(clip, painting) {
  const text = painting.empty ? "" : JSON.stringify({ clip, runs: painting.runs() });
  if (text && text.length < MAX_STORED) sessionStorage.setItem("marked", text);
  else sessionStorage.removeItem("marked");
}

/** The marking of a clip before a reload. @param {string} clip @returns {number[] | null} */
function stored(clip) {
  const kept = JSON.parse(sessionStorage.getItem("marked") ?? "null");
  return kept?.clip === clip ? kept.runs : null;
}
