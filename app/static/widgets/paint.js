// Maps become pixels: one canvas pixel per patch, enlarged by the style sheet.

import { fromBase64 } from "../maths/format.js";

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

/** A canvas with one pixel per patch, and the numbers behind it. */
export class PatchCanvas {
  /** @param {HTMLCanvasElement} canvas */
  constructor(canvas) {
    this.canvas = canvas;
    this.context = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
    this.image = this.context.createImageData(1, 1);
    this.pixels = new Uint32Array(this.image.data.buffer);
  }

  /** @param {number} rows @param {number} columns */
  resize(rows, columns) {
    this.canvas.width = columns;
    this.canvas.height = rows;
    this.image = this.context.createImageData(columns, rows);
    this.pixels = new Uint32Array(this.image.data.buffer);
  }

  show() {
    this.context.putImageData(this.image, 0, 0);
  }

  /** A map in false colours, from `low` to `high`. @param {Float32Array} map @param {Uint32Array} colors @param {[number, number]} range */
  heat(map, colors, [low, high]) {
    const scale = high > low ? 255 / (high - low) : 0;
    for (let patch = 0; patch < map.length; patch++) {
      const level = Math.round((map[patch] - low) * scale);
      this.pixels[patch] = colors[level < 0 ? 0 : level > 255 ? 255 : level];
    }
    this.show();
  }

  /** The kept patches in one colour [red, green, blue], the others clear. @param {Uint8Array} kept @param {number[]} color */
  mask(kept, color) {
    const fill = packed(color[0], color[1], color[2]);
    for (let patch = 0; patch < kept.length; patch++) this.pixels[patch] = kept[patch] ? fill : 0;
    this.show();
  }

  /** Colours of their own: red, green and blue from 0 to 1 for every patch. @param {Float32Array} values */
  colors(values) {
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
   * Every head in its colour: a patch takes the head that attends to it most, each head measured against its own
   * strongest patch; the stronger, the more opaque. Only kept patches are coloured.
   * @param {Float32Array[]} maps @param {Uint8Array[]} kept @param {number[][]} colors
   */
  heads(maps, kept, colors) {
    const peaks = maps.map((map) => peakOf(map));
    for (let patch = 0; patch < this.pixels.length; patch++) {
      let best = 0;
      let winner = 0;
      for (let head = 0; head < maps.length; head++) {
        const strength = kept[head][patch] ? maps[head][patch] / peaks[head] : 0;
        if (strength > best) {
          best = strength;
          winner = head;
        }
      }
      this.pixels[patch] = best
        ? packed(colors[winner][0], colors[winner][1], colors[winner][2], Math.round(255 * Math.sqrt(best)))
        : 0;
    }
    this.show();
  }
}

/** @param {Float32Array} map */
function peakOf(map) {
  let peak = 0;
  for (let patch = 0; patch < map.length; patch++) if (map[patch] > peak) peak = map[patch];
  return peak || 1;
}
