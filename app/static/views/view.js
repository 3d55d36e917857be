// The base of all views: settings, messages, and loading what the props name.

import { read } from "./address.js";
import { Busy } from "./busy.js";
import { button, el, loadStyle } from "./dom.js";
import { Refusal } from "./encoding.js";
import { openExport, shownSection } from "./export.js";
import { Newest } from "./newest.js";

export const PROPS = { head: "shown_head" }; // `gr.HTML` has a parameter `head` of its own
const EMPTY = "No image yet.";
/** Settings by the id of their component, whose element is new each time it becomes visible. */
const SETTINGS_BY_ID = new Map();

export class View {
  reason = el("span");
  again = button("Try again", () => this.reload());
  hide = button("×", () => (this.problem.hidden = true), { "aria-label": "Hide this message" });
  problem = el("p", { class: "lab-problem", role: "alert", hidden: true }, this.reason, this.again, this.hide);
  working = new Busy();
  /** @type {import("./stage.js").Stage} */
  stage = null; // where the view has one
  spoken = el("p", { class: "lab-spoken", "aria-live": "polite" });
  newest = new Newest();
  encoding = null; // of the image on the stage, where the view has one
  live = null; // frame of the camera, in place of the value
  /** @type {Record<string, any>} */
  exportRequest = null; // what the server is to write, while "exported" is emitted
  previewing = 0; // number of the work in `working`
  waiting = false; // for the element to be visible
  shownName = ""; // the last that "shown" was emitted for
  /** @type {Record<string, string>} */
  linked = {}; // parameters of the address that are not shown yet

  /** @param {Mounted} mounted @param {Record<string, any>} settings  defaults; props replace them */
  constructor({ element, props, watch, emit, id }, settings = {}) {
    this.element = element;
    this.props = props;
    this.emit = emit;
    this.watch = watch;
    element["view"] = this;
    this.start = { ...settings, ...this.given(settings) };
    const { start = this.start, settings: last = {} } = SETTINGS_BY_ID.get(id) ?? {};
    const changed = Object.entries(last).filter(([name]) => start[name] === this.start[name]); // not by Python since
    /** @type {Record<string, any>} */
    this.settings = { ...this.start, ...Object.fromEntries(changed) };
    const { address } = props;
    if (address) this.linked = read();
    for (const name of Array.isArray(address) ? address : Object.keys(settings))
      if (name in this.linked) this.settings[name] = settings[name].constructor(this.linked[name]);
    if (id) SETTINGS_BY_ID.set(id, { start: this.start, settings: this.settings });
  }

  /** Return the settings that the props give. @param {Record<string, any>} settings  names as keys */
  given(settings) {
    const entries = Object.keys(settings).map((name) => [name, this.props[PROPS[name] ?? name]]);
    return Object.fromEntries(entries.filter(([, setting]) => setting !== undefined));
  }

  /** Add the elements, and follow the props. @param {string | string[]} props @param {...any} children */
  mount(props, ...children) {
    loadStyle(this.element);
    this.element.replaceChildren(...children.filter(Boolean), this.spoken);
    const empty = el("p", { class: "lab-empty lab-soft" }, EMPTY);
    (this.element.querySelector(".lab-cell") ?? this.element).append(empty, this.problem, this.working.element);
    this.stage?.image.addEventListener("error", () => this.refuse("The image could not be loaded.", true));
    this.watch(props, () => this.showFrame(null));
    new ResizeObserver(() => (this.waiting ? this.reload() : this.resized())).observe(this.element);
    this.reload();
  }

  /** Gather parts that the page shows in its inspector, if it has a place for them. @param {...any} children */
  asideOf(...children) {
    const place = this.props.aside && document.getElementById(this.props.aside);
    const parts = children.filter(Boolean);
    if (!place) return el("div", { class: "lab-aside" }, ...parts);
    place.replaceChildren(...parts);
    return null;
  }

  /** Change settings. @param {Record<string, any>} change */
  set(change) {
    Object.assign(this.settings, change);
    this.render();
  }

  /**
   * Load and show what the props name. A hidden view waits; of several requests the newest is shown.
   * @param {boolean} [keeps]  whether a message stays
   */
  async reload(keeps = false) {
    this.waiting = !this.element.getClientRects().length;
    this.element.toggleAttribute("data-empty", !this.value);
    if (!this.value) return this.clear();
    if (this.waiting) return;
    this.previewing = 0;
    const { image, token } = this.value;
    const hasImage = image && !this.live && this.stage;
    const cancel = () => {
      this.newest.cancel(); // the image stays without maps until the user tries again
      this.refuse("The computation was canceled.", true);
    };
    const late = () => hasImage && token !== this.element.dataset.token && this.stage.preview(this.value);
    const work = this.working.start("Computing the maps", cancel, late);
    try {
      const loaded = await this.newest.run((signal) => this.load(signal));
      if (!loaded) return;
      if (!keeps) this.problem.hidden = true;
      this.show(loaded);
    } catch (error) {
      if (!(error instanceof Refusal)) throw error;
      late(); // the image without maps, instead of the one before
      this.refuse(error.message, true);
    } finally {
      this.working.end(work);
    }
  }

  /**
   * Show an image at once, before the server has it; its maps follow.
   * @param {{ image?: string, name: string } & Size} image  without address: the browser cannot decode it
   * @param {() => void} cancel
   */
  preview({ image, name, width, height }, cancel) {
    this.newest.cancel();
    this.problem.hidden = true;
    if (image) this.stage?.preview({ image, name, width, height });
    this.previewing = this.working.start(`Sending ${name}`, cancel);
  }

  /** The image of the preview was refused: show what was there before. */
  endPreview() {
    if (!this.previewing) return;
    this.working.end(this.previewing);
    this.previewing = 0;
    if (this.value) this.restore();
  }

  /** Show a frame of the live camera in place of the value; null ends it. @param {any} value */
  showFrame(value) {
    this.live = value;
    return this.reload();
  }

  get value() {
    return this.live ?? this.props.value;
  }

  /** Show again what is shown without a preview. */
  restore() {}

  /** Fetch what `show` takes; undefined if there is nothing new. @param {AbortSignal} _signal @returns {Promise<any>} */
  async load(_signal) {}

  show(_loaded) {}

  /** Forget the image: the value is null. */
  clear() {
    this.newest.cancel();
    Object.assign(this, { encoding: null, shownName: "" });
    delete this.element.dataset.token;
  }

  render() {}

  resized() {}

  /** Say why something is not shown. @param {string} sentence @param {boolean} [again]  whether a second try may help */
  refuse(sentence, again = false) {
    this.reason.textContent = sentence;
    this.problem.hidden = false;
    this.again.hidden = !again;
  }

  /** Open the dialog of what can be exported, once something is shown. */
  export() {
    if (this.element.dataset.token) openExport(this);
  }

  /** What can be exported. @returns {Section[]} */
  sections() {
    return [shownSection(this.stage.element)];
  }

  /** Let the server write a file of what is shown. @param {Record<string, any>} request @returns {null} */
  ask(request) {
    this.exportRequest = { ...this.request, ...request };
    this.emit("exported", {});
    return null;
  }

  /** The view as arguments of a handler. @returns {any} */
  get request() {
    return null;
  }

  get fileName() {
    return this.encoding.name;
  }

  /** Emit "shown" again: something else that handlers of "shown" use has changed. */
  showAgain() {
    this.shownName = "";
    this.reload();
  }

  /** Emit "shown" once for every image. @param {string} token  what is shown */
  emitShown(token) {
    if (this.shownName === token) return;
    this.shownName = token;
    this.emit("shown", { token });
  }
}

/** Return the views on the screen that have a stage. @param {any} root  the page, or a shadow tree @returns {View[]} */
export function openViews(root = document) {
  const views = [...root.querySelectorAll(".lab-view:has(.lab-cell)")].map((element) => element["view"]);
  return views.filter((view) => view?.element.getClientRects().length);
}

/** Say something in the first stage on the screen; false if there is none. @param {string} sentence */
export function refuseOnStage(sentence) {
  const [view] = openViews();
  view?.refuse(sentence);
  return Boolean(view);
}
