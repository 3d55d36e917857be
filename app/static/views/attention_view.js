// An image with its attention maps, and below it the map of every head: `app.views.attention_view`.
//
// Pointing, pinning and settings are computed in the browser; the server is asked once per image, block and quantity.

import { entropy, keptShares } from "../maths/attention.js";
import { decimals, percent } from "../maths/format.js";
import { Pins } from "../maths/pins.js";
import { QUANTITIES } from "../maths/quantities.js";
import { read, write } from "./address.js";
import { BlocksGrid } from "./blocks_grid.js";
import { button, el } from "./dom.js";
import { Encoding } from "./encoding.js";
import { rested } from "./newest.js";
import { COLORS } from "./palette.js";
import { Tiles, writeScale } from "./tiles.js";
import { View } from "./view.js";
import { Viewer } from "./viewer.js";

const SPEAK_AFTER = 500; // milliseconds of rest

const SETTINGS = {
  quantity: "attention",
  block: 0, // from 1; 0 is the last
  head: "mean", // or "heads", "max", the number of a head
  layer: "light", // or "heat", "mask"
  mass: 60, // percent, as opacity
  opacity: 80,
  colormap: "", // "": default of the quantity
};
const WRITTEN = ["quantity", "block", "head", "layer", "mass"]; // in the address
const KEYS =
  "Move the pointer or use the arrow keys to choose a patch. Enter pins it, Delete removes the pin, Escape returns to the whole image.";
const RANDOM =
  "Random weights. This network was never trained: its maps show the architecture, not the content of the image.";

/** @type {Map<string, Set<AttentionView>>} */
const GROUPS = new Map(); // views that share the pointer

export class AttentionView extends View {
  pins = new Pins(COLORS.pins);
  painted = ""; // state that the maps of the pins were drawn from
  title = el("h3");
  banner = el("p", { class: "lab-banner", hidden: true }, RANDOM);
  hint = el("p", { class: "lab-soft" }, "Click, tap or press Enter to pin a patch; up to eight pins are compared.");
  pinTiles = new Tiles("Pinned patches", (key) =>
    this.changePins(() => (this.pins.active = this.pins.list[key] ?? null), true),
  );
  remove = button("Remove", () => this.changePins(() => this.pins.removeActive(), true));
  pinBox = el("div", { class: "lab-pins" }, this.hint, this.remove, this.pinTiles.element);
  facts = el("dl", { class: "lab-facts" });
  seek = rested(() => this.look());
  speak = rested(
    () => (this.spoken.textContent = `${this.viewer.where.textContent}. ${this.viewer.what.textContent}.`),
    SPEAK_AFTER,
  );

  /** @param {Mounted} mounted */
  constructor(mounted) {
    super(mounted, SETTINGS);
    const { props, element } = this;
    this.words = props.address ? read() : {};
    const found = WRITTEN.filter((name) => this.words[name] !== undefined);
    for (const name of found) this.settings[name] = SETTINGS[name].constructor(this.words[name]);
    this.viewer = new Viewer(
      element,
      { label: props.label ?? "Image with attention maps", keys: KEYS },
      {
        drawn: () => this.drawn(),
        choose: (head) => this.set({ head }),
        press: (patch) => this.press(patch),
        point: (patch) => this.point(patch),
      },
    );
    const { stage, readout, tiles, scale } = this.viewer;
    Object.assign(stage.on, {
      remove: () => this.changePins(() => this.pins.removeActive(), true),
      rest: () => this.changePins(() => (this.pins.active = null), true),
    });
    readout.hidden = props.readout === false;
    this.grid = props.grid && new BlocksGrid(this);
    const details = el("details", {}, el("summary", {}, "Details of the computation"), this.facts);
    if (props.group) GROUPS.set(props.group, (GROUPS.get(props.group) ?? new Set()).add(this));
    const given = Object.keys(SETTINGS).filter((name) => props[name] !== undefined);
    this.watch(Object.keys(SETTINGS), () => this.set(Object.fromEntries(given.map((name) => [name, props[name]]))));
    const above = [props.title && this.title, this.banner, stage.element, scale, readout, tiles.element, this.pinBox];
    this.mount("value", ...above, this.grid && this.grid.element, props.facts && details);
  }

  get encoding() {
    return this.viewer.encoding;
  }

  /** Change settings. A block that is not in memory is fetched after a rest. @param {Record<string, any>} change */
  set(change) {
    const { quantity, block } = this.settings;
    if (!this.encoding) return; // controls at their defaults must not replace the address
    Object.assign(this.settings, change);
    if (this.settings.block >= this.encoding.blocks) this.settings.block = 0;
    if (this.settings.quantity === quantity && this.settings.block === block) this.render();
    else if (this.encoding.holds(this.quantity, this.number(this.encoding))) this.look();
    else this.seek();
  }

  get quantity() {
    return this.settings.quantity in QUANTITIES ? this.settings.quantity : "attention";
  }

  /** Return the number of the block, from 0. @param {Encoding} encoding */
  number({ blocks }) {
    return Math.min(this.settings.block || blocks, blocks) - 1;
  }

  async load(signal) {
    const { value } = this.props;
    this.seek.cancel();
    if (!value.token || !this.expects(value)) return;
    const encoding = this.encoding?.value === value ? this.encoding : new Encoding(value, this.server);
    const { quantity } = this;
    return { encoding, quantity, arrays: await encoding.arrays(quantity, this.number(encoding), signal) };
  }

  /** Whether a first value is what the address names. @param {Told} value */
  expects(value) {
    const named = ["photo", "model", "size"].filter((name) => this.words[name]);
    return Boolean(this.encoding) || named.every((name) => this.words[name] === String(value[name]));
  }

  /** Say why something is not shown, and return to the settings of what is shown. @param {string} sentence */
  refuse(sentence) {
    super.refuse(sentence);
    const { encoding, viewer } = this;
    if (!encoding) return;
    const block = viewer.arrays.number + 1;
    Object.assign(this.settings, { quantity: viewer.quantity, block: block === encoding.blocks ? 0 : block });
    this.emit("edited", this.state);
  }

  show({ encoding, arrays, quantity }) {
    const { viewer, words, props } = this;
    const { heads, colors, fixed } = QUANTITIES[quantity];
    const other = this.encoding?.photo !== encoding.photo;
    viewer.open(encoding, arrays, quantity);
    if (other) this.pins.read(words, encoding);
    this.words = {};
    this.title.textContent = encoding.value.model ?? "";
    this.banner.hidden = !encoding.random;
    viewer.tiles.element.hidden = props.tiles === false || !heads;
    this.pinBox.hidden = props.pins === false || colors || fixed;
    const facts = encoding.value.facts ?? [];
    this.facts.replaceChildren(...facts.flatMap(([term, text]) => [el("dt", {}, term), el("dd", {}, text)]));
    this.showPins();
    this.render();
    this.grid?.show();
    Object.assign(this.element.dataset, { token: encoding.token, quantity, block: arrays.number }); // tests wait for it
    this.announce(encoding.token, { token: encoding.token });
  }

  // ---- pointing and pinning

  point(patch) {
    this.viewer.hover(patch);
    const place = patch && this.encoding.placeOf(patch);
    for (const other of GROUPS.get(this.props.group) ?? []) if (other !== this) other.hoverAt(place);
  }

  /** Show the maps of a place as if the pointer were there. @param {Place} place */
  hoverAt(place) {
    if (!this.encoding) return;
    this.viewer.stage.cross(place);
    this.viewer.hover(place && this.encoding.patchAt(place));
  }

  press(patch) {
    const { encoding, viewer } = this;
    viewer.hovered = patch;
    if (this.props.pins === false) viewer.hover(patch);
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

  /** Show one tile for [CLS] and one per pin. */
  showPins() {
    const { encoding, pins, viewer, pinTiles } = this;
    const entries = pins.list.map((pin, index) => {
      const { row, column } = encoding.patchAt(pin);
      return { key: String(index), label: `row ${row}, column ${column}`, color: pin.color, marker: index + 1 };
    });
    const rest = { key: "", label: viewer.likely ? "The object" : "[CLS]" };
    pinTiles.open(encoding, entries.length ? [rest, ...entries] : []);
    pinTiles.mark(pins.active ? String(pins.list.indexOf(pins.active)) : "");
    this.painted = "";
    this.remove.disabled = !pins.active;
    this.hint.hidden = pins.list.length > 0;
  }

  // ---- drawing

  render() {
    const { encoding, settings, pins, viewer, props } = this;
    if (!encoding) return;
    const { head, mass, opacity, quantity: _, block: __, ...rest } = settings;
    const patch = pins.active && encoding.patchAt(pins.active);
    viewer.set({ ...rest, show: head, mass: mass / 100, opacity: opacity / 100, patch, color: pins.active?.color ?? "#fff" }); // prettier-ignore
    const likely = viewer.likely && { ...encoding.placeOf(viewer.likely), color: "#fff", number: "" };
    viewer.stage.mark(pins.list.length || !likely ? pins.list : [likely]);
    this.paintPins();
    if (!props.address) return;
    write(
      { ...Object.fromEntries(WRITTEN.map((name) => [name, settings[name]])), ...pins.written(encoding) },
      this.start,
    );
  }

  /** Draw the map of every pin, only if a pin or a setting has changed. */
  paintPins() {
    const { viewer, pins, encoding, settings, pinTiles } = this;
    const state = JSON.stringify([settings, pins.list, encoding.token]);
    if (this.painted === state || viewer.asked.colors) return;
    this.painted = state;
    for (const [key, { canvas, note, scale }] of pinTiles.tiles) {
      const maps = viewer.mapsOf(key ? encoding.patchAt(pins.list[key]) : viewer.likely);
      writeScale(scale, viewer.paint(canvas, viewer.shown, maps));
      note.textContent = `${percent(keptShares(maps.map("mean"), maps.kept(viewer.shown)).area)} kept`;
    }
  }

  drawn() {
    const { viewer } = this;
    const [where, what] = viewer.asked.fixed
      ? this.describeNorms()
      : viewer.maps
        ? this.describe(viewer.maps)
        : this.describeColors();
    viewer.where.textContent = where;
    viewer.what.textContent = what;
    this.speak();
    this.grid?.follow();
  }

  describeColors() {
    const { patch, arrays, encoding } = this.viewer;
    if (!patch) return ["All patches", "Principal components as red, green and blue"];
    const at = 3 * (patch.row * encoding.columns + patch.column);
    const [red, green, blue] = arrays.colors.slice(at, at + 3);
    return [this.place(patch), `Components: red ${decimals(red)}, green ${decimals(green)}, blue ${decimals(blue)}`];
  }

  /** Describe the norm of a patch, or of all, and the number of outliers. */
  describeNorms() {
    const { patch, arrays, encoding } = this.viewer;
    const [low, high] = this.viewer.maps.range("mean");
    const count = arrays.outliers.reduce((sum, marked) => sum + marked, 0);
    const outliers = `${count} ${count === 1 ? "outlier" : "outliers"} of over 6 deviations above the median, outlined`;
    const norms = patch
      ? `Norm ${decimals(arrays.norms[patch.row * encoding.columns + patch.column])}`
      : `Norms from ${decimals(low)} to ${decimals(high)}`;
    return [patch ? this.place(patch) : "All patches", `${norms} · ${outliers}`];
  }

  /** Describe the patch, the mass and area that are kept, and the spread of the values. */
  describe(maps) {
    const { patch, shown, asked } = this.viewer;
    const key = shown === "heads" ? "mean" : shown;
    const map = maps.map(key);
    const { mass, area } = keptShares(maps.weights(key), maps.kept(shown));
    const [low, high] = maps.range(key);
    const mean = asked.heads ? "Mean of the heads" : "All heads";
    const name = { heads: "All heads", mean, max: "Maximum of the heads" }[shown] ?? `Head ${shown}`;
    const of = asked.signed ? "the values above the minimum" : "the attention";
    const spread = asked.signed
      ? `values from ${decimals(low)} to ${decimals(high)}`
      : `entropy ${entropy(map).toFixed(2)} of ${Math.log(map.length).toFixed(2)} nats`;
    return [
      patch ? this.place(patch) : "[CLS], the token that represents the whole image",
      `${name}: ${percent(mass)} of ${of} on ${percent(area)} of the image · ${spread}`,
    ];
  }

  place({ row, column }) {
    const { rows, columns, width, height } = this.encoding;
    return `Patch row ${row}, column ${column} · pixels x ${pixels(column, columns, width)}, y ${pixels(row, rows, height)}`;
  }

  // ---- state for Gradio

  /** The view as arguments of `app.view.View`. */
  get request() {
    const { viewer, settings, encoding } = this;
    if (!encoding) return null;
    const { patch, shown, quantity } = viewer;
    const { head: _, ...rest } = settings;
    const query = patch && !viewer.asked.colors && !viewer.asked.fixed ? `${patch.row},${patch.column}` : "cls";
    const { opacity, colormap, arrays } = viewer;
    const { token, name } = encoding;
    const mass = settings.mass / 100;
    return { ...rest, mass, opacity, colormap, show: shown, quantity, block: arrays.number, query, token, name };
  }

  /** Settings as the controls of the page have them. */
  get state() {
    const { encoding, settings } = this;
    return { ...settings, block: settings.block || encoding?.blocks || 0 };
  }
}

/** Write the first and last pixel of a patch along one side. */
function pixels(index, count, length) {
  const first = Math.floor((index * length) / count);
  return `${first}–${Math.max(Math.ceil(((index + 1) * length) / count) - 1, first)}`;
}
