// A photograph as a model sees it: what the server told of it, and the arrays it hands out on request.

import { decodeBlock, decodeRollout, decodeTokens } from "./maths/attention.js";
import { QUANTITIES } from "./maths/quantities.js";
import { Memory } from "./memory.js";
import { askBytes, askData, keep } from "./server.js";

const REMEMBERED = 192e6; // bytes of arrays: a second look at a picture costs nothing

/** @type {Memory<any>} */
export const memory = new Memory(REMEMBERED);

export class Encoding {
  /**
   * @param {Told} told @param {string} name  of the photograph, for people and for files
   * @param {number[] | null} [pin]  a place on its object, where one is known: shares of width and height
   */
  constructor(told, name, pin = null) {
    this.name = name;
    this.url = `api/encodings/${told.token}`;
    this.picture = `api/photos/${told.photo}/picture.jpg`;
    this.token = told.token;
    this.photo = told.photo;
    this.model = told.model;
    this.width = told.width;
    this.height = told.height;
    this.rows = told.rows;
    this.columns = told.columns;
    this.heads = told.heads;
    this.blocks = told.blocks;
    this.prefix = told.prefix;
    this.random = told.random;
    this.facts = told.facts;
    /** @type {Patch | null} */
    this.pinned = pin && this.patchAt({ x: pin[0], y: pin[1] });
  }

  /** The token of a patch, or of [CLS] for null. @param {Patch | null} patch */
  tokenOf(patch) {
    return patch ? this.prefix + patch.row * this.columns + patch.column : 0;
  }

  /** The patch that holds a place, given as shares of width and height. @param {{ x: number, y: number }} place @returns {Patch} */
  patchAt({ x, y }) {
    const within = (/** @type {number} */ share, /** @type {number} */ count) =>
      Math.min(count - 1, Math.max(0, Math.floor(share * count)));
    return { row: within(y, this.rows), column: within(x, this.columns) };
  }

  /** The middle of a patch, as shares of width and height. @param {Patch} patch */
  placeOf({ row, column }) {
    return { x: (column + 0.5) / this.columns, y: (row + 0.5) / this.rows };
  }

  /** Queries and keys of a block, the last where none is named. @param {number} number @param {AbortSignal} [signal] */
  block(number = this.blocks - 1, signal) {
    return this.arrays("attention", number, signal);
  }

  /** Where the arrays of a quantity are, beside others of the same encoding. @param {string} quantity @param {number} number */
  address(quantity, number) {
    const { arrays } = QUANTITIES[quantity];
    return `${this.url}/${arrays}/${number}${arrays === "colors" ? `?quantity=${quantity}` : ""}`;
  }

  /** Whether the arrays of a quantity need not be fetched. @param {string} quantity @param {number} number */
  holds(quantity, number) {
    return memory.get(this.address(quantity, number)) !== undefined;
  }

  /**
   * What a quantity of a block, counted from 0, is computed from, with `number`; fetched once. Throws a Refusal.
   * @param {string} quantity @param {number} number @param {AbortSignal} [signal]
   */
  async arrays(quantity, number, signal) {
    const address = this.address(quantity, number);
    const known = memory.get(address);
    if (known) return known;
    const bytes = await askBytes(address, { signal });
    const shape = { heads: this.heads, tokens: this.prefix + this.rows * this.columns, prefix: this.prefix };
    const { arrays } = QUANTITIES[quantity];
    const decode = DECODERS[arrays];
    const half = arrays !== "colors";
    return memory.put(address, { ...decode(bytes, shape), number }, bytes.byteLength * (half ? 2 : 1));
  }

  /** Address of a file, or of data, about the encoding. @param {string} file @param {Record<string, any>} asked */
  about(file, asked) {
    return `${this.url}/${file}?${new URLSearchParams({ ...asked, name: this.name })}`;
  }

  /** @param {Record<string, any>} recipe @param {AbortSignal} [signal] */
  objects(recipe, signal) {
    return askData(`${this.url}/objects?${new URLSearchParams(recipe)}`, { signal });
  }

  /** Hand a file to the browser to keep. @param {string} file @param {Record<string, any>} asked */
  async keep(file, asked) {
    await keep(this.about(file, asked), file.split("/").at(-1) ?? file);
  }
}

const DECODERS = {
  blocks: decodeBlock,
  tokens: decodeTokens,
  rollout: decodeRollout,
  colors: (/** @type {ArrayBuffer} */ bytes) => ({ colors: new Float32Array(bytes) }), // from 0 to 1: [patches, 3]
};
