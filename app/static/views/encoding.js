// An image as a model sees it: the value of a view, and the arrays that are fetched for it.

import { decodeBlock, decodeRollout, decodeTokens } from "../maths/attention.js";
import { fromBase64 } from "../maths/format.js";
import { QUANTITIES } from "../maths/quantities.js";
import { Memory } from "./memory.js";

const REMEMBERED = 192e6; // bytes of decoded arrays, for all views of the page

/** @type {Memory<any>} */
export const memory = new Memory(REMEMBERED);

/** A sentence of the server, for the user. */
export class Refusal extends Error {}

export class Encoding {
  /** @param {Told} value @param {Server} [server]  fetches arrays where they have no address */
  constructor(value, server = null) {
    this.value = value;
    this.server = server;
    this.picture = value.picture;
    this.name = value.name ?? "image";
    this.token = value.token;
    this.photo = value.photo ?? value.token;
    this.width = value.width;
    this.height = value.height;
    this.rows = value.rows;
    this.columns = value.columns;
    this.heads = value.heads;
    this.blocks = value.blocks;
    this.prefix = value.prefix;
    this.random = value.random ?? false;
    /** @type {Patch | null} */
    this.pinned = value.pin ? this.patchAt({ x: value.pin[0], y: value.pin[1] }) : null;
  }

  /** The token of a patch, or of [CLS] for null. @param {Patch | null} patch */
  tokenOf(patch) {
    return patch ? this.prefix + patch.row * this.columns + patch.column : 0;
  }

  /** The patch that holds a place. @param {Place} place @returns {Patch} */
  patchAt({ x, y }) {
    const within = (/** @type {number} */ share, /** @type {number} */ count) =>
      Math.min(count - 1, Math.max(0, Math.floor(share * count)));
    return { row: within(y, this.rows), column: within(x, this.columns) };
  }

  /** The center of a patch. @param {Patch} patch @returns {Place} */
  placeOf({ row, column }) {
    return { x: (column + 0.5) / this.columns, y: (row + 0.5) / this.rows };
  }

  /** @param {string} quantity @param {number} number  of the block, from 0 */
  key(quantity, number) {
    const { arrays } = QUANTITIES[quantity];
    return `${arrays === "colors" ? quantity : arrays}/${number}`;
  }

  /** Whether the arrays of a quantity are here. @param {string} quantity @param {number} number */
  holds(quantity, number) {
    return memory.get(`${this.token}/${this.key(quantity, number)}`) !== undefined;
  }

  /**
   * What a quantity of a block, counted from 0, is computed from, with `number`; fetched once. Throws a Refusal.
   * @param {string} quantity @param {number} number @param {AbortSignal} [signal]
   */
  async arrays(quantity, number, signal) {
    const name = `${this.token}/${this.key(quantity, number)}`;
    const known = memory.get(name);
    if (known) return known;
    const bytes = await this.fetch(this.key(quantity, number), signal);
    const shape = { heads: this.heads, tokens: this.prefix + this.rows * this.columns, prefix: this.prefix };
    const { arrays } = QUANTITIES[quantity];
    const found = { ...DECODERS[arrays](bytes, shape), number };
    return memory.put(name, found, bytes.byteLength * (arrays === "colors" ? 1 : 2));
  }

  /** @param {string} key  KIND/BLOCK @param {AbortSignal} [signal] @returns {Promise<ArrayBuffer>} */
  async fetch(key, signal) {
    const { arrays } = this.value;
    const [kind, block] = key.split("/");
    if (typeof arrays === "string") return fetchBytes(`${arrays}/${key}`, signal);
    const text = arrays?.[key] ?? (await this.server?.fetch_array?.([this.token, kind, Number(block)]));
    if (typeof text !== "string") throw new Refusal(`This view does not hold ${kind} of block ${Number(block) + 1}.`);
    return /** @type {ArrayBuffer} */ (fromBase64(text).buffer);
  }
}

/** Bytes of an address below the page. Throws a Refusal with the server's sentence. @param {string} address @param {AbortSignal} [signal] */
export async function fetchBytes(address, signal) {
  const asked = () => fetch(new URL(address, document.baseURI), { signal });
  const answer = await asked().catch((error) => {
    throw signal?.aborted ? error : new Refusal("The server does not answer. Try again in a moment.");
  });
  if (answer.ok) return answer.arrayBuffer();
  const sentence = answer.headers.get("content-type")?.startsWith("text/plain") ? await answer.text() : "";
  throw new Refusal(sentence || `The server answered with status ${answer.status}. Try again in a moment.`);
}

const DECODERS = {
  blocks: decodeBlock,
  tokens: decodeTokens,
  rollout: decodeRollout,
  colors: (/** @type {ArrayBuffer} */ bytes) => ({ colors: new Float32Array(bytes) }), // [patches, 3], from 0 to 1
};
