// Click to segment: the region that belongs to a clicked patch, with edges that follow the image.

import { Guide } from "../maths/guided.js";
import { resized } from "../maths/labels.js";
import { within } from "../maths/levels.js";
import { proposal, tidy } from "../maths/proposal.js";

const MIN_PART = 1 / 800; // of the image: smaller parts of a refined mask are removed
const REFINED_SIDE = 640; // pixels of the long side at which edges are refined

export class Clicks {
  constructor() {
    this.reach = 0.9; // share of the positive similarity that is kept
    this.forget();
  }

  /** Drop the arrays of an image. */
  forget() {
    /** @type {Encoding | null} */
    this.encoding = null;
    /** @type {Block | null} */
    this.block = null;
    /** @type {Guide | null} */
    this.guide = null;
  }

  /**
   * @param {Encoding} encoding @param {Block} block
   * @param {() => CanvasImageSource} picture  called when edges are first refined
   */
  open(encoding, block, picture) {
    Object.assign(this, { encoding, block, guide: null, picture });
  }

  /** Patches that belong to the patch at a place; null without arrays. @param {Place} place @returns {Labels | null} */
  proposed(place) {
    const { block, encoding } = this;
    if (!block || !encoding) return null;
    const { rows, columns } = encoding;
    return { rows, columns, values: proposal(block, encoding, encoding.patchAt(place), this.reach) };
  }

  /** Let the edges of patches follow those of the image. @param {Labels} patches @returns {Labels} */
  refined(patches) {
    const guide = (this.guide ??= this.makeGuide());
    const size = { rows: guide.height, columns: guide.width };
    const mask = guide.refine(resized(patches, size).values);
    return { ...size, values: tidy(mask, guide.width, MIN_PART * mask.length) };
  }

  makeGuide() {
    const encoding = /** @type {Encoding} */ (this.encoding);
    const { width, height } = within(encoding, REFINED_SIDE / Math.max(encoding.width, encoding.height));
    const canvas = new OffscreenCanvas(width, height);
    const context = /** @type {OffscreenCanvasRenderingContext2D} */ (canvas.getContext("2d"));
    if (this.picture) context.drawImage(this.picture(), 0, 0, width, height);
    const radius = Math.max(1, Math.round(Math.max(height / encoding.rows, width / encoding.columns)));
    return new Guide(context.getImageData(0, 0, width, height).data, width, height, radius);
  }

  /** @type {(() => CanvasImageSource) | undefined} */
  picture;
}
