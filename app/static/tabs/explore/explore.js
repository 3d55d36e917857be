// The tab Explore: one answer of the server per picture, block and quantity, everything else happens here.

import { controls } from "../../dom.js";
import { keptShares, likelyPatch } from "../../maths/attention.js";
import { css, decimals, percent } from "../../maths/format.js";
import { Pins, writtenPatch } from "../../maths/pins.js";
import { QUANTITIES } from "../../maths/quantities.js";
import { rested } from "../../newest.js";
import { ask, keepDrawn } from "../../server.js";
import { Tab } from "../../tab.js";
import { html, render } from "../../vendor/lit-html.js";
import { listFacts } from "../../widgets/facts.js";
import { Queries } from "../../widgets/queries.js";
import { Tiles, tellScale } from "../../widgets/tiles.js";
import { Viewer } from "../../widgets/viewer.js";

const REST = 150; // milliseconds after which a slider's block is fetched

export default class Explorer extends Tab {
  /** @param {HTMLElement} root @param {Lab} lab */
  constructor(root, lab) {
    super(root, lab);
    this.form = this.find(".lab-settings");
    this.drawQuantities();
    this.controls = controls(this.form);
    /** @type {Record<string, string>} */
    this.chosenColors = {}; // colour map by quantity
    this.read = ""; // pins of the address that were taken up
    this.compared = "";
    this.pins = new Pins(lab.facts.colors.pins);
    this.viewer = new Viewer(root, lab.facts.colors, {
      drawn: () => this.drawn(),
      choose: (head) => this.set({ head }),
      press: (patch) => this.changePins(() => this.pins.pin(patch, this.viewer.grid)),
    });
    this.queries = new Queries(this.find(".lab-compared"), {
      choose: (pin) => this.changePins(() => (this.pins.active = pin), true),
      remove: (pin) => this.changePins(() => this.pins.remove(pin), true),
    });
    this.seek = rested(() => this.look(), REST);
    this.fetching = lab.asker("explore"); // of all blocks, beside what the stage asks for
    this.keeping = lab.asker("explore"); // of all photographs, beside both
    /** @type {any[]} */
    this.blocks = []; // arrays of each
    this.grid = new Tiles(this.find(".lab-blocks .lab-tiles"), (key) => this.chooseHead(key));
    this.repaint = rested(() => this.paintBlocks(), REST);
    this.listen();
  }

  /** One choice per quantity. */
  drawQuantities() {
    const choice = (/** @type {[string, { name: string }]} */ [key, { name }]) => html`<label
      ><input type="radio" name="quantity" form="explore-settings" value=${key} /><span>${name}</span></label>`;
    render(
      html`<legend class="lab-hidden">Quantity</legend>${Object.entries(QUANTITIES).map(choice)}`,
      this.find(".lab-quantity"),
    );
  }

  listen() {
    this.root.addEventListener("input", ({ target }) => this.input(/** @type {HTMLInputElement} */ (target)));
    this.onPress(".lab-undo", () => this.changePins(() => this.pins.undo(), true));
    Object.assign(this.viewer.stage.on, {
      undo: () => this.changePins(() => this.pins.undo(), true),
      remove: () => this.changePins(() => this.pins.remove(this.pins.active), true),
      rest: () => this.changePins(() => (this.pins.active = null), true),
    });
    this.onDownload(async (file) => this.encoding?.keep(`files/${file}`, { ...this.request, full: true }));
    this.find(".lab-blocks").addEventListener("toggle", () => this.showBlocks());
    this.onPress("[data-sheet]", ({ dataset }) => this.keepAll(dataset.sheet ?? ""));
    this.onPress(".lab-copy", () => this.encoding && this.asker.attempt(() => this.copyPython()));
  }

  /** @param {HTMLInputElement} control */
  input({ name, value }) {
    if (name === "quantity") this.lab.change({ quantity: value });
    else if (name === "block") this.slide(Number(value));
    else if (name === "mass") this.set({ mass: Number(value) });
    else if (name === "layer") this.set({ layer: value });
    else {
      if (name === "colormap") this.chosenColors[this.viewer.quantity] = value;
      this.render();
    }
  }

  /** Note a setting, and draw. @param {Partial<State>} change */
  set(change) {
    this.lab.note(change);
    this.render();
  }

  /** A block is fetched once the slider rests; one that is here already is shown at once. @param {number} block */
  slide(block) {
    const { encoding, lab, viewer } = this;
    if (!encoding) return;
    lab.note({ block: block === encoding.blocks ? 0 : block });
    if (encoding.holds(viewer.quantity, block - 1)) this.look();
    else this.seek();
  }

  // ---- what the lab says

  /** Bring photograph, model, quantity and block to the screen; of several that were asked for, the last. */
  async look() {
    const { lab } = this;
    this.seek.cancel();
    const { state, question } = lab;
    const quantity = state.quantity in QUANTITIES ? state.quantity : "attention";
    const brought = await this.asker.ask(
      async (listening) => {
        const encoding = await lab.open(listening);
        const number = Math.min(state.block || encoding.blocks, encoding.blocks) - 1;
        return { encoding, arrays: await encoding.arrays(quantity, number, listening.signal) };
      },
      () => this.fallBack(question),
    );
    if (brought) this.show(brought.encoding, brought.arrays, quantity);
  }

  /** What cannot be had, or is waited for no longer, gives way to what is seen. @param {Question} refused */
  fallBack(refused) {
    const { encoding, viewer, lab } = this;
    if (encoding) {
      const { number } = viewer.arrays;
      lab.note({ quantity: viewer.quantity, block: number + 1 === encoding.blocks ? 0 : number + 1 });
      this.showControls();
    }
    lab.giveWay(refused);
  }

  get encoding() {
    return this.viewer.encoding;
  }

  /** @param {Encoding} encoding @param {any} arrays @param {string} quantity */
  show(encoding, arrays, quantity) {
    const { pins, patch } = this.lab.state;
    const another = this.encoding?.photo !== encoding.photo;
    const words = JSON.stringify([encoding.photo, pins, patch]);
    this.viewer.open(encoding, arrays, quantity);
    if (another || this.read !== words) this.pins.read({ pins, patch }, encoding);
    this.notePins();
    this.find(".lab-banner").hidden = !encoding.random;
    this.controls.block.max = String(encoding.blocks);
    listFacts(this.find(".lab-facts"), encoding.facts);
    this.showControls();
    this.render();
    this.showBlocks();
    Object.assign(this.root.dataset, { token: encoding.token, quantity, block: arrays.number }); // says what is on the screen
  }

  /** Write the pins into the address. */
  notePins() {
    if (!this.encoding) return;
    const written = this.pins.written(this.encoding);
    this.read = JSON.stringify([this.encoding.photo, written.pins, written.patch]);
    this.lab.note(written);
  }

  /** @param {() => void} action @param {boolean} [leave]  the pointer is elsewhere */
  changePins(action, leave = false) {
    action();
    if (leave) this.viewer.hovered = null;
    this.notePins();
    this.render();
  }

  // ---- settings

  get settings() {
    const { opacity, colormap, scale, smooth, shared, outline } = this.controls;
    const { head, layer, mass } = this.lab.state;
    return {
      show: head,
      layer,
      mass: mass / 100,
      opacity: Number(opacity.value) / 100,
      colormap: colormap.value,
      scale: scale.value,
      smooth: smooth.checked,
      shared: shared.checked,
      outline: outline.checked,
    };
  }

  /** What is on the stage, in the server's words. */
  get request() {
    const { viewer, settings } = this;
    const { patch, quantity, shown } = viewer;
    const masked = settings.layer === "mask" && shown !== "heads" && !viewer.asked.colors;
    const query = patch && !viewer.asked.colors ? `${patch.row},${patch.column}` : "cls";
    const opacity = settings.opacity * (masked ? 0.6 : 1);
    return { ...settings, opacity, show: shown, quantity, block: viewer.arrays.number, query };
  }

  /** Photographs that are shown alike in one file: the visitor's own, or the examples. */
  get album() {
    const { own, facts } = this.lab;
    return own.length ? own : facts.examples.map(({ photo }) => ({ photo, name: "" }));
  }

  /** One file of all photographs, each under the settings of the stage; who asks a patch asks the object of each. @param {string} file */
  async keepAll(file) {
    const { lab, viewer, album } = this;
    const { asked } = viewer;
    const view = new URLSearchParams(/** @type {any} */ (this.request));
    await this.keeping.ask(async (listening) => {
      const pictures = [];
      for (const one of album) {
        const encoding = await lab.encode({ ...lab.question, ...one }, listening);
        const likely = async () => likelyPatch(await encoding.block(undefined, listening.signal), encoding);
        const patch = asked.asks ? (encoding.pinned ?? (await likely())) : null;
        pictures.push({ token: encoding.token, query: patch ? writtenPatch(patch) : "cls", name: encoding.name });
      }
      await keepDrawn(`api/sheets/${file}?${view}`, { pictures }, listening.signal);
    });
  }

  /** Put the view's Python on the clipboard; where the browser forbids that, show it. */
  async copyPython() {
    const code = await (await ask(this.viewer.grid.about("files/view.py", this.request))).text();
    const copied = await navigator.clipboard?.writeText(code).then(
      () => true,
      () => false,
    );
    this.find(".lab-code code").textContent = code;
    this.find(".lab-code").open = !copied;
    this.find(".lab-code").hidden = false;
    this.find(".lab-copied").textContent = copied
      ? "Copied."
      : "Copy this by hand: the browser keeps its clipboard shut.";
  }

  // ---- what is seen

  /** Controls and words that follow from the quantity and the block. */
  showControls() {
    const { viewer, chosenColors, lab } = this;
    const { asked, quantity } = viewer;
    const { layer, mass } = lab.state;
    const standing = { quantity, block: viewer.arrays.number + 1, layer, mass };
    for (const [name, value] of Object.entries(standing)) this.controls[name].value = String(value);
    this.label();
    if (asked.colormap) this.controls.colormap.value = chosenColors[quantity] ?? asked.colormap;
    this.find(".lab-title").textContent = asked.title;
    this.find("#explore-all").textContent =
      `All ${this.album.length} photographs ${lab.own.length ? "of yours" : "above"}:`;
    this.find(".lab-tiles").hidden = !asked.heads;
    this.reveal("[data-needs=heads]", asked.heads);
    this.reveal("[data-needs=maps]", !asked.colors);
  }

  render() {
    if (!this.encoding) return;
    const { settings, pins } = this;
    const active = pins.active && this.encoding.patchAt(pins.active);
    this.label();
    this.find(".lab-legend").textContent = this.legend(settings);
    this.viewer.set({ ...settings, patch: active, color: pins.active?.color ?? "#fff" });
    this.viewer.stage.mark(this.marks);
    this.queries.show(this.encoding, pins.list, pins.active, this.viewer.likely ? "The object" : "[CLS]");
    this.compare(settings);
    this.find(".lab-undo").disabled = pins.history.length === 0;
    this.find(".lab-hint").hidden = pins.list.length > 0;
  }

  /** Pins by number; without any, the patch that is asked of itself. */
  get marks() {
    const { pins, viewer } = this;
    if (pins.list.length || !viewer.likely) return pins.list;
    return [{ ...viewer.grid.placeOf(viewer.likely), color: "#fff", number: "" }];
  }

  /** @param {{ shared: boolean }} settings */
  legend({ shared }) {
    const { asked } = this.viewer;
    return asked.legend + (asked.heads && shared ? " One scale for all heads." : "");
  }

  /** One map per pin, drawn again only when another pin, block, quantity, head or setting changes them.
   * @param {object} settings
   */
  compare(settings) {
    const { viewer, pins } = this;
    const { encoding, quantity, arrays, shown } = viewer;
    const state = JSON.stringify([settings, quantity, arrays.number, pins.list, encoding?.token]);
    if (this.compared === state || !encoding || viewer.asked.colors) return;
    this.compared = state;
    this.queries.paint(encoding, (canvas, pin) => {
      const maps = viewer.mapsOf(pin && encoding.patchAt(pin));
      const ends = viewer.paint(canvas, shown, maps);
      return { note: `${percent(keptShares(maps.map("mean"), maps.kept(shown)).area)} kept`, ends };
    });
  }

  // ---- all blocks

  /** Every head of every block as one grid, where it is unfolded: fetched once, block by block. */
  async showBlocks() {
    const { encoding, viewer } = this;
    const { quantity, asked } = viewer;
    const state = `${encoding?.token} ${quantity}`;
    if (!encoding || !this.find(".lab-blocks").open || this.root.dataset.blocks === state) return;
    const heads = asked.heads ? Array.from({ length: encoding.heads }, (_, head) => String(head)) : ["mean"];
    const numbers = Array.from({ length: encoding.blocks }, (_, number) => number);
    const tile = (/** @type {number} */ number, /** @type {string} */ head) => {
      const label = `Block ${number + 1}${asked.heads ? ` · ${head}` : ""}`;
      return { key: `${number} ${head}`, label, color: css(viewer.colorOf(head)) };
    };
    this.blocks = [];
    delete this.root.dataset.blocks;
    this.grid.columns = heads.length;
    this.grid.element.style.setProperty("--heads", String(heads.length));
    this.grid.open(
      encoding,
      numbers.flatMap((number) => heads.map((head) => tile(number, head))),
    );
    this.chooseTile();
    await this.fetching.ask(async ({ signal }) => {
      for (const number of numbers) {
        const arrays = await encoding.arrays(quantity, number, signal);
        if (signal.aborted) return;
        this.blocks[number] = arrays;
        this.paintBlocks(number);
      }
      this.root.dataset.blocks = state; // says that all are on the screen
    });
  }

  /** @param {number} [only]  the one that has come */
  paintBlocks(only) {
    const { viewer } = this;
    if (!this.find(".lab-blocks").open) return;
    const maps = this.blocks.map((arrays, number) =>
      viewer.asked.colors || (only ?? number) !== number ? null : viewer.mapsOf(viewer.patch, arrays),
    );
    for (const [key, { canvas, scale }] of this.grid.tiles) {
      const [number, head] = key.split(" ");
      if (this.blocks[Number(number)] && (only ?? Number(number)) === Number(number))
        tellScale(scale, viewer.paint(canvas, head, maps[Number(number)], this.blocks[Number(number)]));
    }
  }

  /** Mark the tile that is on the stage: at once, unlike the maps, for the keyboard goes on from it. */
  chooseTile() {
    this.grid.choose(`${this.viewer.arrays.number} ${this.viewer.shown}`);
  }

  /** Bring a head of a block to the stage. @param {string} key */
  chooseHead(key) {
    const [number, head] = key.split(" ");
    if (this.viewer.asked.heads) this.lab.note({ head });
    this.controls.block.value = String(Number(number) + 1);
    this.slide(Number(number) + 1);
  }

  /** The readout, after every drawing; spoken only after a rest, not for every patch crossed. */
  drawn() {
    const [where, what] = this.viewer.maps ? this.describe(this.viewer.maps) : this.describeColors();
    this.find(".lab-where").textContent = where;
    this.find(".lab-what").textContent = what;
    this.lab.speak(`${where}. ${what}.`);
    this.chooseTile();
    this.repaint();
  }

  describeColors() {
    const { patch, arrays, grid } = this.viewer;
    if (!patch) return ["All patches at once: none is asked", ""];
    const at = 3 * (patch.row * grid.columns + patch.column);
    const [red, green, blue] = arrays.colors.subarray(at, at + 3);
    return [this.place(patch), `Components: red ${decimals(red)}, green ${decimals(green)}, blue ${decimals(blue)}`];
  }

  /** Patch, mass and area kept, and entropy or range, in words and numbers. @param {Maps} maps */
  describe(maps) {
    const { viewer } = this;
    const { patch, shown, asked, quantity } = viewer;
    if (asked.asks && patch) return this.describeLikeness(maps, patch);
    const { mass, area, entropy, flat } = viewer.measure(maps);
    const names = /** @type {Record<string, string>} */ ({
      heads: "All heads together",
      mean: asked.heads ? "Mean of the heads" : quantity === "rollout" ? "All heads" : "Tokens",
      max: "Max of the heads",
    });
    const [low, high] = maps.range(shown === "heads" ? "mean" : shown);
    const of = asked.signed ? "what lies above the least" : "the attention";
    const figures = asked.signed
      ? `values from ${decimals(low)} to ${decimals(high)}`
      : `entropy ${entropy.toFixed(2)} of ${flat.toFixed(2)} nats`;
    return [
      patch ? this.place(patch) : "[CLS], the token that stands for the whole picture",
      `${names[shown] ?? `Head ${shown}`}: ${percent(mass)} of ${of} on ${percent(area)} of the picture · ${figures}`,
    ];
  }

  /** In plain words what lights up, and for whom. @param {Maps} maps @param {Patch} patch @returns {[string, string]} */
  describeLikeness(maps, patch) {
    const { hovered, settings } = this.viewer;
    const which = hovered ? "the patch you point at" : settings.patch ? "the pinned patch" : "the marked patch";
    const more = hovered || settings.patch ? "." : ". Point anywhere else.";
    const [low] = maps.range("mean");
    return [
      `${settings.layer === "light" ? "Lit" : "Shown"}: everything like ${which}${more}`,
      `${this.place(patch)} · likeness from ${decimals(low)} to 1`,
    ];
  }

  /** @param {Patch} patch */
  place({ row, column }) {
    const { rows, columns, width, height } = this.viewer.grid;
    return `Patch row ${row}, column ${column} · pixels x ${pixels(column, columns, width)}, y ${pixels(row, rows, height)}`;
  }
}

/** First and last pixel of a patch along one side. @param {number} index @param {number} count @param {number} length */
function pixels(index, count, length) {
  const first = Math.floor((index * length) / count);
  return `${first}–${Math.max(Math.ceil(((index + 1) * length) / count) - 1, first)}`;
}
