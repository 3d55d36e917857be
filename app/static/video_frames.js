// Frames of a clip and the masks followed through it, as the server decoded them: one picture each, never a film, so
// that a mask always lies on its own frame.

import { Refusal } from "./encoding.js";

export class Frames {
  /** @param {{token: string, width: number, height: number}} clip  @param {number[][]} palette  of the masks' files */
  constructor({ token, width, height }, palette) {
    this.url = `lab/clips/${token}`;
    this.numbers = new Map(palette.map((color, number) => [packed(color), number]));
    this.context = new OffscreenCanvas(width, height).getContext("2d", { willReadFrequently: true });
    this.pictures = new Map();
    this.masks = new Map();
    this.run = 0; // counts maskings, so that no mask of an earlier one is shown
  }

  /** Masks from now on are those of another run. */
  forget() {
    this.run++;
    this.masks.clear();
  }

  /** A frame, ready to be drawn. */
  picture(number) {
    return remembered(this.pictures, number, () => loaded(`${this.url}/frames/${number}.jpg`));
  }

  /** Objects of a frame that is done: a byte per pixel. */
  labels(number) {
    return remembered(this.masks, number, async () => {
      const mask = await loaded(`${this.url}/masks/${number}.png?run=${this.run}`);
      const { width, height } = this.context.canvas;
      this.context.drawImage(mask, 0, 0);
      const { data } = this.context.getImageData(0, 0, width, height);
      return Uint8Array.from(new Uint32Array(data.buffer), (color) => this.numbers.get(color));
    });
  }
}

/** An opaque colour as a canvas stores it: red in the lowest byte. */
function packed([red, green, blue]) {
  return ((255 << 24) | (blue << 16) | (green << 8) | red) >>> 0;
}

function remembered(store, key, make) {
  if (!store.has(key)) {
    const made = make();
    made.catch(() => store.delete(key)); // to be asked for again
    store.set(key, made);
  }
  return store.get(key);
}

async function loaded(address) {
  const picture = new Image();
  picture.src = address;
  await picture.decode().catch(() => {
    throw new Refusal("This clip is no longer in the server's memory: open it again.");
  });
  return picture;
}
