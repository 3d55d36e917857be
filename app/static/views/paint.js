// Maps become pixels: masks and labels one per patch, enlarged by the style sheet; values as many as the screen shows.

import { fromBase64 } from "../maths/format.js";
import { enlarge } from "../maths/levels.js";

const LEVELS = 256;

/**
 * A colour as one number, as canvases store it: red in the lowest byte.
 * @param {number} red @param {number} green @param {number} blue
 */
export function packed(red, green, blue, alpha = 255) {
  return ((alpha << 24) | (blue << 16) | (green << 8) | red) >>> 0;
}

/** 256 packed colours from the 768 bytes that the server sends for a colour map. @param {string} base64 */
export function colormap(base64) {
  const bytes = fromBase64(base64);
  return Uint32Array.from({ length: 256 }, (_, level) =>
    packed(bytes[3 * level], bytes[3 * level + 1], bytes[3 * level + 2]),
  );
}

/** A pixel by level: dark where nothing counts, clear where all does. */
export const LIGHT = Uint32Array.from({ length: LEVELS }, (_, level) => packed(0, 0, 0, 255 - level));

/**
 * A pixel by level: the more a level counts, the more opaque; with `diverging`, both ends count most.
 * @param {Uint32Array} colors @param {boolean} diverging
 */
export function glow(colors, diverging) {
  return colors.map((color, level) => {
    const alpha = diverging ? Math.round(Math.abs(2 * level - 255)) : level;
    return ((color & 0xffffff) | (alpha << 24)) >>> 0;
  });
}

/** A canvas, and the numbers behind it. */
export class PatchCanvas {
  /** @param {HTMLCanvasElement} canvas */
  constructor(canvas) {
    this.canvas = canvas;
    this.context = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
    this.image = this.context.createImageData(1, 1);
    this.pixels = new Uint32Array(this.image.data.buffer);
  }

  /** Room for a value per cell; a canvas that has it already is left alone. @param {number} rows @param {number} columns */
  resize(rows, columns) {
    if (this.canvas.width === columns && this.canvas.height === rows && this.image.width === columns) return;
    this.canvas.width = columns;
    this.canvas.height = rows;
    this.image = this.context.createImageData(columns, rows);
    this.pixels = new Uint32Array(this.image.data.buffer);
  }

  clear() {
    this.pixels.fill(0);
    this.show();
  }

  show() {
    this.context.putImageData(this.image, 0, 0);
  }

  /**
   * A map as pixels of a table, from `low` to `high`, interpolated between patches where `size` asks for more of them.
   * @param {Float32Array} map @param {Grid} grid @param {Size | null} size @param {[number, number]} range @param {Uint32Array} table
   */
  values(map, grid, size, range, table) {
    const { width, height } = size ?? { width: grid.columns, height: grid.rows };
    this.resize(height, width);
    enlarge(map, grid, { width, height }, range, table, this.pixels);
    this.show();
  }

  /** The kept patches in one colour [red, green, blue], the others clear. @param {Uint8Array} kept @param {number[]} color @param {Grid} grid */
  mask(kept, color, { rows, columns }) {
    this.resize(rows, columns);
    const fill = packed(color[0], color[1], color[2]);
    for (let patch = 0; patch < kept.length; patch++) this.pixels[patch] = kept[patch] ? fill : 0;
    this.show();
  }

  /** Colours of their own: red, green and blue from 0 to 1 for every patch. @param {Float32Array} values @param {Grid} grid */
  colors(values, { rows, columns }) {
    this.resize(rows, columns);
    for (let patch = 0; patch < this.pixels.length; patch++) {
      const [red, green, blue] = [0, 1, 2].map((channel) => Math.round(255 * values[3 * patch + channel]));
      this.pixels[patch] = packed(red, green, blue);
    }
    this.show();
  }

  /** Objects in their colours [[red, green, blue], …]: 0 stays clear, 1 takes the first. @param {Uint8Array} values @param {number[][]} colors */
  labels(values, colors) {
    const fills = [0, ...colors.map((color) => packed(color[0], color[1], color[2]))];
    for (let cell = 0; cell < values.length; cell++) this.pixels[cell] = fills[values[cell]];
    this.show();
  }

  /**
   * Every head in its colour: a pixel takes the head that attends to it most, each head measured against its own
   * strongest patch; the stronger, the more opaque. Only kept patches are coloured.
   * @param {Float32Array[]} maps @param {Uint8Array[]} kept @param {number[][]} colors
   * @param {Grid} grid @param {Size | null} size  as in `values`
   */
  heads(maps, kept, colors, grid, size) {
    const { width, height } = size ?? { width: grid.columns, height: grid.rows };
    this.resize(height, width);
    const strongest = new Uint32Array(width * height);
    const strengths = new Uint32Array(width * height);
    this.pixels.fill(0);
    maps.forEach((map, head) => {
      const peak = peakOf(map);
      const strength = map.map((value, patch) => (kept[head][patch] ? Math.sqrt(value / peak) : 0));
      enlarge(strength, grid, { width, height }, [0, 1], STRENGTHS, strengths);
      const [red, green, blue] = colors[head];
      const fill = packed(red, green, blue, 0);
      for (let pixel = 0; pixel < strengths.length; pixel++) {
        if (strengths[pixel] <= strongest[pixel]) continue;
        strongest[pixel] = strengths[pixel];
        this.pixels[pixel] = (fill | ((strengths[pixel] >> 4) << 24)) >>> 0;
      }
    });
    this.show();
  }
}

const STRENGTHS = Uint32Array.from({ length: 4096 }, (_, level) => level); // finer than what is seen, to tell heads apart

/** @param {Float32Array} map */
function peakOf(map) {
  let peak = 0;
  for (let patch = 0; patch < map.length; patch++) if (map[patch] > peak) peak = map[patch];
  return peak || 1;
}
