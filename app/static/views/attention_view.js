// An image with its attention maps, and below it the map of every head: the view behind `app.views.attention_view`.
//
// It is constructed with { element, props, watch, emit, server } and needs nothing else of Gradio: a static page gives
// plain props and `watch: () => {}`. Pointing, pinning and every setting are arithmetic in the browser; the server is
// asked once per image, block and quantity. Of several questions the newest is shown; answers to others are dropped.

import { entropy, keptShares } from "../maths/attention.js";
import { decimals, percent } from "../maths/format.js";
import { Pins } from "../maths/pins.js";
import { QUANTITIES } from "../maths/quantities.js";
import { read, write } from "./address.js";
import { BlocksGrid } from "./blocks_grid.js";
import { el, find, style } from "./dom.js";
import { Encoding, Refusal } from "./encoding.js";
import { Newest, rested } from "./newest.js";
import { COLORS } from "./palette.js";
import { PinList } from "./pins.js";
import { Viewer } from "./viewer.js";

const REST = 150; // milliseconds after which a block that is not here is fetched
const SPEAK_AFTER = 500; // milliseconds of rest before the readout is spoken
const MASK_TINT = 0.6; // a mask covers its image more lightly than a heat map does

export const SETTINGS = {
  quantity: "attention",
  block: 0, // from 1; 0 is the last
  head: "mean", // or "heads", "max", the number of a head
  layer: "light", // or "heat", "mask"
  mass: 60, // per cent, as opacity
  opacity: 80,
  colormap: "", // "": the quantity's own
  scale: "median",
  smooth: true,
  shared: false,
  outline: false,
};
const WRITTEN = /** @type {const} */ (["quantity", "block", "head", "layer", "mass"]); // in the address

/** @type {Map<string, Set<AttentionView>>} */
const GROUPS = new Map();

const KEYS =
  "Move the pointer or use the arrow keys to choose a patch. Enter pins it, Delete removes the pin, Escape returns to the whole image, Control Z undoes.";

export class AttentionView {
  /** @param {Mounted} mounted */
  constructor({ element, props, watch, emit, server = null }) {
    this.element = element;
    this.props = props;
    this.emit = emit;
    this.server = server;
    style(element, new URL("views.css", import.meta.url).href);
    const given = Object.keys(SETTINGS).filter((name) => props[name] !== undefined);
    this.start = { ...SETTINGS, ...Object.fromEntries(given.map((name) => [name, props[name]])) };
    this.words = props.address ? read() : {};
    this.settings = { ...this.start, ...settingsOf(this.words) };
    this.pins = new Pins(COLORS.pins);
    this.newest = new Newest();
    element.replaceChildren(...this.markup());
    this.viewer = new Viewer(element, COLORS, {
      drawn: () => this.drawn(),
      choose: (head) => this.set({ head: String(head) }),
      press: (patch) => this.press(patch),
      point: (patch) => this.point(patch),
    });
    this.list = new PinList(find(element, ".lab-compared"), {
      choose: (pin) => this.changePins(() => (this.pins.active = pin), true),
      remove: (pin) => this.changePins(() => this.pins.remove(pin), true),
    });
    this.grid = props.grid ? new BlocksGrid(find(element, ".lab-blocks"), this) : null;
    Object.assign(this.viewer.stage.on, {
      undo: () => this.changePins(() => this.pins.undo(), true),
      remove: () => this.changePins(() => this.pins.remove(this.pins.active), true),
      rest: () => this.changePins(() => (this.pins.active = null), true),
    });
    this.seek = rested(() => this.look(), REST);
    this.speak = rested(() => (find(element, ".lab-spoken").textContent = this.sentence), SPEAK_AFTER);
    this.sentence = "";
    this.painted = ""; // what the maps of the pins were drawn from
    this.waiting = false; // something is to be shown when the view becomes visible
    if (props.group) GROUPS.set(props.group, (GROUPS.get(props.group) ?? new Set()).add(this));
    watch("value", () => this.look());
    watch(Object.keys(SETTINGS), () => this.set(Object.fromEntries(given.map((name) => [name, props[name]]))));
    new ResizeObserver(() => this.waiting && this.look()).observe(element);
    this.look();
  }

  markup() {
    const { tiles = true, pins = true, grid = false, label = "Image with attention maps", readout = true } = this.props;
    const undo = {
      type: "button",
      class: "lab-undo",
      disabled: true,
      onclick: () => this.changePins(() => this.pins.undo()),
    };
    const parts = [
      el(
        "p",
        { class: "lab-banner", hidden: true },
        el("strong", {}, "Random weights."),
        " This network was never trained: its maps show the architecture, not the content of the image.",
      ),
      el("p", { class: "lab-problem", role: "alert", hidden: true }),
      el("div", {
        class: "lab-stage",
        tabindex: 0,
        role: "application",
        "aria-label": label,
        "aria-description": KEYS,
      }),
      el(
        "p",
        { class: "lab-readout", hidden: !readout },
        el("span", { class: "lab-where" }),
        el("span", { class: "lab-what" }),
      ),
      el("div", { class: "lab-tiles", role: "radiogroup", "aria-label": "Attention head", hidden: !tiles }),
      el(
        "div",
        { class: "lab-pins", hidden: !pins },
        el("p", { class: "lab-hint" }, "Click, tap or press Enter to pin a patch; up to eight pins are compared."),
        el("ul", { class: "lab-compared", "aria-label": "Pinned patches" }),
        el("button", undo, "Undo"),
      ),
      el("p", { class: "lab-spoken", "aria-live": "polite" }),
    ];
    const details = el(
      "details",
      { class: "lab-details" },
      el("summary", {}, "What was computed"),
      el("dl", { class: "lab-facts" }),
    );
    const blocks = el(
      "details",
      { class: "lab-blocks" },
      el("summary", {}, "Every head of every block"),
      el("div", { class: "lab-tiles", role: "radiogroup", "aria-label": "Block and head" }),
    );
    return [...parts, ...(grid ? [blocks] : []), ...(this.props.facts ? [details] : [])];
  }

  // ---- what is asked for

  get encoding() {
    return this.viewer.encoding;
  }

  get visible() {
    return this.element.offsetParent !== null || this.element.getClientRects().length > 0;
  }

  /** Change settings; a block that is not here is fetched after a rest. @param {Partial<typeof SETTINGS>} change */
  set(change) {
    const { quantity, block } = this.settings;
    if (!this.encoding) return; // nothing of the address is lost to controls that are at their start
    Object.assign(this.settings, change);
    if (this.settings.block >= this.encoding.blocks) this.settings.block = 0; // the last, whatever the model
    if (this.settings.quantity === quantity && this.settings.block === block) return this.render();
    if (this.encoding.holds(this.quantity, this.number(this.encoding))) this.look();
    else this.seek();
  }

  get quantity() {
    return this.settings.quantity in QUANTITIES ? this.settings.quantity : "attention";
  }

  /** Of the block, from 0. @param {Encoding} encoding */
  number({ blocks }) {
    return Math.min(this.settings.block || blocks, blocks) - 1;
  }

  /** Bring value, quantity and block to the screen; of several that were asked for, the newest. */
  async look() {
    this.seek.cancel();
    const { value } = this.props;
    this.waiting = !this.visible;
    if (this.waiting || !value?.token || !this.expected(value)) return;
    const open = this.encoding;
    const encoding = open && open.value === value ? open : new Encoding(value, this.server);
    const quantity = this.quantity;
    try {
      const number = this.number(encoding);
      const arrays = await this.newest.run((signal) => encoding.arrays(quantity, number, signal));
      if (arrays) this.show(encoding, arrays, quantity);
    } catch (error) {
      if (!(error instanceof Refusal)) throw error;
      this.refuse(error.message);
    }
  }

  /** Whether a value is what the address asked for; the first value of the document may be another. @param {Told} value */
  expected(value) {
    const { photo, model, size } = this.words;
    if (this.encoding) return true;
    return (
      (!photo || photo === value.photo) && (!model || model === value.model) && (!size || Number(size) === value.size)
    );
  }

  /** Say why something is not shown; the settings return to what is. @param {string} sentence */
  refuse(sentence) {
    const problem = find(this.element, ".lab-problem");
    Object.assign(problem, { textContent: sentence, hidden: false });
    const { encoding, viewer } = this;
    if (!encoding) return;
    const { number } = viewer.arrays;
    Object.assign(this.settings, { quantity: viewer.quantity, block: number + 1 === encoding.blocks ? 0 : number + 1 });
    this.emit("edited", this.state);
  }

  /** @param {Encoding} encoding @param {any} arrays @param {string} quantity */
  show(encoding, arrays, quantity) {
    const { element, viewer, words } = this;
    const another = this.encoding?.photo !== encoding.photo;
    const anew = this.encoding?.token !== encoding.token;
    const { heads } = QUANTITIES[quantity];
    viewer.open(encoding, arrays, quantity);
    if (another) this.pins.read({ pins: words.pins ?? "", patch: words.patch ?? "" }, encoding);
    this.words = {};
    find(element, ".lab-problem").hidden = true;
    find(element, ".lab-banner").hidden = !encoding.random;
    find(element, ".lab-tiles").hidden = this.props.tiles === false || !heads;
    find(element, ".lab-pins").hidden = this.props.pins === false || Boolean(QUANTITIES[quantity].colors);
    const facts = (encoding.value.facts ?? []).map(([term, words]) =>
      el("div", {}, el("dt", {}, term), el("dd", {}, words)),
    );
    element.querySelector(".lab-facts")?.replaceChildren(...facts);
    this.showPins();
    this.render();
    this.grid?.show();
    Object.assign(element.dataset, { token: encoding.token, quantity, block: arrays.number }); // says what is on the screen
    if (anew) this.emit("shown", { token: encoding.token });
  }

  // ---- pointing and pinning

  /** @param {Patch | null} patch */
  point(patch) {
    const { encoding, viewer } = this;
    if (!encoding) return;
    viewer.hover(patch);
    const place = patch && encoding.placeOf(patch);
    for (const other of GROUPS.get(this.props.group) ?? []) if (other !== this) other.hoverAt(place);
  }

  /** Show the maps of a place, as if the pointer were there. @param {Place | null} place */
  hoverAt(place) {
    const { encoding, viewer } = this;
    if (!encoding) return;
    viewer.stage.cross(place);
    viewer.hover(place && encoding.patchAt(place));
  }

  /** @param {Patch} patch */
  press(patch) {
    const { encoding, viewer, props } = this;
    if (!encoding) return;
    viewer.hovered = patch;
    if (props.pins === false) viewer.hover(patch);
    else this.changePins(() => this.pins.pin(patch, encoding));
    this.emit("select", { ...patch, ...encoding.placeOf(patch), token: encoding.token });
  }

  /** @param {() => void} action @param {boolean} [leave]  the pointer is elsewhere */
  changePins(action, leave = false) {
    if (!this.encoding) return;
    action();
    if (leave) this.viewer.hovered = null;
    this.showPins();
    this.render();
  }

  showPins() {
    const { encoding, pins, viewer, element } = this;
    if (!encoding) return;
    this.list.show(encoding, pins.list, pins.active, viewer.likely ? "The object" : "[CLS]");
    this.painted = "";
    find(element, ".lab-undo").disabled = pins.history.length === 0;
    find(element, ".lab-hint").hidden = pins.list.length > 0;
  }

  // ---- what is seen

  render() {
    const { encoding, settings, pins, viewer } = this;
    if (!encoding) return;
    const { head, mass, opacity, quantity: _, block: __, ...rest } = settings;
    const active = pins.active && encoding.patchAt(pins.active);
    const shown = { ...rest, show: head, mass: mass / 100, opacity: opacity / 100 };
    viewer.set({ ...shown, patch: active, color: pins.active?.color ?? "#fff" });
    viewer.stage.mark(this.marks);
    this.comparePins(shown);
    if (this.props.address) write({ ...this.written, ...pins.written(encoding) }, this.start);
    this.element.dispatchEvent(new CustomEvent("lab-drawn", { bubbles: true }));
  }

  get written() {
    return Object.fromEntries(WRITTEN.map((name) => [name, this.settings[name]]));
  }

  /** Pins by number; without any, the patch whose map is shown where a quantity needs one. */
  get marks() {
    const { pins, viewer } = this;
    if (pins.list.length || !viewer.likely) return pins.list;
    return [{ ...viewer.grid.placeOf(viewer.likely), color: "#fff", number: "" }];
  }

  /** One map per pin, drawn only when a pin or setting changes it. @param {object} shown */
  comparePins(shown) {
    const { viewer, pins } = this;
    const { encoding, quantity, arrays } = viewer;
    const state = JSON.stringify([shown, quantity, arrays.number, pins.list, encoding?.token]);
    if (this.painted === state || !encoding || viewer.asked.colors) return;
    this.painted = state;
    this.list.paint(encoding, (canvas, pin) => {
      const maps = viewer.mapsOf(pin && encoding.patchAt(pin));
      const ends = viewer.paint(canvas, viewer.shown, maps);
      return { note: `${percent(keptShares(maps.map("mean"), maps.kept(viewer.shown)).area)} kept`, ends };
    });
  }

  /** What is on the stage, in the words of `app.view.View`. */
  get request() {
    const { viewer, settings, encoding } = this;
    if (!encoding) return null;
    const { patch, shown, quantity } = viewer;
    const masked = settings.layer === "mask" && shown !== "heads" && !viewer.asked.colors;
    const { head: _, mass, opacity, ...rest } = settings;
    return {
      ...rest,
      mass: mass / 100,
      opacity: (opacity / 100) * (masked ? MASK_TINT : 1),
      colormap: viewer.colormap,
      show: shown,
      quantity,
      block: viewer.arrays.number,
      query: patch && !viewer.asked.colors ? `${patch.row},${patch.column}` : "cls",
      token: encoding.token,
      name: encoding.name,
    };
  }

  /** Settings as controls of the page have them. */
  get state() {
    const { encoding, settings } = this;
    return { ...settings, block: settings.block || encoding?.blocks || 0, blocks: encoding?.blocks ?? 0 };
  }

  // ---- the readout

  drawn() {
    const [where, what] = this.viewer.maps ? this.describe(this.viewer.maps) : this.describeColors();
    find(this.element, ".lab-where").textContent = where;
    find(this.element, ".lab-what").textContent = what;
    this.sentence = `${where}. ${what}.`;
    this.speak();
    this.grid?.follow();
  }

  describeColors() {
    const { patch, arrays, grid } = this.viewer;
    if (!patch) return ["All patches", "Principal components as red, green and blue"];
    const at = 3 * (patch.row * grid.columns + patch.column);
    const [red, green, blue] = arrays.colors.subarray(at, at + 3);
    return [this.place(patch), `Components: red ${decimals(red)}, green ${decimals(green)}, blue ${decimals(blue)}`];
  }

  /** Patch, mass and area kept, and entropy or range. @param {Maps} maps */
  describe(maps) {
    const { patch, shown, asked, quantity } = this.viewer;
    const key = shown === "heads" ? "mean" : shown;
    const map = maps.map(key);
    const { mass, area } = keptShares(maps.weights(key), maps.kept(shown));
    const [low, high] = maps.range(key);
    const names = /** @type {Record<string, string>} */ ({
      heads: "All heads",
      mean: asked.heads ? "Mean of the heads" : quantity === "token-cosine" ? "Tokens" : "All heads",
      max: "Maximum of the heads",
    });
    const of = asked.signed ? "what lies above the minimum" : "the attention";
    const spread = asked.signed
      ? `values from ${decimals(low)} to ${decimals(high)}`
      : `entropy ${entropy(map).toFixed(2)} of ${Math.log(map.length).toFixed(2)} nats`;
    return [
      patch ? this.place(patch) : "[CLS], the token that represents the whole image",
      `${names[shown] ?? `Head ${shown}`}: ${percent(mass)} of ${of} on ${percent(area)} of the image · ${spread}`,
    ];
  }

  /** @param {Patch} patch */
  place({ row, column }) {
    const { rows, columns, width, height } = this.viewer.grid;
    return `Patch row ${row}, column ${column} · pixels x ${pixels(column, columns, width)}, y ${pixels(row, rows, height)}`;
  }
}

/** Settings that the address holds. @param {Record<string, string>} words */
function settingsOf(words) {
  const found = WRITTEN.filter((name) => words[name] !== undefined);
  return Object.fromEntries(
    found.map((name) => [name, typeof SETTINGS[name] === "number" ? Number(words[name]) : words[name]]),
  );
}

/** First and last pixel of a patch along one side. @param {number} index @param {number} count @param {number} length */
function pixels(index, count, length) {
  const first = Math.floor((index * length) / count);
  return `${first}–${Math.max(Math.ceil(((index + 1) * length) / count) - 1, first)}`;
}
