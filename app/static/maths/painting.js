// Objects painted on a picture, as numbers: one byte per pixel, 0 for no object. No page, no canvas.

import { resized } from "./labels.js";

/**
 * @typedef {{ values: Uint8Array, objects: number[], active: number }} Moment
 */

const MAX_HISTORY = 30;
const HISTORY_BYTES = 12e6; // a large picture goes back fewer steps
const VEIL = 175; // opacity of the dark around what is lit
const FILL = 115; // opacity of an object, of 255; its edge is opaque

export class Painting {
  /** @param {{width: number, height: number, most: number}} size  of the picture, and how many objects it may have */
  constructor({ width, height, most }) {
    this.width = width;
    this.height = height;
    this.most = most;
    /** @type {Uint8Array} */
    this.values = new Uint8Array(width * height);
    this.objects = [1]; // numbers in use, rising
    this.active = 1; // the object that is painted
    /** @type {Moment[]} */
    this.past = [];
    /** @type {Moment[]} */
    this.future = [];
  }

  /** Go on with what was painted before. @param {number[]} runs */
  resume(runs) {
    if (!runs.length) return;
    this.values = fromRuns(runs, this.values.length);
    this.objects = [...new Set(this.values)].filter(Boolean).sort((one, other) => one - other);
    if (!this.objects.length) this.objects = [1];
    this.active = this.objects[0];
  }

  // ---- history

  get state() {
    return { values: this.values.slice(), objects: this.objects, active: this.active };
  }

  /** Call before a change that can be taken back. */
  remember() {
    const most = Math.min(MAX_HISTORY, Math.max(3, Math.floor(HISTORY_BYTES / this.values.length)));
    this.past = [...this.past.slice(1 - most), this.state];
    this.future = [];
  }

  undo() {
    this.travel(this.past, this.future);
  }

  redo() {
    this.travel(this.future, this.past);
  }

  /** @param {Moment[]} from @param {Moment[]} to */
  travel(from, to) {
    const moment = from.pop();
    if (!moment) return;
    to.push(this.state);
    Object.assign(this, moment);
  }

  // ---- objects

  /** Begin another object; one that has nothing yet is taken first. */
  add() {
    const unused = this.objects.find((number) => !this.has(number));
    const free = Array.from({ length: this.most }, (_, index) => index + 1).find(
      (number) => !this.objects.includes(number),
    );
    const number = unused ?? free;
    if (!number) return;
    if (!unused) this.objects = [...this.objects, number].sort((one, other) => one - other);
    this.active = number;
  }

  /** Take an object away, and all of its pixels. @param {number} number */
  remove(number) {
    this.remember();
    this.values = this.values.map((value) => (value === number ? 0 : value));
    this.objects = this.objects.filter((other) => other !== number);
    if (!this.objects.length) this.objects = [1];
    if (!this.objects.includes(this.active)) this.active = this.objects[0];
  }

  clear() {
    this.remember();
    this.values = new Uint8Array(this.values.length);
    this.objects = [1];
    this.active = 1;
  }

  /** Whatever is free becomes the active object, and what was taken is free. */
  invert() {
    this.remember();
    this.values = this.values.map((value) => (value ? 0 : this.active));
  }

  /** Put a whole mask, one byte per pixel, in the place of what was painted. @param {Uint8Array} values */
  replace(values) {
    this.remember();
    this.values = values;
  }

  /** @param {number} number */
  has(number) {
    return this.values.includes(number);
  }

  get empty() {
    return !this.values.some((value) => value);
  }

  /** What is painted, as labels; null where nothing is. @returns {Labels | null} */
  get labels() {
    return this.empty ? null : { rows: this.height, columns: this.width, values: this.values };
  }

  // ---- painting

  /**
   * Give every pixel within `radius` of the line between two points to an object; 0 erases.
   * @param {Point} from @param {Point} to @param {number} radius @param {number} number
   */
  line(from, to, radius, number = this.active) {
    const clamp = (/** @type {number} */ value, /** @type {number} */ most) => Math.min(most, Math.max(0, value));
    const left = clamp(Math.floor(Math.min(from.x, to.x) - radius), this.width);
    const right = clamp(Math.ceil(Math.max(from.x, to.x) + radius), this.width);
    const top = clamp(Math.floor(Math.min(from.y, to.y) - radius), this.height);
    const bottom = clamp(Math.ceil(Math.max(from.y, to.y) + radius), this.height);
    const [dx, dy] = [to.x - from.x, to.y - from.y];
    const squared = dx * dx + dy * dy || 1;
    for (let row = top; row < bottom; row++) {
      for (let column = left; column < right; column++) {
        const [x, y] = [column + 0.5 - from.x, row + 0.5 - from.y];
        const along = clamp((x * dx + y * dy) / squared, 1);
        if ((x - along * dx) ** 2 + (y - along * dy) ** 2 <= radius * radius)
          this.values[row * this.width + column] = number;
      }
    }
  }

  /** Give what a mask of any size holds to an object; 0 takes it away. @param {Labels} mask @param {number} number */
  take(mask, number = this.active) {
    const { values } = resized(mask, { rows: this.height, columns: this.width });
    for (let pixel = 0; pixel < values.length; pixel++) if (values[pixel]) this.values[pixel] = number;
  }

  /** Runs in reading order, for the server and for another day: [number, pixels, number, pixels, …]. */
  runs() {
    const runs = [];
    for (let start = 0; start < this.values.length; ) {
      let end = start + 1;
      while (end < this.values.length && this.values[end] === this.values[start]) end++;
      runs.push(this.values[start], end - start);
      start = end;
    }
    return runs;
  }
}

/** The pixels that `Painting.runs` wrote down. @param {number[]} runs @param {number} length */
export function fromRuns(runs, length) {
  const values = new Uint8Array(length);
  for (let run = 0, start = 0; run < runs.length; start += runs[run + 1], run += 2) {
    values.fill(runs[run], start, start + runs[run + 1]);
  }
  return values;
}

/**
 * Where the objects' numbers stand: the pixel nearest to all of an object's, as shares.
 * @param {Uint8Array} values @param {number} width @param {number} height
 * @returns {Map<number, Point>}
 */
export function centres(values, width, height) {
  /** @type {Map<number, [number, number, number]>} */
  const sums = new Map(); // number -> sum of columns, sum of rows, pixels
  eachPixel(values, width, (number, column, row) => {
    const sum = sums.get(number) ?? [0, 0, 0];
    sums.set(number, [sum[0] + column, sum[1] + row, sum[2] + 1]);
  });
  /** @type {Map<number, [number, number, number]>} */
  const nearest = new Map(); // number -> distance, column, row
  eachPixel(values, width, (number, column, row) => {
    const [columns, rows, count] = sums.get(number) ?? [0, 0, 1];
    const distance = (column - columns / count) ** 2 + (row - rows / count) ** 2;
    if (distance < (nearest.get(number)?.[0] ?? Infinity)) nearest.set(number, [distance, column, row]);
  });
  const share = (/** @type {[number, number, number]} */ [, column, row]) => ({
    x: (column + 0.5) / width,
    y: (row + 0.5) / height,
  });
  return new Map([...nearest].map(([number, place]) => [number, share(place)]));
}

/**
 * Call `visit` for every pixel of an object.
 * @param {Uint8Array} values @param {number} width
 * @param {(number: number, column: number, row: number) => void} visit
 */
function eachPixel(values, width, visit) {
  for (let pixel = 0; pixel < values.length; pixel++) {
    if (values[pixel]) visit(values[pixel], pixel % width, Math.floor(pixel / width));
  }
}

/**
 * What is inside keeps its colours, within a white line; the rest is dark. Into the bytes of an ImageData.
 * @param {Uint8Array} values @param {number} width @param {Uint8ClampedArray} data
 */
export function light(values, width, data) {
  data.fill(0);
  for (let pixel = 0; pixel < values.length; pixel++) {
    if (!values[pixel]) data[4 * pixel + 3] = VEIL;
    else if (onEdge(values, width, pixel)) data.fill(255, 4 * pixel, 4 * pixel + 4);
  }
}

/** @param {Uint8Array} values @param {number} width @param {number} pixel */
function onEdge(values, width, pixel) {
  const column = pixel % width;
  const number = values[pixel];
  return (
    (column > 0 && values[pixel - 1] !== number) ||
    (column < width - 1 && values[pixel + 1] !== number) ||
    (pixel >= width && values[pixel - width] !== number) ||
    (pixel + width < values.length && values[pixel + width] !== number)
  );
}

/**
 * Objects in their colours, with opaque edges, into the bytes of an ImageData.
 * @param {Uint8Array} values @param {number} width @param {number[][]} colors @param {Uint8ClampedArray} data
 */
export function tint(values, width, colors, data) {
  data.fill(0);
  for (let pixel = 0; pixel < values.length; pixel++) {
    const number = values[pixel];
    if (!number) continue;
    const edge = onEdge(values, width, pixel);
    const [red, green, blue] = colors[number - 1];
    data[4 * pixel] = red;
    data[4 * pixel + 1] = green;
    data[4 * pixel + 2] = blue;
    data[4 * pixel + 3] = edge ? 255 : FILL;
  }
}
