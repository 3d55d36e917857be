// Maps and masks as pixels of a canvas.

import { range } from "../maths/attention.js";
import { fromBase64 } from "../maths/format.js";
import { enlarge } from "../maths/levels.js";
import { COLORS } from "./palette.js";

/** Pack a color as canvases store it, red in the lowest byte. */
export function packed(red, green, blue, alpha = 255) {
  return ((alpha << 24) | (blue << 16) | (green << 8) | red) >>> 0;
}

/** Pixels by level for the layer "light": black and less opaque for higher values. */
export const LIGHT = Uint32Array.from({ length: 256 }, (_, level) => packed(0, 0, 0, 255 - level));

/** Pixels by level for each color map; their opacity rises with the level, or with the distance from a middle of zero. */
export const COLORMAPS = Object.fromEntries(
  Object.entries(COLORS.colormaps).map(([name, text]) => {
    const bytes = fromBase64(text);
    const alpha = (level) => (COLORS.diverging.includes(name) ? Math.abs(2 * level - 255) : level);
    const pixel = (level) => packed(bytes[3 * level], bytes[3 * level + 1], bytes[3 * level + 2], alpha(level));
    return [name, Uint32Array.from({ length: 256 }, (_, level) => pixel(level))];
  }),
);

const LEVELS = Uint32Array.from({ length: 4096 }, (_, level) => level);

/** A canvas with access to its pixels. */
export class PatchCanvas {
  /** @param {HTMLCanvasElement} canvas */
  constructor(canvas) {
    this.canvas = canvas;
    this.context = canvas.getContext("2d");
    this.resize(1, 1);
  }

  image = null;
  pixels = null;

  resize(rows, columns) {
    if (this.image?.width === columns && this.image.height === rows) return;
    Object.assign(this.canvas, { width: columns, height: rows });
    this.image = this.context.createImageData(columns, rows);
    this.pixels = new Uint32Array(this.image.data.buffer);
  }

  clear() {
    this.pixels.fill(0);
    this.draw();
  }

  draw() {
    this.context.putImageData(this.image, 0, 0);
  }

  /** Draw a map from `low` to `high` with the pixels of a table. @param {Size} size */
  values(map, grid, size, range, table) {
    this.resize(size.height, size.width);
    enlarge(map, grid, size, range, table, this.pixels);
    this.draw();
  }

  /** Draw colors from 0 to 1: [patches, 3]. @param {Float32Array} values @param {Grid} grid */
  colors(values, { rows, columns }) {
    this.resize(rows, columns);
    const level = (at) => Math.round(255 * values[at]);
    for (let patch = 0; patch < this.pixels.length; patch++)
      this.pixels[patch] = packed(level(3 * patch), level(3 * patch + 1), level(3 * patch + 2));
    this.draw();
  }

  /** Draw objects in their colors [[red, green, blue], …]; 0 is transparent. @param {Labels} labels  if any */
  labels(labels, colors) {
    if (!labels) return this.clear();
    const { values, rows, columns } = labels;
    this.resize(rows, columns);
    const fills = [0, ...colors.map(([red, green, blue]) => packed(red, green, blue))];
    for (let cell = 0; cell < values.length; cell++) this.pixels[cell] = fills[values[cell]];
    this.draw();
  }

  /**
   * Draw all heads: a pixel takes the color of the head with the largest value, relative to that head's maximum. Its
   * opacity rises with the value. Only kept patches are drawn.
   * @param {Float32Array[]} maps @param {Uint8Array[]} kept @param {number[][]} colors @param {Grid} grid @param {Size} size
   */
  heads(maps, kept, colors, grid, size) {
    const { width, height } = size;
    this.resize(height, width);
    const strongest = new Uint32Array(width * height);
    const strengths = new Uint32Array(width * height);
    this.pixels.fill(0);
    maps.forEach((map, head) => {
      const [, peak] = range(map);
      const strength = new Float32Array(map.length);
      for (let patch = 0; patch < map.length; patch++)
        if (kept[head][patch]) strength[patch] = Math.sqrt(map[patch] / peak);
      enlarge(strength, grid, { width, height }, [0, 1], LEVELS, strengths);
      const [red, green, blue] = colors[head];
      for (let pixel = 0; pixel < strengths.length; pixel++) {
        if (strengths[pixel] <= strongest[pixel]) continue;
        strongest[pixel] = strengths[pixel];
        this.pixels[pixel] = packed(red, green, blue, strengths[pixel] >> 4);
      }
    });
    this.draw();
  }
}
