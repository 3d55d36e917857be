// The blocks of an attention view as a film of tiles, and every head of every block in a dialog.

import { css } from "../maths/format.js";
import { button, el, openDialog } from "./dom.js";
import { Refusal } from "./encoding.js";
import { Newest, rested } from "./newest.js";
import { Tiles } from "./tiles.js";

const CHEAP = ["blocks", "tokens"]; // arrays that the server has; it computes the others when they are asked for
const MAX_BYTES = 96e6; // of all blocks, fetched for the film

export class Blocks {
  newest = new Newest();
  shown = ""; // encoding and quantity
  arrays = []; // of each block
  film = new Tiles("Block", (key) => this.choose(key), "lab-film");
  matrix = new Tiles("Block and head", (key) => this.choose(key), "lab-matrix");
  /** @type {any} */
  dialog = null; // with the matrix
  label = el("span", { class: "lab-soft" }, "Block");
  more = button("Heads × blocks", () => this.open());
  element = el("div", { class: "lab-parts" }, this.label, this.film.element, this.more);
  repaint = rested(() => this.paint());
  loadSoon = rested(() => this.load(), 800); // after the first map

  /** @param {import("./attention_view.js").AttentionView} view */
  constructor(view) {
    this.view = view;
  }

  /** Show a tile for each block of a new image or quantity. */
  show() {
    const { view, film } = this;
    const { encoding, quantity, arrays } = view;
    const state = `${encoding.token} ${quantity}`;
    this.element.hidden = encoding.blocks < 2 || !encoding.hasEveryBlock;
    if (this.shown !== state) {
      Object.assign(this, { shown: state, arrays: [] });
      this.newest.cancel();
      delete this.element.dataset.blocks;
      const entry = (_, at) => ({ key: String(at), label: String(at + 1) });
      film.open(encoding, Array.from({ length: encoding.blocks }, entry));
      for (const { canvas } of film.tiles.values()) canvas.clear();
      if (this.dialog?.open) this.open();
      else {
        const bytes = Object.values(arrays).reduce((sum, values) => sum + (values.byteLength ?? 0), 0);
        if (CHEAP.includes(view.definition.arrays) && encoding.blocks * bytes < MAX_BYTES) this.loadSoon();
      }
    }
    this.arrays[arrays.number] = arrays;
    this.paint(arrays.number);
    this.mark();
  }

  open() {
    const { view, matrix } = this;
    const { encoding, definition } = view;
    const heads = definition.heads ? Array.from({ length: encoding.heads }, (_, head) => String(head)) : ["mean"];
    const row = (_, number) =>
      heads.map((head) => {
        const label = `Block ${number + 1}${definition.heads ? ` · head ${head}` : ""}`;
        return { key: `${number} ${head}`, label, color: css(view.colorOf(head)) };
      });
    matrix.element.style.setProperty("--heads", String(heads.length));
    matrix.open(encoding, Array.from({ length: encoding.blocks }, row).flat());
    if (!this.dialog?.open) this.dialog = openDialog(this.element, "Heads and blocks", matrix.element);
    this.mark();
    this.paint();
    this.load();
  }

  async load() {
    const { view, shown } = this;
    const { encoding, quantity } = view;
    if (this.element.hidden || !this.element.getClientRects().length) return;
    await this.newest.run(async (signal) => {
      for (let number = 0; number < encoding.blocks; number++) {
        const found = await encoding.arrays(quantity, number, signal).catch((error) => {
          if (!(error instanceof Refusal)) throw error;
        });
        if (signal.aborted || shown !== this.shown) return;
        this.arrays[number] = found;
        this.paint(number);
      }
      this.element.dataset.blocks = shown; // tests wait for it
    });
  }

  /** Draw all blocks, or only one. @param {number} [only] */
  paint(only) {
    const { view, film, matrix, dialog } = this;
    for (const arrays of this.arrays.filter((found) => found && (only ?? found.number) === found.number)) {
      const maps = view.definition.colors ? null : view.mapsOf(view.patch, arrays);
      view.paint(film.tiles.get(String(arrays.number)).canvas, view.shown, maps, { arrays });
      for (const [key, { canvas }] of dialog?.open ? matrix.tiles : []) {
        const [number, head] = key.split(" ");
        if (Number(number) === arrays.number) view.paint(canvas, head, maps, { arrays });
      }
    }
  }

  /** Follow the stage: mark its tile now, draw after a rest. */
  follow() {
    this.mark();
    this.repaint();
  }

  mark() {
    const { arrays, shown } = this.view;
    this.film.mark(String(arrays.number));
    this.matrix.mark(`${arrays.number} ${shown}`);
  }

  /** @param {string} key  block, and head if it is of the matrix */
  choose(key) {
    const [number, head] = key.split(" ");
    this.view.set({ block: Number(number) + 1, ...(head && this.view.definition.heads && { head }) });
    this.mark(); // what is shown, until the block has come
    if (head) this.dialog.close();
  }
}
