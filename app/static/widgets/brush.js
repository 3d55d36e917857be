// The brush: strokes on a stage become a painting, with pointer, finger or keys. Segment and Compare draw one mask with
// it, Video several objects.

import { outlinePath } from "../maths/labels.js";
import { within } from "../maths/levels.js";
import { Painting, light, tint } from "../maths/painting.js";
import { Refusal } from "../server.js";
import { render, svg } from "../vendor/lit-html.js";

const LONGEST = 1024; // cells of the long side: finer than a brush
const VISIBLE = 127; // of 255, from where a cell counts as drawn
const FAINTEST = 32; // of 255: files of labels have dark colours, JPEGs a little noise in their black
const SHAPE_TOLERANCE = 0.02;
const LARGEST_KEPT = 200_000; // characters that a drawn mask may take in the browser's store

export class Brush {
  /**
   * @param {Stage} stage @param {number[][]} colors  of the objects
   * @param {() => void} changed  a stroke has ended, or the painting was changed otherwise
   */
  constructor(stage, colors, changed) {
    this.stage = stage;
    this.colors = colors;
    this.changed = changed;
    this.erasing = false;
    this.lights = false; // what is painted is lit, instead of coloured
    this.size = 0.08; // diameter, as a share of the long side
    this.painting = new Painting({ width: 1, height: 1, most: 1 });
    this.context = /** @type {CanvasRenderingContext2D} */ (stage.overlay.getContext("2d"));
    this.image = this.context.createImageData(1, 1);
  }

  /** @param {Painting} painting */
  open(painting) {
    this.painting = painting;
    const { width, height } = painting;
    Object.assign(this.stage.overlay, { width, height });
    this.image = this.context.createImageData(width, height);
    this.show();
  }

  /** Draw between two places. @param {Place} from @param {Place} to */
  stroke(from, to) {
    const { painting } = this;
    if (from === to) painting.remember();
    const pixel = (/** @type {Place} */ { x, y }) => ({ x: x * painting.width, y: y * painting.height });
    painting.line(pixel(from), pixel(to), this.radius, this.erasing ? 0 : painting.active);
    this.show();
    this.ring();
  }

  /** In cells of the painting. */
  get radius() {
    return Math.max(0.5, (this.size * Math.max(this.painting.width, this.painting.height)) / 2);
  }

  /** Show how large the brush is where the cursor is. */
  ring(shown = true) {
    this.stage.ringAt(shown ? (2 * this.radius) / this.painting.width : 0);
  }

  /** @param {"undo" | "redo" | "clear" | "invert"} action */
  act(action) {
    this.painting[action]();
    this.show();
    this.changed();
  }

  /** Objects in their colours; those of another painting where `values` are given. */
  show(values = this.painting.values) {
    const { width, empty } = this.painting;
    if (this.lights && !empty) light(values, width, this.image.data);
    else tint(values, width, this.colors, this.image.data);
    this.context.putImageData(this.image, 0, 0);
  }

  /** The border of what is drawn, dashed, so that it is told from others without colour. */
  outline() {
    const { width, height, labels } = this.painting;
    this.stage.drawn.setAttribute("viewBox", `0 0 ${width} ${height}`);
    const path = labels ? outlinePath(labels.values, height, width) : "";
    render(svg`<path d=${path} class="lab-drawn-edge" /><path d=${path} class="lab-drawn-line" />`, this.stage.drawn);
  }

  /** Take a picture file as the mask: what is not black, or not transparent, is inside. Throws a Refusal. @param {File} file */
  async load(file) {
    const { width, height } = this.painting;
    const picture = await createImageBitmap(file).catch(() => {
      throw new Refusal("This file is no picture that the browser can read: choose a PNG or JPEG mask.");
    });
    if (Math.abs(picture.width / picture.height / (width / height) - 1) > SHAPE_TOLERANCE) {
      throw new Refusal("The mask has another shape than the picture: choose one of the same width and height.");
    }
    const context = /** @type {OffscreenCanvasRenderingContext2D} */ (
      new OffscreenCanvas(width, height).getContext("2d")
    );
    context.imageSmoothingEnabled = false; // labels have no values in between
    context.drawImage(picture, 0, 0, width, height);
    this.painting.replace(insideOf(context.getImageData(0, 0, width, height).data));
    this.show();
    this.changed();
  }
}

/** @param {Uint8ClampedArray} data */
function insideOf(data) {
  const inside = (/** @type {number} */ at) =>
    Math.max(data[at], data[at + 1], data[at + 2]) > FAINTEST && data[at + 3] > VISIBLE;
  return Uint8Array.from({ length: data.length / 4 }, (_, cell) => (inside(4 * cell) ? 1 : 0));
}

/** What visitors drew over their last photographs, for every tab that draws; a reload brings the last one back. */
export class Drawings {
  constructor() {
    /** @type {Map<string, Painting>} */
    this.paintings = new Map();
  }

  /** The painting over a photograph. @param {{ photo: string, width: number, height: number }} encoding */
  of({ photo, width, height }) {
    const known = this.paintings.get(photo);
    if (known) return known;
    const painting = new Painting({ ...within({ width, height }, LONGEST / Math.max(width, height)), most: 1 });
    painting.resume(recalled("drawn", photo) ?? []);
    this.paintings.set(photo, painting);
    if (this.paintings.size > 4) this.paintings.delete([...this.paintings.keys()][0]);
    return painting;
  }

  /** @param {string} photo @param {Painting} painting */
  keep(photo, painting) {
    remember("drawn", photo, painting);
  }
}

/** Let a reload bring a painting back, unless that would fill the browser's store. @param {string} store @param {string} about @param {Painting} painting */
export function remember(store, about, painting) {
  const text = painting.empty ? "" : JSON.stringify({ about, runs: painting.runs() });
  if (text && text.length < LARGEST_KEPT) sessionStorage.setItem(store, text);
  else sessionStorage.removeItem(store);
}

/** The runs of what was painted last, if it was on this. @param {string} store @param {string} about @returns {number[] | null} */
export function recalled(store, about) {
  const kept = JSON.parse(sessionStorage.getItem(store) ?? "null");
  return kept?.about === about ? kept.runs : null;
}
