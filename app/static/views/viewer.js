// A stage with a row of tiles, one per head, and the maps of one block: all arithmetic, no requests.

import { likelyPatch } from "../maths/attention.js";
import { css, figure } from "../maths/format.js";
import { outlinePath } from "../maths/labels.js";
import { drawnSize } from "../maths/levels.js";
import { Maps } from "../maths/maps.js";
import { samePatch } from "../maths/pins.js";
import { QUANTITIES } from "../maths/quantities.js";
import { el } from "./dom.js";
import { LIGHT, glow } from "./paint.js";
import { COLORS } from "./palette.js";
import { Stage } from "./stage.js";
import { Tiles, colorBar, writeScale } from "./tiles.js";

const MASK_OPACITY = 0.6; // of a mask, relative to a heat map
const OUTLIER = "#0ff"; // outline of patches of unusual norm
const TILE_PIXELS = 8_000; // of a tile, about 90 pixels wide on the screen
export const STAGE_PIXELS = 400_000; // more are not visible
export const TABLES = Object.fromEntries(
  Object.entries(COLORS.colormaps).map(([name, bytes]) => [name, glow(bytes, COLORS.diverging.includes(name))]),
);

const SETTINGS = {
  show: "mean", // or "heads", "max", the number of a head
  layer: "light", // or "heat", "mask"
  mass: 0.6,
  opacity: 0.8,
  colormap: "", // "": default of the quantity
  /** @type {Patch} */
  patch: null, // shown while nothing is pointed at; null: [CLS]
  color: "#fff", // of that patch
};

export class Viewer {
  settings = { ...SETTINGS };
  quantity = "attention";
  encoding = null;
  arrays = null; // of one block, with its number
  hovered = null;
  likely = null; // default patch of quantities that need one
  maps = null;
  dressed = "";
  where = el("span", { class: "lab-where" });
  what = el("span", { class: "lab-what" });
  readout = el("p", { class: "lab-readout" }, this.where, this.what);
  scale = colorBar();

  /**
   * @param {HTMLElement} root  has data attributes and custom properties for the style sheet
   * @param {{ label: string, keys: string, heads?: string }} words
   * @param {{ drawn: () => void, choose: (key: string) => void, point: (patch: Patch) => void, press: (patch: Patch) => void }} on
   */
  constructor(root, { label, keys, heads = "Attention head" }, on) {
    this.root = root;
    this.on = on;
    this.stage = new Stage(label, keys, {
      point: (place) => this.point(this.encoding.patchAt(place)),
      leave: () => this.point(null),
      press: (place) => on.press(this.encoding.patchAt(place)),
    });
    this.tiles = new Tiles(heads, (key) => on.choose(key));
  }

  /** Show an image in a quantity of one block. @param {Encoding} encoding @param {string} quantity */
  open(encoding, arrays, quantity) {
    const before = this.encoding;
    Object.assign(this, { encoding, arrays, quantity, dressed: "" });
    this.likely = this.asked.asks ? (encoding.pinned ?? likelyPatch(arrays, encoding)) : null;
    if (before && ["photo", "rows", "columns", "heads"].every((fact) => before[fact] === encoding[fact])) return;
    this.hovered = null;
    this.stage.show(encoding);
    for (const side of ["rows", "columns"]) this.root.style.setProperty(`--${side}`, String(encoding[side]));
    this.tiles.open(encoding, this.entries(encoding));
  }

  set(settings) {
    Object.assign(this.settings, settings);
    if (this.encoding) this.render();
  }

  /** @param {Patch} patch  null: the pointer has left */
  point(patch) {
    if (this.encoding && !samePatch(patch, this.hovered)) this.on.point(patch);
  }

  hover(patch) {
    this.hovered = patch;
    this.render();
  }

  get asked() {
    return QUANTITIES[this.quantity];
  }

  /** The patch whose maps are shown; null: [CLS]. */
  get patch() {
    return this.hovered ?? this.settings.patch ?? this.likely;
  }

  /** The map on the stage: "mean" if heads have no maps of their own. */
  get shown() {
    const { show } = this.settings;
    return this.asked.heads && this.tiles.tiles.has(show) ? show : "mean";
  }

  get colormap() {
    return this.settings.colormap || this.asked.colormap || "inferno";
  }

  /** Compute the maps of a patch, or of [CLS] for null. @param {Patch} patch */
  mapsOf(patch = this.patch, arrays = this.arrays) {
    const diverging = this.settings.layer === "heat" && COLORS.diverging.includes(this.colormap);
    const heads = this.asked.maps(arrays, this.encoding.tokenOf(patch));
    return new Maps(heads, { ...this.settings, diverging, signed: this.asked.signed });
  }

  // ---- drawing

  render() {
    const { patch, shown, asked, settings, encoding } = this;
    this.dress();
    this.maps = asked.colors ? null : this.mapsOf(patch);
    const ends = this.paint(this.stage.canvas, shown, this.maps, this.arrays, 4);
    writeScale(this.scale, ends && [`${ends[0]} or less`, `${ends[1]} or more`]);
    for (const [key, { canvas, scale }] of asked.heads ? this.tiles.tiles : []) {
      writeScale(scale, this.paint(canvas, key, this.maps));
    }
    this.stage.draw(this.maps ? this.outlines() : [], encoding, patch, this.hovered ? "#fff" : settings.color);
    this.on.drawn();
  }

  /** Set what the style sheet needs, only if it has changed: otherwise every move would lay out the page. */
  dress() {
    const { settings, shown, root, asked } = this;
    const state = JSON.stringify([settings, shown, this.quantity]);
    if (this.dressed === state) return;
    this.dressed = state;
    root.dataset.layer = asked.colors ? "colors" : settings.layer;
    root.dataset.show = asked.colors ? "colors" : shown;
    root.style.setProperty("--scale", `linear-gradient(to right, ${this.gradient})`);
    root.style.setProperty("--opacity", String(this.opacity));
    this.tiles.mark(shown);
  }

  get opacity() {
    const masked = this.settings.layer === "mask" && this.shown !== "heads" && !this.asked.colors;
    return this.settings.opacity * (masked ? MASK_OPACITY : 1);
  }

  /**
   * Draw one map; returns the values at both ends of its colors, null if colors do not stand for values.
   * @param {import("./paint.js").PatchCanvas} canvas @param {string} key @param {Maps} maps  null: principal components
   */
  paint(canvas, key, maps, arrays = this.arrays, digits = 2) {
    const { settings, encoding } = this;
    if (!maps) return (canvas.colors(arrays.colors, encoding), null);
    const pixels = canvas === this.stage.canvas ? STAGE_PIXELS : TILE_PIXELS;
    const size = drawnSize(encoding, pixels / (key === "heads" ? maps.heads.length : 1));
    if (key === "heads") {
      const keys = maps.heads.map((_, head) => String(head));
      const weights = keys.map((head) => maps.weights(head));
      const [kept, colors] = [keys.map((head) => maps.kept(head)), keys.map((head) => this.colorOf(head))];
      canvas.heads(weights, kept, colors, encoding, size);
    } else if (settings.layer === "mask") canvas.labels(this.maskOf(key, maps), [this.colorOf(key)]);
    else {
      const range = maps.scale(key);
      canvas.values(maps.map(key), encoding, size, range, settings.layer === "light" ? LIGHT : TABLES[this.colormap]);
      return range.map((value) => (this.asked.signed ? figure(value, digits) : `${figure(100 * value, digits)} %`));
    }
    return null;
  }

  /** Return the kept patches as a mask. @param {string} key @param {Maps} maps @returns {Labels} */
  maskOf(key, maps = this.maps) {
    const { rows, columns } = this.encoding;
    return { rows, columns, values: maps.kept(key) };
  }

  /** The patches of unusual norm, as a mask. @returns {Labels} */
  get outliers() {
    const { rows, columns } = this.encoding;
    return { rows, columns, values: this.arrays.outliers };
  }

  get gradient() {
    if (this.settings.layer === "light") return "#000, #fff";
    const bytes = new Uint8Array(TABLES[this.colormap].buffer);
    return [0, 51, 102, 153, 204, 255].map((level) => css(bytes.subarray(4 * level, 4 * level + 3))).join(", ");
  }

  outlines() {
    const { shown, settings } = this;
    if (this.asked.fixed) return [{ path: outlinePath(this.outliers), color: OUTLIER }];
    if (shown === "heads" || settings.layer !== "mask") return [];
    return [{ path: outlinePath(this.maskOf(shown)), color: css(this.colorOf(shown)) }];
  }

  /** Return [red, green, blue] of a head, the mean or the maximum. @param {string} key */
  colorOf(key) {
    return COLORS.summary[key] ?? COLORS.heads[Number(key) % COLORS.heads.length];
  }

  /** List the tiles: every head, mean, maximum, all heads. @param {Encoding} encoding */
  entries({ heads }) {
    const entry = (key, label) => ({ key, label, color: css(this.colorOf(key)) });
    const each = Array.from({ length: heads }, (_, head) => entry(String(head), `Head ${head}`));
    return [...each, entry("mean", "Mean"), entry("max", "Max"), { key: "heads", label: "All", color: "#fff" }];
  }
}
