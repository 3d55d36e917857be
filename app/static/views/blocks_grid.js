// Every head of every block as one grid, below an attention view: fetched block by block when it is unfolded.

import { css } from "../maths/format.js";
import { find } from "./dom.js";
import { Refusal } from "./encoding.js";
import { Newest, rested } from "./newest.js";
import { Tiles, tellScale } from "./tiles.js";

const REST = 150; // milliseconds of rest after which the grid follows the pointer

export class BlocksGrid {
  /** @param {HTMLDetailsElement} element @param {import("./attention_view.js").AttentionView} view */
  constructor(element, view) {
    this.element = element;
    this.view = view;
    this.newest = new Newest();
    this.asked = ""; // encoding and quantity of the grid
    /** @type {any[]} */
    this.blocks = []; // arrays of each
    this.tiles = new Tiles(find(element, ".lab-tiles"), (key) => this.choose(key));
    this.repaint = rested(() => this.paint(), REST);
    element.addEventListener("toggle", () => this.show());
  }

  async show() {
    const { encoding, viewer } = this.view;
    const { quantity, asked } = viewer;
    const state = `${encoding?.token} ${quantity}`;
    if (!encoding || !this.element.open || this.asked === state) return;
    this.asked = state;
    const heads = asked.heads ? Array.from({ length: encoding.heads }, (_, head) => String(head)) : ["mean"];
    const numbers = Array.from({ length: encoding.blocks }, (_, number) => number);
    const tile = (/** @type {number} */ number, /** @type {string} */ head) => {
      const label = `Block ${number + 1}${asked.heads ? ` · ${head}` : ""}`;
      return { key: `${number} ${head}`, label, color: css(viewer.colorOf(head)) };
    };
    this.blocks = [];
    delete this.element.dataset.blocks;
    this.tiles.columns = heads.length;
    this.tiles.element.style.setProperty("--heads", String(heads.length));
    this.tiles.open(encoding, numbers.flatMap((number) => heads.map((head) => tile(number, head)))); // prettier-ignore
    this.mark();
    await this.newest.run(async (signal) => {
      for (const number of numbers) {
        const arrays = await encoding.arrays(quantity, number, signal).catch((/** @type {Error} */ error) => {
          if (error instanceof Refusal) return null; // the grid shows what there is
          throw error;
        });
        if (signal.aborted) return;
        this.blocks[number] = arrays;
        this.paint(number);
      }
      this.element.dataset.blocks = state; // says that all are on the screen
    });
  }

  /** @param {number} [only]  the one that has come */
  paint(only) {
    const { viewer } = this.view;
    if (!this.element.open) return;
    const chosen = (/** @type {number} */ number) => this.blocks[number] && (only ?? number) === number;
    const maps = this.blocks.map((arrays, number) =>
      viewer.asked.colors || !chosen(number) ? null : viewer.mapsOf(viewer.patch, arrays),
    );
    for (const [key, { canvas, scale }] of this.tiles.tiles) {
      const [number, head] = key.split(" ");
      if (chosen(Number(number)))
        tellScale(scale, viewer.paint(canvas, head, maps[Number(number)], this.blocks[Number(number)]));
    }
  }

  /** After a drawing of the stage: mark the tile at once, repaint after a rest. */
  follow() {
    if (!this.element.open) return;
    this.mark();
    this.repaint();
  }

  mark() {
    const { viewer } = this.view;
    this.tiles.choose(`${viewer.arrays.number} ${viewer.shown}`);
  }

  /** Bring a head of a block to the stage. @param {string} key */
  choose(key) {
    const [number, head] = key.split(" ");
    const change = { block: Number(number) + 1 };
    this.view.set(this.view.viewer.asked.heads ? { ...change, head } : change);
    this.view.emit("edited", this.view.state);
  }
}
