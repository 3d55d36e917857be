// The tab Video: objects are marked on the first frame here, followed by the server, and looked at here again.

import { controls } from "../../dom.js";
import { css } from "../../maths/format.js";
import { outlinePath } from "../../maths/labels.js";
import { Painting, centres } from "../../maths/painting.js";
import { Newest } from "../../newest.js";
import { Refusal, askData, askSlowly, keep } from "../../server.js";
import { Tab } from "../../tab.js";
import { html, render } from "../../vendor/lit-html.js";
import { Brush, recalled, remember } from "../../widgets/brush.js";
import { Clicks } from "../../widgets/clicks.js";
import { listFacts } from "../../widgets/facts.js";
import { Stage } from "../../widgets/stage.js";
import { inWords } from "../../widgets/waits.js";
import { Frames } from "./frames.js";

/**
 * @typedef {object} Clip  what the server tells of a clip
 * @property {string} clip
 * @property {string} photo  its first frame
 * @property {string} name
 * @property {number} width
 * @property {number} height
 * @property {number} frames
 * @property {number} fps
 * @property {string} note
 * @property {number[]} marked  objects of the first frame that came along, as runs; those of a visitor's in the browser's store
 * @property {[string, string][]} facts
 *
 * @typedef {object} Run  the first frame's objects on their way through the clip
 * @property {string} following  what the server calls it; "" while it waits
 * @property {"waiting" | "running" | "done" | "cancelled"} state
 * @property {number} done  frames that have masks
 * @property {number} left  seconds
 * @property {string} words  what it waits for
 * @property {Uint8Array} marked  the objects that it began with
 */

const TOOLS = /** @type {Record<string, string>} */ ({ c: "click", b: "paint", e: "erase" });
const BRUSH_STEP = 4;

export default class Film extends Tab {
  /** @param {HTMLElement} root @param {Lab} lab */
  constructor(root, lab) {
    super(root, lab);
    this.following = new Newest();
    this.showing = new Newest();
    this.form = this.find(".lab-settings");
    this.tools = controls(this.form);
    this.scrub = this.find(".video-scrub");
    /** @type {Clip | null} */
    this.clip = null;
    /** @type {Frames | null} */
    this.frames = null;
    /** @type {Encoding | null} */
    this.encoding = null; // of the first frame
    this.clicks = new Clicks();
    /** @type {Run | null} */
    this.run = null; // the newest
    this.trailing = false; // whether the stage goes along with the run
    this.number = 0; // the frame that is shown, from 0
    this.player = 0;
    this.painting = new Painting({ width: 1, height: 1, most: 1 });
    this.stage = new Stage(
      this.find(".lab-stage"),
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
    this.context = /** @type {CanvasRenderingContext2D} */ (this.stage.photo.getContext("2d"));
    this.brush = new Brush(this.stage, lab.facts.colors.clipObjects, () => this.refresh());
    this.listen();
  }

  listen() {
    const on = (/** @type {string} */ selector, /** @type {() => void} */ action) =>
      this.onPress(selector, () => this.clip && action());
    on(".video-add", () => this.edit(() => this.painting.add()));
    on(".video-undo", () => this.edit(() => this.painting.undo()));
    on(".video-redo", () => this.edit(() => this.painting.redo()));
    on(".video-clear", () => this.edit(() => this.painting.clear()));
    on(".video-start", () => this.follow());
    on(".video-cancel", () => this.stop());
    on(".video-play", () => (this.player ? this.pause() : this.play()));
    this.form.addEventListener("input", () => this.showTool());
    this.scrub.addEventListener("input", () => {
      this.pause();
      this.trailing = false;
      this.show(Number(this.scrub.value) - 1);
    });
    this.onDownload((file) => this.keep(file));
    this.showTool();
  }

  // ---- what the lab says

  /** Bring the clip to the screen, then the keys of its first frame, as the model of the header sees it. */
  async look() {
    const { lab } = this;
    const { clip, clipName, model, size } = lab.state;
    const brought = await this.asker.ask(
      async (listening) => {
        const told = await this.fetchClip(clip, clipName, listening.signal);
        if (listening.signal.aborted) return undefined;
        if (told.clip !== this.clip?.clip) this.open(told);
        return lab.see({ photo: told.photo, name: told.name, model, size }, listening);
      },
      () => this.goBack(),
    );
    if (!brought || !this.clip) return;
    const { encoding, block } = brought;
    if (this.encoding !== encoding) this.clicks.open(encoding, block, () => this.stage.photo);
    this.encoding = encoding;
    listFacts(this.find(".lab-facts"), [...this.clip.facts, ...encoding.facts]);
    this.showTool();
    this.root.dataset.encoding = encoding.token; // says that clicks are understood
  }

  leave() {
    super.leave();
    this.pause();
  }

  /** A clip under the name that its visitor gave it: the server holds none. Throws a Refusal.
   * @param {string} clip @param {string} name @param {AbortSignal} signal @returns {Promise<Clip>}
   */
  async fetchClip(clip, name, signal) {
    if (clip === this.clip?.clip) return this.clip;
    const fetched = (/** @type {string} */ here) => askData(`api/clips/${encodeURIComponent(here)}`, { signal });
    const told = await this.lab.about(clip, fetched, signal, "clip");
    return { ...told, name: name || told.name };
  }

  /** What cannot be had gives way to what is seen. */
  goBack() {
    const { clip, encoding, lab } = this;
    if (!clip) return;
    const own = !lab.facts.clips.some((one) => one.clip === clip.clip);
    lab.note({ clip: clip.clip, clipName: own ? clip.name : "" });
    if (encoding?.photo === clip.photo) lab.note({ model: encoding.model });
    lab.changed();
  }

  /** @param {Clip} clip */
  open(clip) {
    this.pause();
    this.following.stop();
    const { colors, limits } = this.lab.facts;
    Object.assign(this, { clip, encoding: null, run: null, trailing: false });
    this.clicks.forget();
    this.frames = new Frames(clip, colors.palette);
    this.painting = new Painting({ ...clip, most: limits.objects });
    this.painting.resume(recalled("marked", clip.clip) ?? clip.marked);
    this.stage.show({ ...clip, rows: 1, columns: 1 });
    this.brush.open(this.painting);
    this.scrub.max = String(clip.frames);
    const note = this.find(".video-note");
    note.textContent = clip.note;
    note.hidden = !clip.note;
    for (const control of [this.scrub, this.find(".video-play")]) control.disabled = false;
    this.find(".video-start").textContent = `Follow through ${clip.frames} frames`;
    this.show(0);
    this.refresh();
    this.root.dataset.clip = clip.clip; // says that the clip is open
  }

  // ---- following

  get busy() {
    return this.run?.state === "waiting" || this.run?.state === "running";
  }

  /** Follow what is marked; what comes of an earlier run counts no more. */
  async follow() {
    const { clip, lab, painting } = this;
    if (!clip) return;
    const { model, size } = lab.state;
    this.pause();
    lab.messages.clear();
    /** @type {Run} */
    const run = {
      following: "",
      state: "waiting",
      done: 0,
      left: 0,
      words: "Waiting for the model.",
      marked: painting.values.slice(),
    };
    this.run = run;
    this.trailing = true;
    this.refresh();
    const question = { runs: painting.runs(), model, size };
    try {
      const last = await this.following.run((signal) =>
        askSlowly(`api/clips/${clip.clip}/follow`, question, {
          signal,
          told: (word) => this.run === run && this.proceed(run, word),
        }),
      );
      if (last && this.run === run) this.proceed(run, last);
    } catch (error) {
      if (!(error instanceof Refusal)) throw error;
      lab.messages.say(error.message, "video");
      if (this.run === run) this.stop();
    }
  }

  /** @param {Run} run @param {any} word  of the server */
  proceed(run, word) {
    const { following, done = run.done, left = 0, state } = word;
    const known = following ?? run.following;
    Object.assign(run, { following: known, done, left, words: `${inWords(word)}.` });
    run.state = state === "done" ? "done" : known ? "running" : "waiting";
    this.refresh();
    if (this.trailing && done) this.show(done - 1);
  }

  /** End the run; what is done stays. One that never began leaves nothing. */
  stop() {
    this.following.stop();
    if (this.run?.done) this.run.state = "cancelled";
    else this.run = null;
    this.refresh();
  }

  /** @param {string} file */
  async keep(file) {
    const name = encodeURIComponent(this.clip?.name ?? "");
    await keep(`api/followings/${this.run?.following}/files/${file}?name=${name}&frames=${this.run?.done}`, file);
  }

  // ---- marking

  get tool() {
    return /** @type {string} */ (this.tools.tool.value);
  }

  /** Whether the frame that is shown can be painted. */
  get marking() {
    return Boolean(this.clip) && this.number === 0 && !this.busy;
  }

  /** Show what a click or the brush would do where the cursor is. */
  point() {
    const { cursor } = this.stage;
    const clicks = this.tool === "click";
    this.brush.ring(this.marking && !clicks);
    const kept = cursor && this.marking && clicks ? this.clicks.proposed(cursor) : null;
    const { rows, columns } = this.encoding ?? { rows: 1, columns: 1 };
    this.stage.ink.setAttribute("viewBox", `0 0 ${columns} ${rows}`);
    this.stage.draw(kept ? [{ path: outlinePath(kept.values, rows, columns), color: "#fff" }] : []);
  }

  /** @param {Place} place @param {boolean} [other]  take away */
  press(place, other = false) {
    const kept = this.marking && this.tool === "click" ? this.clicks.proposed(place) : null;
    if (!kept) return;
    this.edit(() => {
      this.painting.remember();
      this.painting.take(this.clicks.refined(kept), other ? 0 : this.painting.active);
    });
  }

  /** @param {Place} from @param {Place} to */
  stroke(from, to) {
    if (!this.marking) return;
    this.brush.stroke(from, to);
    this.mark(this.painting.values);
  }

  /** Change the objects, on the first frame. @param {() => void} change */
  edit(change) {
    if (this.busy) return;
    this.pause();
    change();
    this.refresh();
    if (this.number === 0) this.paint(this.painting.values);
    else this.show(0);
  }

  /** Whether the key meant something here. @param {KeyboardEvent} event */
  key({ key }) {
    const { brush, tool } = this.tools;
    const letter = key.toLowerCase();
    if (TOOLS[letter]) tool.value = TOOLS[letter];
    else if (key === "+") brush.value = String(Number(brush.value) + BRUSH_STEP);
    else if (key === "-") brush.value = String(Number(brush.value) - BRUSH_STEP);
    else if (this.painting.objects.includes(Number(key))) this.edit(() => (this.painting.active = Number(key)));
    else return false;
    this.showTool();
    return true;
  }

  // ---- looking

  /** Bring a frame and its objects to the stage, together; of several that were asked for, the last. @param {number} number */
  async show(number) {
    const { frames, run, clip } = this;
    if (!frames || !clip) return;
    try {
      const followed = run && number > 0 && number < run.done;
      const shown = await this.showing.run(() =>
        Promise.all([frames.picture(number), followed ? frames.labels(run.following, number) : null]),
      );
      if (!shown || frames !== this.frames) return;
      const [picture, labels] = shown;
      this.number = number;
      this.context.drawImage(picture, 0, 0, clip.width, clip.height);
      this.paint(number === 0 ? this.painting.values : labels);
    } catch (error) {
      if (!(error instanceof Refusal)) throw error;
      this.pause();
      this.lab.messages.say("A frame did not arrive: the clip may be forgotten, open it again.", "video");
      return;
    }
    this.scrub.value = String(number + 1);
    this.find(".video-place").textContent = `${number + 1} of ${clip.frames}`;
    this.root.dataset.frame = String(number); // says that it is on the screen
    this.showTool();
  }

  /** Objects over the frame, with their numbers; null draws none. @param {Uint8Array | null} values */
  paint(values) {
    const objects = values ?? new Uint8Array(this.painting.values.length);
    this.brush.show(objects);
    this.mark(objects);
  }

  /** @param {Uint8Array} values */
  mark(values) {
    const { width, height } = this.painting;
    const { clipObjects } = this.lab.facts.colors;
    this.stage.mark(
      [...centres(values, width, height)].map(([number, place]) => ({
        ...place,
        number,
        color: css(clipObjects[number - 1]),
      })),
    );
  }

  async play() {
    const { clip } = this;
    if (!clip) return;
    this.trailing = false;
    const player = (this.player = performance.now());
    this.showPlayer();
    while (this.player === player) {
      const due = performance.now() + 1000 / clip.fps;
      await this.show((this.number + 1) % clip.frames);
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
    const { reach, brush } = this.tools;
    this.clicks.reach = Number(reach.value) / 100;
    this.label();
    this.root.dataset.tool = this.tool;
    const clicks = this.tool === "click";
    this.stage.paints = !clicks && this.marking;
    this.stage.element.dataset.tool = this.stage.paints ? this.tool : "point";
    if (!this.clip) return;
    const { width, height } = this.clip;
    const { rows, columns } = this.encoding ?? { rows: 16, columns: 16 };
    this.brush.size = Number(brush.value) / Math.max(width, height);
    this.brush.erasing = this.tool === "erase";
    const step = Math.max(2, Number(brush.value) / 4);
    this.stage.step = clicks ? { x: 1 / columns, y: 1 / rows } : { x: step / width, y: step / height };
    this.point();
  }

  /** Everything that follows from the objects, and from how far they are followed. */
  refresh() {
    const { painting, busy, clip, run } = this;
    if (!clip) return;
    this.listObjects();
    remember("marked", clip.clip, painting);
    const enable = (/** @type {string} */ selector, /** @type {boolean} */ enabled) =>
      (this.find(selector).disabled = !enabled);
    enable(".video-undo", !busy && painting.past.length > 0);
    enable(".video-redo", !busy && painting.future.length > 0);
    enable(".video-clear", !busy && !painting.empty);
    enable(".video-add", !busy && painting.objects.length < painting.most);
    enable(".video-start", !busy && !painting.empty);
    this.find(".video-cancel").hidden = !busy;
    for (const button of this.findAll("[data-download]")) button.disabled = !run?.done;
    this.find(".video-told").textContent = this.told;
    const progress = this.find(".video-progress");
    Object.assign(progress, { max: clip.frames, value: run?.done ?? 0 });
    if (this.root.dataset.state !== (run?.state ?? "idle")) this.lab.speak(this.told); // only what is news
    this.root.dataset.state = run?.state ?? "idle";
    this.scrub.style.setProperty("--done", String((run?.done ?? 0) / clip.frames));
    this.showTool();
  }

  /** How far the objects are followed, in words. */
  get told() {
    const { clip, painting, run } = this;
    if (!clip) return "";
    if (!run) return painting.empty ? "Nothing is marked yet." : "Ready to be followed.";
    const soFar = `${run.done} of ${clip.frames} frames`;
    const changed = run.marked.some((number, pixel) => number !== painting.values[pixel]);
    const stale = changed ? " The objects have changed since: follow them again." : "";
    switch (run.state) {
      case "waiting":
        return run.words;
      case "running":
        return soFar + (run.left > 0 ? ` · about ${Math.ceil(run.left)} s left` : "");
      case "done":
        return `All ${clip.frames} frames are followed.${stale}`;
      default:
        return `Stopped: ${soFar} are followed and can be kept.${stale}`;
    }
  }

  listObjects() {
    const { painting, busy } = this;
    const { clipObjects } = this.lab.facts.colors;
    const chip = (
      /** @type {number} */ number,
    ) => html`<li class="lab-chip" style=${`--pin: ${css(clipObjects[number - 1])}`}>
      <button type="button" aria-pressed=${number === painting.active} ?disabled=${busy}
        @click=${() => this.edit(() => (painting.active = number))}>Object ${number}</button>
      <button type="button" aria-label=${`Remove object ${number}`} ?disabled=${busy} @click=${() => this.remove(number)}>×</button>
    </li>`;
    render(painting.objects.map(chip), this.find(".lab-queries"));
  }

  /** Take an object away; the keyboard goes on from its neighbour. @param {number} number */
  remove(number) {
    const index = this.painting.objects.indexOf(number);
    this.edit(() => this.painting.remove(number));
    const chips = this.find(".lab-queries").children;
    chips[Math.min(index, chips.length - 1)]?.querySelector("button")?.focus();
  }
}
