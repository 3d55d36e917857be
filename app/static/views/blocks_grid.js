// Every head of every block as one grid below an attention view, fetched block by block when it is unfolded.

import { css } from "../maths/format.js";
import { el } from "./dom.js";
import { Refusal } from "./encoding.js";
import { Newest, rested } from "./newest.js";
import { Tiles, writeScale } from "./tiles.js";

export class BlocksGrid {
  newest = new Newest();
  shown = ""; // encoding and quantity
  blocks = []; // arrays of each
  tiles = new Tiles("Block and head", (key) => this.choose(key));
  element = el("details", { class: "lab-blocks" }, el("summary", {}, "Every head of every block"), this.tiles.element);
  repaint = rested(() => this.paint());

  /** @param {import("./attention_view.js").AttentionView} view */
  constructor(view) {
    this.view = view;
    this.element.addEventListener("toggle", () => this.show());
  }

  async show() {
    const { encoding, viewer } = this.view;
    const { quantity, asked } = viewer;
    const state = `${encoding?.token} ${quantity}`;
    if (!encoding || !this.element.open || this.shown === state) return;
    this.shown = state;
    this.blocks = [];
    delete this.element.dataset.blocks;
    const heads = asked.heads ? Array.from({ length: encoding.heads }, (_, head) => String(head)) : ["mean"];
    const entry = (number, head) => {
      const label = `Block ${number + 1}${asked.heads ? ` · ${head}` : ""}`;
      return { key: `${number} ${head}`, label, color: css(viewer.colorOf(head)) };
    };
    this.tiles.columns = heads.length;
    this.tiles.element.style.setProperty("--heads", String(heads.length));
    const numbers = Array.from({ length: encoding.blocks }, (_, number) => number);
    this.tiles.open(
      encoding,
      numbers.flatMap((number) => heads.map((head) => entry(number, head))),
    );
    this.mark();
    await this.newest.run(async (signal) => {
      for (const number of numbers) {
        const arrays = await encoding.arrays(quantity, number, signal).catch((error) => {
          if (!(error instanceof Refusal)) throw error;
        });
        if (signal.aborted) return;
        this.blocks[number] = arrays;
        this.paint(number);
      }
      this.element.dataset.blocks = state; // tests wait for it
    });
  }

  /** Draw all blocks, or only one. @param {number} [only] */
  paint(only) {
    const { viewer } = this.view;
    if (!this.element.open) return;
    const maps = new Map();
    for (const [key, { canvas, scale }] of this.tiles.tiles) {
      const [number, head] = key.split(" ");
      const arrays = this.blocks[number];
      if (!arrays || (only ?? arrays.number) !== arrays.number) continue;
      if (!maps.has(number)) maps.set(number, viewer.asked.colors ? null : viewer.mapsOf(viewer.patch, arrays));
      writeScale(scale, viewer.paint(canvas, head, maps.get(number), arrays));
    }
  }

  /** Follow the stage: mark its tile now, draw after a rest. */
  follow() {
    if (!this.element.open) return;
    this.mark();
    this.repaint();
  }

  mark() {
    const { viewer } = this.view;
    this.tiles.mark(`${viewer.arrays.number} ${viewer.shown}`);
  }

  choose(key) {
    const [number, head] = key.split(" ");
    this.view.set({ block: Number(number) + 1, ...(this.view.viewer.asked.heads && { head }) });
    this.view.emit("edited", this.view.state);
  }
}
