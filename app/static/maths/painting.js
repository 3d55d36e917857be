// Objects painted on an image: one byte per pixel, 0 for no object.

import { resized } from "./labels.js";

const MAX_HISTORY = 30;
const HISTORY_BYTES = 12e6; // large images have fewer steps of undo
const VEIL = 175; // opacity around the inside, of 255
const FILL = 115; // opacity of an object; its edge is opaque

export class Painting {
  /** @param {Size & { most: number }} size  most: number of objects */
  constructor({ width, height, most }) {
    Object.assign(this, { width, height, most });
    /** @type {Uint8Array} */
    this.values = new Uint8Array(width * height);
    this.objects = [1]; // numbers in use, rising
    this.active = 1; // the object that is painted
    this.past = [];
  }

  width = 1;
  height = 1;
  most = 1;

  get state() {
    return { values: this.values.slice(), objects: this.objects, active: this.active };
  }

  /** Save the state before a change that can be undone. */
  remember() {
    const most = Math.min(MAX_HISTORY, Math.max(3, Math.floor(HISTORY_BYTES / this.values.length)));
    this.past = [...this.past.slice(1 - most), this.state];
  }

  undo() {
    Object.assign(this, this.past.pop());
  }

  /** Add an object and make it active; an object without pixels is reused. */
  add() {
    const numbers = Array.from({ length: this.most }, (_, index) => index + 1);
    const number = numbers.find((one) => !this.values.includes(one));
    if (!number) return;
    this.objects = [...new Set([...this.objects, number])].sort((one, other) => one - other);
    this.active = number;
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
    Object.assign(this, { objects: [1], active: 1 });
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

/** Find for every object its pixel nearest to its center, as shares. @param {Uint8Array} values @returns {Map<number, Point>} */
export function centers(values, width, height) {
  const sums = new Map(); // sum of columns, sum of rows, pixels
  const nearest = new Map(); // distance, column, row
  const each = (visit) => {
    for (let pixel = 0; pixel < values.length; pixel++)
      if (values[pixel]) visit(values[pixel], pixel % width, Math.floor(pixel / width));
  };
  each((number, column, row) => {
    if (!sums.has(number)) sums.set(number, [0, 0, 0]);
    const sum = sums.get(number);
    sum[0] += column;
    sum[1] += row;
    sum[2] += 1;
  });
  each((number, column, row) => {
    const [columns, rows, count] = sums.get(number);
    const distance = (column - columns / count) ** 2 + (row - rows / count) ** 2;
    if (!(distance >= nearest.get(number)?.[0])) nearest.set(number, [distance, column, row]);
  });
  const share = ([, column, row]) => ({ x: (column + 0.5) / width, y: (row + 0.5) / height });
  return new Map([...nearest].map(([number, place]) => [number, share(place)]));
}

/** Darken the outside and draw a white edge, into the bytes of an ImageData. @param {Uint8Array} values */
export function light(values, width, data) {
  data.fill(0);
  for (let pixel = 0; pixel < values.length; pixel++) {
    if (!values[pixel]) data[4 * pixel + 3] = VEIL;
    else if (onEdge(values, width, pixel)) data.fill(255, 4 * pixel, 4 * pixel + 4);
  }
}

/** Draw objects in their colors with opaque edges, into the bytes of an ImageData. @param {Uint8Array} values */
export function tint(values, width, colors, data) {
  data.fill(0);
  for (let pixel = 0; pixel < values.length; pixel++) {
    if (!values[pixel]) continue;
    data.set(colors[values[pixel] - 1], 4 * pixel);
    data[4 * pixel + 3] = onEdge(values, width, pixel) ? 255 : FILL;
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
