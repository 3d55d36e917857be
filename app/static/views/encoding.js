// An encoded image: the value of a view, and the arrays that are fetched for it.

import { decodeBlock, decodeHalves, decodeTokens, halves } from "../maths/attention.js";
import { fromBase64 } from "../maths/format.js";
import { QUANTITIES } from "../maths/quantities.js";
import { Memory } from "./memory.js";

export const memory = new Memory(192e6); // bytes of decoded arrays, for all views of the page

/** Colors of the patches from 0 to 1, [patches, 3], and shares of the variance. */
const colors = (bytes, { tokens, prefix }) => {
  const values = new Float32Array(bytes);
  return { colors: values.subarray(0, 3 * (tokens - prefix)), shares: values.subarray(3 * (tokens - prefix)) };
};
const DECODERS = {
  blocks: decodeBlock,
  tokens: decodeTokens,
  rollout: (bytes, { tokens, prefix }) => ({ values: decodeHalves(bytes), tokens, prefix }),
  norms: (bytes) => {
    const [norms, outliers] = halves(new Float32Array(bytes));
    return { norms, outliers: Uint8Array.from(outliers) };
  },
  "key-pca": colors,
};

/** A message of the server for the user. */
export class Refusal extends Error {}

export class Encoding {
  /** @param {EncodingValue} value */
  constructor(value) {
    this.value = value;
    this.token = value.token;
    this.name = value.name ?? "image";
    this.source = value.source ?? value.token;
    this.image = value.image;
    this.width = value.width;
    this.height = value.height;
    this.rows = value.rows;
    this.columns = value.columns;
    this.heads = value.heads;
    this.blocks = value.blocks;
    this.prefix = value.prefix;
    /** @type {Patch} */
    this.pinned = value.pin ? this.patchAt({ x: value.pin[0], y: value.pin[1] }) : null; // on the object of an example
  }

  /** False if the value holds the arrays of some blocks only. */
  get hasEveryBlock() {
    const { arrays } = this.value;
    return typeof arrays === "string" || Object.keys(arrays).length >= this.blocks;
  }

  /** Return the index of a patch's token; 0 for null, [CLS]. @param {Patch} patch */
  tokenOf(patch) {
    return patch ? this.prefix + patch.row * this.columns + patch.column : 0;
  }

  /** Return the patch at a place. @param {Place} place @returns {Patch} */
  patchAt({ x, y }) {
    const within = (share, count) => Math.min(count - 1, Math.max(0, Math.floor(share * count)));
    return { row: within(y, this.rows), column: within(x, this.columns) };
  }

  /** Return the center of a patch. @param {Patch} patch @returns {Place} */
  placeOf({ row, column }) {
    return { x: (column + 0.5) / this.columns, y: (row + 0.5) / this.rows };
  }

  /** Return true if the arrays are in memory. @param {string} quantity @param {number} number */
  holds(quantity, number) {
    return memory.get(`${this.token}/${QUANTITIES[quantity].arrays}/${number}`) !== undefined;
  }

  /**
   * Fetch the arrays of a quantity in a block, counted from 0. Throws a Refusal.
   * @param {string} quantity @param {number} number @param {AbortSignal} [signal]
   */
  async arrays(quantity, number, signal) {
    const { arrays } = QUANTITIES[quantity];
    return memory.remembered(`${this.token}/${arrays}/${number}`, async () => {
      const shape = { heads: this.heads, tokens: this.prefix + this.rows * this.columns, prefix: this.prefix };
      const [source, key] = [this.value.arrays, `${arrays}/${number}`];
      /** @type {any} */
      let bytes = typeof source === "string" ? await fetchBytes(`${source}/${key}`, signal) : source[key];
      if (!bytes) throw new Refusal(`This view does not hold ${arrays} of block ${number + 1}.`);
      if (typeof bytes === "string") bytes = fromBase64(bytes).buffer;
      return [{ ...DECODERS[arrays](bytes, shape), number }, 2 * bytes.byteLength];
    });
  }
}

/** Fetch bytes. Throws a Refusal. @param {string} address @param {AbortSignal} [signal] @returns {Promise<any>} */
export async function fetchBytes(address, signal) {
  const answer = await fetch(new URL(address, document.baseURI), { signal }).catch((error) => {
    throw signal?.aborted ? error : new Refusal("The server does not answer. Try again in a moment.");
  });
  if (answer.ok) return answer.arrayBuffer();
  const sentence = answer.headers.get("content-type")?.startsWith("text/plain") ? await answer.text() : "";
  throw new Refusal(sentence || `The server answered with status ${answer.status}. Try again in a moment.`);
}
