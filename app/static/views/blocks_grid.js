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
    const { view, tiles, element } = this;
    const { encoding, quantity, definition } = view;
    const state = `${encoding?.token} ${quantity}`;
    if (!encoding || !element.open || this.shown === state) return;
    Object.assign(this, { shown: state, blocks: [] });
    delete element.dataset.blocks;
    const heads = definition.heads ? Array.from({ length: encoding.heads }, (_, head) => String(head)) : ["mean"];
    const row = (_, number) =>
      heads.map((head) => {
        const label = `Block ${number + 1}${definition.heads ? ` · ${head}` : ""}`;
        return { key: `${number} ${head}`, label, color: css(view.colorOf(head)) };
      });
    tiles.element.style.setProperty("--heads", String(heads.length));
    tiles.open(encoding, Array.from({ length: encoding.blocks }, row).flat());
    this.mark();
    await this.newest.run(async (signal) => {
      for (let number = 0; number < encoding.blocks; number++) {
        const arrays = await encoding.arrays(quantity, number, signal).catch((error) => {
          if (!(error instanceof Refusal)) throw error;
        });
        if (signal.aborted) return;
        this.blocks[number] = arrays;
        this.paint(number);
      }
      element.dataset.blocks = state; // tests wait for it
    });
  }

  /** Draw all blocks, or only one. @param {number} [only] */
  paint(only) {
    const { view } = this;
    if (!this.element.open) return;
    for (const arrays of this.blocks.filter((one) => one && (only ?? one.number) === one.number)) {
      const maps = view.definition.colors ? null : view.mapsOf(view.patch, arrays);
      for (const [key, { canvas, scale }] of this.tiles.tiles) {
        const [number, head] = key.split(" ");
        if (Number(number) === arrays.number) writeScale(scale, view.paint(canvas, head, maps, { arrays }));
      }
    }
  }

  /** Follow the stage: mark its tile now, draw after a rest. */
  follow() {
    if (!this.element.open) return;
    this.mark();
    this.repaint();
  }

  mark() {
    const { arrays, shown } = this.view;
    this.tiles.mark(`${arrays.number} ${shown}`);
  }

  choose(key) {
    const [number, head] = key.split(" ");
    this.view.set({ block: Number(number) + 1, ...(this.view.definition.heads && { head }) });
    this.view.emit("edited", this.view.state);
    this.mark(); // what is shown, until the block has come
  }
}
