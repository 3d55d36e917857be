// A picture that the server has encoded: what it told of it, and what it hands out on request.

import { decodeBlock, decodeTokens } from "./attention.js";

const ARRAYS_KEPT = 6;
const PICTURES_KEPT = 3;

const memory = new Map(); // key of an encoding -> its arrays: the same picture comes back under another token

/** The server's refusal, in words for people. */
export class Refusal extends Error {}

export class Encoding {
  /** @param {object} value  token, key (the same for the same picture, model and size), size, grid, heads, blocks and more, as the server sends it */
  constructor(value) {
    Object.assign(this, value);
    this.url = `lab/encodings/${value.token}`;
    this.picture = `${this.url}/picture.jpg`;
    this.loaded = recall(value.key); // address -> the arrays of a block
  }

  /** The token of a patch, or of [CLS] for null. */
  tokenOf(patch) {
    return patch ? this.prefix + patch.row * this.columns + patch.column : 0;
  }

  /** Queries and keys of a block, counted from 0, as attention.js takes them. Throws a Refusal. */
  block(number) {
    return this.arrays(number, `blocks/${number}`, (bytes) => decodeBlock(bytes, this.shape));
  }

  /** Features of every token after a block and the final norm, as attention.js takes them. Throws a Refusal. */
  tokens(number) {
    return this.arrays(number, `tokens/${number}`, (bytes) => decodeTokens(bytes, this.shape));
  }

  /** Principal components of "key-pca" or "token-pca" as colours from 0 to 1: [patches, 3]. Throws a Refusal. */
  colors(number, quantity) {
    const address = `colors/${number}?quantity=${quantity}`;
    return this.arrays(number, address, (bytes) => ({ colors: new Float32Array(bytes) }));
  }

  get shape() {
    return { heads: this.heads, tokens: this.prefix + this.rows * this.columns, prefix: this.prefix };
  }

  /** What `decode` makes of the bytes at an address, fetched once, with the number of its block. */
  async arrays(number, address, decode) {
    if (!this.loaded.has(address)) {
      const answer = await ask(`${this.url}/${address}`);
      this.loaded.set(address, { ...decode(await answer.arrayBuffer()), number });
      if (this.loaded.size > ARRAYS_KEPT) this.loaded.delete(this.loaded.keys().next().value);
    }
    return this.loaded.get(address);
  }

  /** What the server tells about a view, as data. Throws a Refusal. */
  async tell(file, view) {
    return (await ask(`${this.url}/${file}?${new URLSearchParams(view)}`)).json();
  }

  /** A file of a view, as text. Throws a Refusal. */
  async text(file, view) {
    return (await ask(`${this.url}/${file}?${new URLSearchParams(view)}`)).text();
  }

  /** Fetch a file of a view and hand it to the browser to keep. Throws a Refusal. */
  async download(file, view) {
    await keep(`${this.url}/${file}?${new URLSearchParams(view)}`, file);
  }
}

/** The arrays fetched of a picture, a model and a size, by what says which; those of the least recent are let go. */
function recall(key) {
  const found = memory.get(key) ?? new Map();
  memory.delete(key);
  memory.set(key, found);
  if (memory.size > PICTURES_KEPT) memory.delete(memory.keys().next().value);
  return found;
}

/** Fetch a file and hand it to the browser to keep, under the server's name for it. Throws a Refusal. */
export async function keep(address, file) {
  const answer = await ask(address);
  const name = /filename="([^"]+)"/.exec(answer.headers.get("Content-Disposition"))?.[1] ?? file;
  const link = document.createElement("a");
  link.href = URL.createObjectURL(await answer.blob());
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
}

export async function ask(address) {
  const answer = await fetch(address).catch(() => {
    throw new Refusal("The server cannot be reached: is it still running?");
  });
  if (answer.ok) return answer;
  const { detail } = await answer.json().catch(() => ({}));
  throw new Refusal(typeof detail === "string" ? detail : `The server answered with ${answer.status}: open the picture again.`);
}
