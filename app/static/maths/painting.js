// Objects painted on an image: one byte per pixel, 0 for no object.

import { resized } from "./labels.js";

const MAX_HISTORY = 30;
const HISTORY_BYTES = 12e6; // large images have fewer steps of undo
const VEIL = 175; // opacity around the inside, of 255
const FILL = 115; // opacity of an object; its edge is opaque

export class Painting {
  past = []; // states before changes
  encoding = null; // of the image
  /** @type {Uint8Array | null} */
  base = null; // tracked objects that were there before the painting

  /** @param {Size} size @param {number} most  number of objects @param {number[]} objects  numbers in use, rising */
  constructor({ width, height }, most = 1, objects = [1]) {
    this.width = width;
    this.height = height;
    this.most = most;
    this.objects = objects;
    this.active = objects.at(-1); // the object that is painted
    /** @type {Uint8Array} */
    this.values = new Uint8Array(width * height);
  }

  /** Save the state before a change that can be undone. */
  remember() {
    const most = Math.min(MAX_HISTORY, Math.max(3, Math.floor(HISTORY_BYTES / this.values.length)));
    const state = { values: this.values.slice(), objects: this.objects, active: this.active };
    this.past = [...this.past.slice(1 - most), state];
  }

  undo() {
    Object.assign(this, this.past.pop());
  }

  /** Add an object with the smallest free number, and make it active. */
  add() {
    this.active = 1;
    while (this.objects.includes(this.active)) this.active += 1;
    this.objects = [...this.objects, this.active].sort((one, other) => one - other);
  }

  /** Remove an object with its pixels. @param {number} number */
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
  }

  get empty() {
    return !this.values.some((value) => value);
  }

  /** The painting as labels; null if it is empty. @returns {Labels} */
  get labels() {
    return this.empty ? null : { rows: this.height, columns: this.width, values: this.values };
  }

  /** Paint all pixels within a radius of a line; object 0 erases. @param {Point} from @param {Point} to */
  line(from, to, radius, number = this.active) {
    const clamp = (value, most) => Math.min(most, Math.max(0, value));
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

  /** Paint the inside of a mask of any size; object 0 erases. @param {Labels} mask */
  take(mask, number = this.active) {
    const { values } = resized(mask, { rows: this.height, columns: this.width });
    for (let pixel = 0; pixel < values.length; pixel++) if (values[pixel]) this.values[pixel] = number;
  }

  /** Run lengths in reading order: [number, pixels, number, pixels, …]. */
  runs() {
    const runs = [];
    for (let start = 0, end = 0; start < this.values.length; start = end) {
      while (end < this.values.length && this.values[end] === this.values[start]) end++;
      runs.push(this.values[start], end - start);
    }
    return runs;
  }
}

/** Decode `Painting.runs`. @param {number[]} runs @param {number} length */
export function fromRuns(runs, length) {
  const values = new Uint8Array(length);
  for (let run = 0, start = 0; run < runs.length; start += runs[run + 1], run += 2) {
    values.fill(runs[run], start, start + runs[run + 1]);
  }
  return values;
}

/**
 * Draw objects in their colors with opaque edges, into the bytes of an ImageData.
 * @param {Uint8Array} values @param {boolean} lights  darken the outside instead of coloring the inside
 */
export function tint(values, width, colors, data, lights = false) {
  const [outside, inside] = lights ? [VEIL, 0] : [0, FILL];
  data.fill(0);
  for (let pixel = 0; pixel < values.length; pixel++) {
    if (values[pixel]) data.set(colors[values[pixel] - 1], 4 * pixel);
    data[4 * pixel + 3] = !values[pixel] ? outside : onEdge(values, width, pixel) ? 255 : inside;
  }
}

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
