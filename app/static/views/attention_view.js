// An image with its attention maps, and below it the map of every head: `app.views.attention_view`.
//
// Pointing, pinning and settings are computed in the browser; the server is called once per image, block and quantity.

import { keptShares, likelyPatch } from "../maths/attention.js";
import { css, decimals, figure, percent } from "../maths/format.js";
import { outlinePath } from "../maths/labels.js";
import { drawnSize } from "../maths/levels.js";
import { Maps } from "../maths/maps.js";
import { Pins, samePatch } from "../maths/pins.js";
import { QUANTITIES } from "../maths/quantities.js";
import { write } from "./address.js";
import { attentionSections } from "./attention_export.js";
import { Blocks } from "./blocks.js";
import { button, el } from "./dom.js";
import { Encoding } from "./encoding.js";
import { rested } from "./newest.js";
import { COLORMAPS, LIGHT } from "./paint.js";
import { COLORS } from "./palette.js";
import { STAGE_PIXELS, Stage } from "./stage.js";
import { Tiles, colorBar } from "./tiles.js";
import { PROPS, View, openViews } from "./view.js";
import { walk } from "./walk.js";

const SPEAK_AFTER = 500; // milliseconds of rest
const MASK_OPACITY = 0.6; // of a mask, relative to a heat map
const OUTLIER = "#0ff"; // outline of patches of unusual norm
const MOST_TRAIL = 96; // patches
const TILE_PIXELS = 8_000; // of a tile, about 90 pixels wide on the screen

const SETTINGS = {
  quantity: "attention",
  block: 0, // from 1; 0 is the last
  head: "mean", // or "heads", "max", the number of a head
  layer: "heat", // or "light", "mask"
  mass: 60, // percent, as opacity
  opacity: 85,
  colormap: "", // "": default of the quantity
  outline: false, // of the mask, on the other layers too
};
const SUMMARIES = { mean: "Mean", max: "Max", heads: "All heads" };
const KEYS =
  "Move the pointer or use the arrow keys to choose a patch. Enter pins it, Delete removes the pin, Escape returns to the whole image.";
const RANDOM = "Random weights: this network was not trained.";

export class AttentionView extends View {
  quantity = "attention"; // on the screen, while `settings` may wait for arrays
  arrays = null; // of one block, with its number
  hovered = null;
  trail = []; // of the pointer: the last patches, for an animation
  likely = null; // default patch of quantities that need one
  maps = null; // on the stage
  pins = new Pins(COLORS.pins);
  pinned = false; // by the last press
  summary = "mean"; // of the first tile
  guided = null; // patch of the pin that walks over the first image
  title = el("h3", { class: "lab-chip" });
  banner = el("p", { class: "lab-chip lab-banner", hidden: true }, RANDOM);
  caption = el("p", { class: "lab-chip" });
  scale = colorBar();
  tiles = new Tiles("Attention head", (head) => this.set({ head }));
  hint = el("p", { class: "lab-soft" }, "Click, tap or press Enter to pin a patch. Up to eight pins are compared.");
  pinTiles = new Tiles("Pinned patches", (key) => this.activate(this.pins.list[key] ?? null));
  remove = button("Remove", () => this.removePin());
  pinBox = el("div", { class: "lab-parts lab-pins", hidden: true }, this.hint, this.pinTiles.element, this.remove);
  where = el("span", { class: "lab-where" });
  what = el("span", { class: "lab-what lab-soft" });
  ranges = el("span", { class: "lab-soft" }); // of every head
  seek = rested(() => this.reload());
  speak = rested(() => (this.spoken.textContent = `${this.where.textContent}. ${this.what.textContent}.`), SPEAK_AFTER);

  constructor(mounted) {
    super(mounted, SETTINGS);
    const { props } = this;
    this.stage = new Stage(props.label ?? "Image with attention maps", KEYS, this);
    this.stage.cell.append(el("div", { class: "lab-top" }, props.title && this.title, this.banner));
    this.stage.cell.append(el("div", { class: "lab-bottom" }, this.caption, this.scale));
    this.blocks = props.blocks && new Blocks(this);
    const readout = el("p", { class: "lab-readout" }, this.where, this.what, this.ranges);
    const numbers = el("details", { hidden: !props.numbers }, el("summary", {}, "Numbers"), readout);
    const names = Object.keys(SETTINGS).map((name) => PROPS[name] ?? name);
    this.watch(names, () => this.set(this.given(SETTINGS)));
    const aside = this.asideOf(this.blocks && this.blocks.element, this.pinBox, numbers);
    this.mount("value", this.stage.cell, this.tiles.element, aside);
  }

  /** Change settings. A block that is not in memory is fetched after a rest. @param {Record<string, any>} change */
  set(change) {
    const { quantity, block } = this.settings;
    if (!this.encoding && this.props.address) return; // controls at their defaults must not replace the address
    Object.assign(this.settings, change);
    if (!this.encoding) return;
    if (this.settings.block >= this.encoding.blocks) this.settings.block = 0;
    if (this.settings.quantity === quantity && this.settings.block === block) this.render();
    else if (this.encoding.holds(this.selectedQuantity, this.number(this.encoding))) this.reload();
    else this.seek();
  }

  get selectedQuantity() {
    return this.settings.quantity in QUANTITIES ? this.settings.quantity : "attention";
  }

  /** Return the number of the block, from 0. @param {Encoding} encoding */
  number({ blocks }) {
    return Math.min(this.settings.block || blocks, blocks) - 1;
  }

  async load(signal) {
    const { value } = this;
    this.seek.cancel();
    if (!value.token || !this.expects(value)) return;
    const encoding = this.encoding?.value === value ? this.encoding : new Encoding(value);
    const quantity = this.selectedQuantity;
    return { encoding, quantity, arrays: await encoding.arrays(quantity, this.number(encoding), signal) };
  }

  /** True if a first value matches the address. @param {EncodingValue} value */
  expects(value) {
    const first = { image: value.source, model: value.model, size: value.size };
    const named = Object.entries(first).filter(([name]) => this.linked[name]);
    return Boolean(this.encoding) || named.every(([name, shown]) => this.linked[name] === String(shown));
  }

  /** Say why something is not shown, and return to the settings of what is shown. @param {string} sentence */
  refuse(sentence, again) {
    super.refuse(sentence, again);
    const { encoding, arrays, quantity } = this;
    if (encoding?.value !== this.value) return;
    const block = arrays.number + 1;
    Object.assign(this.settings, { quantity, block: block === encoding.blocks ? 0 : block });
    this.emit("edited", this.state);
  }

  restore() {
    if (this.encoding) this.show(this);
  }

  /** The views on the page that share the pointer, this one too. */
  /** @returns {any[]} */
  get group() {
    const { group } = this.props;
    const views = openViews(this.element.getRootNode());
    return group ? views.filter((view) => view.props.group === group && view.encoding) : [this];
  }

  get definition() {
    return QUANTITIES[this.quantity];
  }

  /** The patch whose maps are shown; null: [CLS]. */
  get patch() {
    const { active } = this.pins;
    return this.hovered ?? (active ? this.encoding.patchAt(active) : (this.guided ?? this.likely));
  }

  /** The map on the stage: "mean" if heads have no maps of their own. */
  get shown() {
    const { head } = this.settings;
    return this.definition.heads && this.tiles.tiles.has(head) ? head : "mean";
  }

  get colormap() {
    return this.settings.colormap || this.definition.colormap || "inferno";
  }

  get opacity() {
    const masked = this.settings.layer === "mask" && this.shown !== "heads" && !this.definition.colors;
    return (this.settings.opacity / 100) * (masked ? MASK_OPACITY : 1);
  }

  /** Compute the maps of a patch, or of [CLS] for null. @param {Patch} patch */
  mapsOf(patch = this.patch, arrays = this.arrays, encoding = this.encoding) {
    const { layer, mass } = this.settings;
    const diverging = layer === "heat" && COLORS.diverging.includes(this.colormap);
    const heads = this.definition.maps(arrays, encoding.tokenOf(patch));
    return new Maps(heads, { mass: mass / 100, diverging, signed: this.definition.signed });
  }

  /** Return bytes per patch as a mask; by default the kept patches of the map on the stage. @returns {Labels} */
  mask(values = this.maps.kept(this.shown)) {
    const { rows, columns } = this.encoding;
    return { rows, columns, values };
  }

  /** Return [red, green, blue] of a head, the mean or the maximum. @param {string} key */
  colorOf(key) {
    return COLORS.summary[key] ?? COLORS.heads[(Number(key) || 0) % COLORS.heads.length];
  }

  /** The mean of the heads, or another summary, and every head. */
  entries() {
    const entry = (key, label) => ({ key, label, color: css(this.colorOf(key)) });
    const each = Array.from({ length: this.encoding.heads }, (_, head) => entry(String(head), `Head ${head}`));
    const { head } = this.settings;
    if (head in SUMMARIES) this.summary = head;
    return [entry(this.summary, SUMMARIES[this.summary]), ...each];
  }

  /** Settings as the controls of the page have them. */
  get state() {
    const { encoding, settings } = this;
    return { ...settings, block: settings.block || encoding?.blocks || 0 };
  }

  sections() {
    return attentionSections(this.group);
  }

  show({ encoding, arrays, quantity }) {
    const { props, element, encoding: before } = this;
    Object.assign(this, { encoding, arrays, quantity });
    const { heads, colors, fixed, needsPatch } = this.definition;
    this.likely = needsPatch ? (encoding.pinned ?? likelyPatch(arrays, encoding)) : null;
    if (before?.source !== encoding.source) {
      this.pins.read(this.linked, encoding);
      this.guided = null;
      this.endWalk?.();
    }
    const isOther = ["source", "rows", "columns", "heads"].some((fact) => before?.[fact] !== encoding[fact]);
    if (isOther || !this.stage.open) {
      Object.assign(this, { hovered: null, trail: [] });
      this.stage.show(encoding);
      for (const side of ["rows", "columns"]) element.style.setProperty(`--${side}`, String(encoding[side]));
    } else this.stage.image.src = encoding.image; // the next frame of a camera
    this.tiles.open(encoding, this.entries());
    const walks = props.walk && !before && !Object.keys(this.linked).length;
    this.linked = {};
    this.title.textContent = encoding.value.model ?? "";
    this.banner.hidden = !encoding.value.random;
    this.tiles.element.hidden = props.tiles === false || !heads;
    this.pinBox.hidden = props.pins === false || colors || fixed;
    this.showPins();
    this.render();
    if (this.blocks) this.blocks.show();
    const { mode } = this.definition;
    Object.assign(element.dataset, { token: encoding.token, quantity, mode, block: arrays.number }); // tests wait for it
    this.emitShown(encoding.token);
    if (walks && encoding.source === props.walk.source) this.endWalk = walk(this, props.walk.places);
  }

  /** Draw the maps of another patch or setting, the pins, and the address. */
  render() {
    const { encoding, settings, pins, likely, props } = this;
    if (!encoding) return;
    this.tiles.open(encoding, this.entries());
    this.dress();
    this.draw();
    const suggested = likely && { ...encoding.placeOf(likely), color: "#fff", number: "" };
    this.stage.mark(pins.list.length || !likely ? pins.list : [suggested]);
    this.paintPins();
    if (!props.address) return;
    write({ ...settings, ...pins.written(encoding) }, this.start);
  }

  draw() {
    const { patch, shown, definition, stage, pins } = this;
    this.maps = definition.colors ? null : this.mapsOf(patch);
    this.paint(stage.canvas, shown, this.maps, { pixels: STAGE_PIXELS });
    this.scale.hidden = !this.shownScale;
    for (const [key, { canvas }] of definition.heads ? this.tiles.tiles : []) this.paint(canvas, key, this.maps);
    const color = (!this.hovered && pins.active?.color) || "#fff";
    stage.draw(this.outlines(), this.encoding, this.guided ? null : patch, color);
    [this.where.textContent, this.what.textContent] = this.describe();
    const range = (_, head) => `head ${head}: ${this.maps.range(String(head)).map(this.valueText, this).join(" to ")}`;
    this.ranges.textContent = this.definition.heads ? `Ranges: ${this.maps.heads.map(range).join(", ")}` : "";
    this.caption.textContent = this.says();
    this.speak();
    if (this.blocks) this.blocks.follow();
  }

  /** Set what the style sheet needs. */
  dress() {
    const { settings, shown, element, definition } = this;
    element.dataset.layer = definition.colors ? "colors" : settings.layer;
    element.dataset.show = definition.colors ? "colors" : shown;
    element.style.setProperty("--scale", `linear-gradient(to right, ${this.stops.join(", ")})`);
    element.style.setProperty("--opacity", String(this.opacity));
    this.tiles.mark(shown);
  }

  /**
   * Draw one map.
   * @param {import("./paint.js").PatchCanvas} canvas @param {string} key @param {Maps} maps  null: principal components
   */
  paint(canvas, key, maps, { arrays = this.arrays, pixels = TILE_PIXELS } = {}) {
    const { settings, encoding } = this;
    const { layer } = settings;
    const size = drawnSize(encoding, pixels / (key === "heads" ? encoding.heads : 1));
    if (!maps) canvas.colors(arrays.colors, encoding);
    else if (key === "heads") {
      const keys = maps.heads.map((_, head) => String(head));
      const [weights, kept] = [keys.map((head) => maps.weights(head)), keys.map((head) => maps.kept(head))];
      canvas.heads(weights, kept, keys.map((head) => this.colorOf(head)), encoding, size); // prettier-ignore
    } else if (layer === "mask") canvas.labels(this.mask(maps.kept(key)), [this.colorOf(key)]);
    else canvas.values(maps.map(key), encoding, size, maps.scale(key), layer === "light" ? LIGHT : COLORMAPS[this.colormap]); // prettier-ignore
  }

  outlines() {
    const { shown, settings, definition } = this;
    if (definition.fixed) return [{ path: outlinePath(this.mask(this.arrays.outliers)), color: OUTLIER }];
    const masked = settings.layer === "mask";
    if (definition.colors || shown === "heads" || !(masked || settings.outline)) return [];
    return [{ path: outlinePath(this.mask()), color: masked ? css(this.colorOf(shown)) : "#fff" }];
  }

  /** Colors of the scale, from the lowest value to the highest. */
  get stops() {
    if (this.settings.layer === "light") return ["#000", "#fff"];
    const bytes = new Uint8Array(COLORMAPS[this.colormap].buffer);
    return [0, 51, 102, 153, 204, 255].map((level) => css(bytes.subarray(4 * level, 4 * level + 3)));
  }

  /** Values at the ends of the color bar and its colors; null if colors do not stand for values. */
  get shownScale() {
    const { maps, shown, settings } = this;
    if (!maps || shown === "heads" || settings.layer === "mask") return null;
    return { ends: maps.scale(shown).map(this.valueText, this), stops: this.stops };
  }

  /** Write a value of a map; attention in percent. @param {number} value */
  valueText(value) {
    return this.definition.signed ? figure(value, 2) : `${figure(100 * value, 2)} %`;
  }

  showPins() {
    const { encoding, pins, pinTiles } = this;
    const entries = pins.list.map((pin, index) => {
      const { row, column } = encoding.patchAt(pin);
      return { key: String(index), label: `row ${row}, column ${column}`, color: pin.color, marker: index + 1 };
    });
    const rest = { key: "", label: this.likely ? "The object" : "[CLS]" };
    pinTiles.open(encoding, entries.length ? [rest, ...entries] : []);
    pinTiles.mark(pins.active ? String(pins.list.indexOf(pins.active)) : "");
    this.remove.hidden = !pins.active;
    this.hint.hidden = pins.list.length > 0;
  }

  paintPins() {
    const { pins, encoding, shown, pinTiles, definition } = this;
    if (definition.colors) return;
    for (const [key, { canvas }] of pinTiles.tiles)
      this.paint(canvas, shown, this.mapsOf(key ? encoding.patchAt(pins.list[key]) : this.likely));
  }

  says() {
    const { definition, patch, shown, encoding, settings } = this;
    const { heads } = encoding;
    const of =
      shown in SUMMARIES
        ? `${shown === "heads" ? "all" : shown + " of"} ${heads} heads`
        : `head ${shown} of 0 to ${heads - 1}`;
    const subject = patch ? "This patch" : "[CLS], the whole image,";
    const sentence = definition.says.replace("SUBJECT", subject).replace("BLOCK", String(this.arrays.number + 1));
    const masked = settings.layer === "mask" && !definition.colors && !definition.fixed;
    return [sentence, definition.heads && of, masked && `mask of ${settings.mass} %`].filter(Boolean).join(" · ");
  }

  /** Describe the place, and what is shown of it: the mass and area that are kept, or variance, or outliers. */
  describe() {
    const { patch, arrays, encoding, definition, shown, maps } = this;
    const all = definition.colors || definition.fixed ? "All patches" : "[CLS], the token of the whole image";
    const where = patch ? `Patch row ${patch.row}, column ${patch.column}` : all;
    if (definition.colors) {
      const shares = Array.from(arrays.shares, percent).join(", ");
      return [where, `Principal components as red, green and blue: ${shares} of the variance`];
    }
    if (!definition.fixed) {
      const { mass, area } = keptShares(maps.weights(shown === "heads" ? "mean" : shown), maps.kept(shown));
      const values = definition.signed ? "the values above the minimum" : "the attention";
      return [where, `The mask keeps ${percent(mass)} of ${values} on ${percent(area)} of the image`];
    }
    const norm = patch ? `Norm ${decimals(arrays.norms[patch.row * encoding.columns + patch.column])} · ` : "";
    const count = arrays.outliers.reduce((sum, marked) => sum + marked, 0);
    return [where, `${norm}${count} ${count === 1 ? "outlier" : "outliers"} of over 6 deviations above the median`];
  }

  /** Move the pin of the first view; null removes it. @param {Place} place */
  guide(place) {
    this.guided = place && this.encoding.patchAt(place);
    this.stage.pin(place);
    this.draw();
  }

  point(place) {
    const patch = place && this.encoding?.patchAt(place);
    if (!this.encoding || samePatch(patch, this.hovered)) return;
    this.hover(patch);
    const center = patch && this.encoding.placeOf(patch);
    for (const other of this.group) if (other !== this) other.hoverAt(center);
  }

  /** Show the maps of a place as if the pointer were there. @param {Place} place */
  hoverAt(place) {
    if (!this.encoding) return;
    this.stage.circle(place);
    this.hover(place && this.encoding.patchAt(place));
  }

  hover(patch) {
    this.hovered = patch;
    if (patch) this.trail = [...this.trail.slice(1 - MOST_TRAIL), patch];
    this.draw();
  }

  press(place) {
    const { encoding, pins } = this;
    const patch = encoding.patchAt(place);
    this.hovered = patch;
    if (this.props.pins === false) this.draw();
    else this.changePins(() => (this.pinned = pins.pin(patch, encoding)));
    this.emit("select", { ...patch, ...encoding.placeOf(patch), token: encoding.token });
  }

  retract() {
    if (this.pinned) this.removePin();
  }

  key({ key }) {
    if (key === "Escape") this.activate(null);
    else if (key === "Delete" || key === "Backspace") this.removePin();
    else return false;
    return true;
  }

  activate(pin) {
    this.hovered = null; // the pointer is elsewhere
    this.endWalk?.();
    this.changePins(() => (this.pins.active = pin));
  }

  removePin() {
    this.hovered = null;
    this.changePins(() => this.pins.removeActive());
  }

  changePins(action) {
    if (!this.encoding) return;
    action();
    this.showPins();
    this.render();
  }
}
