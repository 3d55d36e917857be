// Frames of a clip and the masks followed through it, as the server decoded them: one picture each, never a film, so
// that a mask always lies on its own frame.

import { Memory } from "../../memory.js";
import { askPicture } from "../../server.js";
import { packed } from "../../widgets/paint.js";

const PICTURES_HELD = 200e6; // bytes, decoded
const MASKS_HELD = 64e6;

export class Frames {
  /** @param {{ clip: string, width: number, height: number }} clip @param {number[][]} palette  of the masks' files */
  constructor({ clip, width, height }, palette) {
    this.url = `api/clips/${clip}`;
    this.numbers = new Map(palette.map(([red, green, blue], number) => [packed(red, green, blue), number]));
    this.context = /** @type {OffscreenCanvasRenderingContext2D} */ (
      new OffscreenCanvas(width, height).getContext("2d", { willReadFrequently: true })
    );
    this.cells = width * height;
    /** @type {Memory<Promise<HTMLImageElement>>} */
    this.pictures = new Memory(PICTURES_HELD);
    /** @type {Memory<Promise<Uint8Array>>} */
    this.masks = new Memory(MASKS_HELD);
  }

  /** A frame, ready to be drawn. @param {number} number */
  picture(number) {
    return remembered(this.pictures, String(number), 4 * this.cells, () =>
      askPicture(`${this.url}/frames/${number}.jpg`),
    );
  }

  /** Objects of a frame that a following has done: a byte per pixel. @param {string} following @param {number} number */
  labels(following, number) {
    return remembered(this.masks, `${following}/${number}`, this.cells, async () => {
      const mask = await askPicture(`api/followings/${following}/masks/${number}.png`);
      const { width, height } = this.context.canvas;
      this.context.drawImage(mask, 0, 0);
      const { data } = this.context.getImageData(0, 0, width, height);
      return Uint8Array.from(new Uint32Array(data.buffer), (color) => this.numbers.get(color) ?? 0);
    });
  }
}

/**
 * @template T
 * @param {Memory<Promise<T>>} memory @param {string} key @param {number} bytes @param {() => Promise<T>} make
 */
function remembered(memory, key, bytes, make) {
  const known = memory.get(key);
  if (known) return known;
  const made = make();
  made.catch(() => memory.forget(key)); // to be asked for again
  return memory.put(key, made, bytes);
}
