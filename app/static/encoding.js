// A picture that the server has encoded: what it told of it, and what it hands out on request.

import { decodeBlock } from "./attention.js";

const BLOCKS_KEPT = 4;

/** The server's refusal, in words for people. */
export class Refusal extends Error {}

export class Encoding {
  /** @param {object} value  token, size, grid, heads, blocks and more, as the server sends it */
  constructor(value) {
    Object.assign(this, value);
    this.url = `lab/encodings/${value.token}`;
    this.picture = `${this.url}/picture.jpg`;
    this.loaded = new Map(); // block number -> queries and keys
  }

  /** The token of a patch, or of [CLS] for null. */
  tokenOf(patch) {
    return patch ? this.prefix + patch.row * this.columns + patch.column : 0;
  }

  /** Queries and keys of a block, counted from 0. Throws a Refusal. */
  async block(number) {
    if (!this.loaded.has(number)) {
      const answer = await ask(`${this.url}/blocks/${number}`);
      const tokens = this.prefix + this.rows * this.columns;
      const { heads, prefix } = this;
      this.loaded.set(number, { ...decodeBlock(await answer.arrayBuffer(), { heads, tokens, prefix }), number });
      if (this.loaded.size > BLOCKS_KEPT) this.loaded.delete(this.loaded.keys().next().value);
    }
    return this.loaded.get(number);
  }

  /** What the server tells about a view, as data. Throws a Refusal. */
  async tell(file, view) {
    return (await ask(`${this.url}/${file}?${new URLSearchParams(view)}`)).json();
  }

  /** Fetch a file of a view and hand it to the browser to keep. Throws a Refusal. */
  async download(file, view) {
    const answer = await ask(`${this.url}/${file}?${new URLSearchParams(view)}`);
    const name = /filename="([^"]+)"/.exec(answer.headers.get("Content-Disposition"))?.[1] ?? file;
    const link = document.createElement("a");
    link.href = URL.createObjectURL(await answer.blob());
    link.download = name;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
  }
}

async function ask(address) {
  const answer = await fetch(address).catch(() => {
    throw new Refusal("The server cannot be reached: is it still running?");
  });
  if (answer.ok) return answer;
  const { detail } = await answer.json().catch(() => ({}));
  throw new Refusal(typeof detail === "string" ? detail : `The server answered with ${answer.status}: open the picture again.`);
}
