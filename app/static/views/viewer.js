// An image with its maps: the stage, and a row of heads. Everything is arithmetic on the arrays of one block.

import { entropy, keptShares, likelyPatch } from "../maths/attention.js";
import { css, figure } from "../maths/format.js";
import { outlinePath } from "../maths/labels.js";
import { Maps } from "../maths/maps.js";
import { samePatch } from "../maths/pins.js";
import { QUANTITIES } from "../maths/quantities.js";
import { drawnSize } from "../maths/levels.js";
import { find } from "./dom.js";
import { LIGHT, colormap, glow } from "./paint.js";
import { Stage } from "./stage.js";
import { Tiles, scaleBelow, tellScale } from "./tiles.js";

/**
 * @typedef {typeof SETTINGS} Settings
 * @typedef {object} ViewerEvents
 * @property {() => void} drawn  everything was drawn anew
 * @property {(key: string) => void} [choose]  a tile; without it, the tile is shown
 * @property {(patch: Patch | null) => void} [point]  without it, the patch is asked; null: the pointer left
 * @property {(patch: Patch) => void} [press]  without it, the patch stays asked
 */

const MASK_TINT = 0.6; // a mask covers its picture more lightly than a heat map does

export const STAGE_PIXELS = 400_000; // of a map on the stage: no more than the eye tells apart
const TILE_PIXELS = 16_000;

const SETTINGS = {
  show: "mean", // or "heads", "max", the number of a head
  layer: "light", // or "heat", "mask"
  mass: 0.6,
  opacity: 0.8,
  colormap: "", // "": the quantity's own
  smooth: true,
  scale: "median", // or "capped", "full"
  shared: false, // one scale for all heads
  range: /** @type {[number, number] | null} */ (null), // instead of a scale of the map's own
  outline: false,
  maps: true, // false: the bare picture
  patch: /** @type {Patch | null} */ (null), // asked about while nothing is pointed at; null: [CLS]
  color: "#fff", // of that patch
};

export class Viewer {
  /**
   * @param {HTMLElement} root  holds a .lab-stage and a .lab-tiles
   * @param {Colors} colors
   * @param {ViewerEvents} on
   * @param {Partial<Settings>} [settings]
   */
  constructor(root, colors, on, settings = {}) {
    this.root = root;
    this.colors = colors;
    this.on = on;
    this.tables = Object.fromEntries(
      Object.entries(colors.colormaps).map(([name, bytes]) => [
        name,
        glow(colormap(bytes), colors.diverging.includes(name)),
      ]),
    );
    this.settings = { ...SETTINGS, ...settings };
    this.quantity = "attention";
    /** @type {Encoding | null} */
    this.encoding = null;
    /** @type {any} */
    this.arrays = null; // of one block, with its number
    /** @type {Patch | null} */
    this.hovered = null;
    /** @type {Patch | null} */
    this.likely = null; // on the object: asked where a quantity asks a patch and none is named
    this.dressed = "";
    this.scale = scaleBelow(find(root, ".lab-stage"));
    this.stage = new Stage(find(root, ".lab-stage"), {
      point: (place) => this.point(this.grid.patchAt(place)),
      leave: () => this.point(null),
      press: (place) => this.press(this.grid.patchAt(place)),
      rest: () => this.set({ patch: null }),
    });
    this.tiles = new Tiles(find(root, ".lab-tiles"), (key) => (on.choose ? on.choose(key) : this.set({ show: key })));
  }

  /**
   * Show a picture in a quantity of one of its blocks.
   * @param {Encoding} encoding @param {any} arrays @param {string} quantity @param {import("./tiles.js").Show[]} [shows]
   */
  open(encoding, arrays, quantity = "attention", shows = this.shows(encoding)) {
    const before = this.encoding;
    Object.assign(this, { encoding, arrays, quantity });
    this.likely = this.asked.asks ? (encoding.pinned ?? likelyPatch(arrays, encoding)) : null;
    // Another picture needs another stage; another model over the same patches does not lose the pointer.
    const same =
      before &&
      ["photo", "rows", "columns", "heads"].every(
        (fact) => before[/** @type {"rows"} */ (fact)] === encoding[/** @type {"rows"} */ (fact)],
      );
    this.dressed = "";
    if (same) return;
    this.hovered = null;
    this.stage.show(encoding);
    for (const side of /** @type {const} */ (["rows", "columns"]))
      this.root.style.setProperty(`--${side}`, String(encoding[side]));
    this.tiles.open(encoding, shows);
  }

  /** @param {Partial<Settings>} settings */
  set(settings) {
    Object.assign(this.settings, settings);
    if (this.encoding) this.render();
  }

  /** @param {Patch | null} patch */
  point(patch) {
    if (!this.encoding || samePatch(patch, this.hovered)) return;
    if (this.on.point) this.on.point(patch);
    else this.hover(patch);
  }

  /** @param {Patch | null} patch */
  hover(patch) {
    this.hovered = patch;
    this.render();
  }

  /** @param {Patch} patch */
  press(patch) {
    this.hovered = patch;
    if (this.on.press) this.on.press(patch);
    else this.set({ patch });
  }

  // ---- numbers

  get grid() {
    return /** @type {Encoding} */ (this.encoding);
  }

  /** What is asked for. */
  get asked() {
    return QUANTITIES[this.quantity];
  }

  /** The patch asked about, or null for [CLS]. */
  get patch() {
    return this.hovered ?? this.settings.patch ?? this.likely;
  }

  /** The map on the stage: as chosen, but the only one there is where heads have none of their own. */
  get shown() {
    const { show } = this.settings;
    return this.asked.heads && (this.tiles.tiles.has(show) || show === "mean") ? show : "mean";
  }

  get colormap() {
    return this.settings.colormap || this.asked.colormap || "inferno";
  }

  /** Whether zero has the middle of the colours. */
  get diverging() {
    return this.settings.layer === "heat" && this.colors.diverging.includes(this.colormap);
  }

  /** The maps of one patch, or of [CLS] for null, under the settings. Not for colours. @param {Patch | null} patch @param {any} arrays */
  mapsOf(patch = this.patch, arrays = this.arrays) {
    const { mass, scale, shared, range } = this.settings;
    const heads = this.asked.maps?.(arrays, this.grid.tokenOf(patch)) ?? [];
    return new Maps(heads, {
      mass,
      scale,
      shared,
      range,
      diverging: this.diverging,
      signed: Boolean(this.asked.signed),
    });
  }

  /**
   * Of one map: entropy and its greatest possible value in nats, shares of the mass and of the area that its mask
   * keeps. Of all heads, the mask holds what any of them keeps, and the mass is their mean's.
   * @param {Maps} maps @param {string} [key]
   */
  measure(maps, key = this.resolve(this.shown)) {
    const one = key === "heads" ? "mean" : key;
    const map = maps.map(one);
    return { entropy: entropy(map), flat: Math.log(map.length), ...keptShares(maps.weights(one), maps.kept(key)) };
  }

  // ---- what is seen

  render() {
    const { patch, shown, asked, settings } = this;
    this.dress();
    this.maps = asked.colors ? null : this.mapsOf(patch);
    const ends = this.paint(this.stage.canvas, shown, this.maps, this.arrays, 4);
    const beyond =
      settings.scale === "full" || !ends ? ends : ends.map((end, index) => end + [" or less", " or more"][index]);
    tellScale(this.scale, settings.maps ? /** @type {[string, string] | null} */ (beyond) : null);
    for (const [key, { canvas, note, scale }] of asked.heads ? this.tiles.tiles : []) {
      tellScale(scale, this.paint(canvas, key, this.maps));
      note.textContent = this.note(key);
    }
    this.stage.draw(this.maps ? this.outlines(this.maps) : [], patch, this.hovered ? "#fff" : settings.color);
    this.on.drawn();
  }

  /** Settings that the style sheet draws, touched only when they change: every hover would lay out the page anew. */
  dress() {
    const { settings, shown, root, asked } = this;
    const state = JSON.stringify([settings, shown, this.quantity]);
    if (this.dressed === state) return;
    this.dressed = state;
    const masked = settings.layer === "mask" && shown !== "heads" && !asked.colors;
    const show = !settings.maps ? "picture" : asked.colors ? "colors" : shown;
    Object.assign(root.dataset, { layer: asked.colors ? "colors" : settings.layer, show });
    root.classList.toggle("lab-smooth", settings.smooth);
    root.style.setProperty("--scale", `linear-gradient(to right, ${this.scaleColors.join(", ")})`);
    root.style.setProperty("--opacity", String(settings.maps ? settings.opacity * (masked ? MASK_TINT : 1) : 0));
    this.tiles.choose(shown);
  }

  /** A value in words: shares are never negative. @param {number} value @param {number} digits */
  told(value, digits) {
    return this.asked.signed ? figure(value, digits) : `${figure(100 * value, digits)} %`;
  }

  /** What stands at a tile. @param {string} _key */
  note(_key) {
    return "";
  }

  /**
   * Draw one map; returns the values that its colours begin and end with, null where they stand for no values.
   * @param {PatchCanvas} canvas @param {string} tile @param {Maps | null} maps  null: colours
   * @param {any} arrays @param {number} digits  of the values @returns {[string, string] | null}
   */
  paint(canvas, tile, maps, arrays = this.arrays, digits = 2) {
    const { settings, grid } = this;
    if (!maps) {
      canvas.colors(arrays.colors, grid);
      return null;
    }
    const key = this.resolve(tile);
    const size = settings.smooth ? this.sizeOn(canvas, key === "heads" ? maps.heads.length : 1) : null;
    if (key === "heads") {
      const keys = maps.heads.map((_, head) => String(head));
      const weights = keys.map((head) => maps.weights(head));
      const [kept, colors] = [keys.map((head) => maps.kept(head)), keys.map((head) => this.colorOf(head))];
      canvas.heads(weights, kept, colors, grid, size);
    } else if (settings.layer === "mask") canvas.mask(maps.kept(key), this.colorOf(key), grid);
    else {
      canvas.values(maps.map(key), grid, size, maps.scale(key), this.table);
      const [low, high] = maps.scale(key).map((value) => this.told(value, digits));
      return [low, high];
    }
    return null;
  }

  /** A few colours of the scale, from its beginning to its end. */
  get scaleColors() {
    if (this.settings.layer === "light") return ["#000", "#fff"];
    const colors = [0, 51, 102, 153, 204, 255].map((level) => this.table[level]);
    return colors.map((color) => css([color & 255, (color >> 8) & 255, (color >> 16) & 255]));
  }

  /** What a level of the map becomes. */
  get table() {
    return this.settings.layer === "light" ? LIGHT : this.tables[this.colormap];
  }

  /** Pixels that a map is drawn with. @param {PatchCanvas} canvas @param {number} times */
  sizeOn(canvas, times) {
    return drawnSize(this.grid, (canvas === this.stage.canvas ? STAGE_PIXELS : TILE_PIXELS) / times);
  }

  /** Outline of the kept patches of the map on the stage. @param {Maps} maps */
  outlines(maps) {
    const { shown, settings } = this;
    const wanted = settings.maps && shown !== "heads" && (settings.outline || settings.layer === "mask");
    if (!wanted) return [];
    const path = outlinePath(maps.kept(this.resolve(shown)), this.grid.rows, this.grid.columns);
    return [{ path, color: settings.layer === "mask" ? css(this.colorOf(shown)) : "#fff" }];
  }

  /** Which map a tile stands for; "heads" for all of them. @param {string} key */
  resolve(key) {
    return key;
  }

  /** [red, green, blue] of a head, of the mean, of the maximum. @param {string} key */
  colorOf(key) {
    const { heads, summary } = this.colors;
    return key === "mean" || key === "max" ? summary[key] : heads[Number(key) % heads.length];
  }

  /** Every head, then what sums them up. @param {Encoding} encoding @returns {import("./tiles.js").Show[]} */
  shows({ heads }) {
    const tile = (/** @type {string} */ key, /** @type {string} */ label) => ({
      key,
      label,
      color: css(this.colorOf(key)),
    });
    const each = Array.from({ length: heads }, (_, head) => tile(String(head), `Head ${head}`));
    return [...each, tile("mean", "Mean"), tile("max", "Max"), { key: "heads", label: "All" }];
  }
}
