// The tab Explore: one answer of the server per picture, block and quantity, everything else happens here.

import { find, findAll, controls } from "../../dom.js";
import { keptShares } from "../../maths/attention.js";
import { decimals, percent } from "../../maths/format.js";
import { Pins } from "../../maths/pins.js";
import { QUANTITIES } from "../../maths/quantities.js";
import { rested } from "../../newest.js";
import { ask } from "../../server.js";
import { html, render } from "../../vendor/lit-html.js";
import { listFacts } from "../../widgets/facts.js";
import { Queries } from "../../widgets/queries.js";
import { Viewer } from "../../widgets/viewer.js";

/**
 * @typedef {import("../../encoding.js").Encoding} Encoding
 * @typedef {import("../../encoding.js").Patch} Patch
 * @typedef {import("../../maths/maps.js").Maps} Maps
 */

const REST = 150; // milliseconds after which a slider's block is fetched

/** @param {HTMLElement} root @param {import("../../lab.js").Lab} lab */
export function mount(root, lab) {
  return new Explorer(root, lab);
}

class Explorer {
  /** @param {HTMLElement} root @param {import("../../lab.js").Lab} lab */
  constructor(root, lab) {
    this.root = root;
    this.lab = lab;
    this.asker = lab.asker("explore");
    this.find = (/** @type {string} */ selector) => find(root, selector);
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
    this.listen();
    Object.assign(root, { explorer: this }); // for the browser's console, and for tests
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
    this.form.addEventListener("submit", (event) => event.preventDefault());
    this.root.addEventListener("input", ({ target }) => this.input(/** @type {HTMLInputElement} */ (target)));
    this.find(".lab-undo").addEventListener("click", () => this.changePins(() => this.pins.undo(), true));
    this.viewer.stage.on.key = (event) => this.key(event);
    for (const link of findAll(this.root, "[data-download]")) {
      link.addEventListener("click", () => {
        if (this.encoding)
          this.asker.attempt(() =>
            this.viewer.grid.keep(`files/${link.dataset.download}`, { ...this.request, full: true }),
          );
      });
    }
    this.find(".lab-copy").addEventListener(
      "click",
      () => this.encoding && this.asker.attempt(() => this.copyPython()),
    );
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

  /** Note a setting, and draw. @param {Partial<import("../../address.js").State>} change */
  set(change) {
    this.lab.note(change);
    this.render();
  }

  /** A block is fetched once the slider rests; one that is here already is shown at once. @param {number} block */
  slide(block) {
    const { encoding, lab, viewer } = this;
    if (!encoding) return;
    lab.note({ block: block === encoding.blocks ? 0 : block });
    this.labelBlock(block, encoding.blocks);
    if (encoding.holds(viewer.quantity, block - 1)) this.look();
    else this.seek();
  }

  /** Whether the key meant something here. @param {KeyboardEvent} event */
  key({ key, ctrlKey, metaKey }) {
    if (ctrlKey || metaKey) {
      if (key.toLowerCase() !== "z") return false;
      this.changePins(() => this.pins.undo(), true);
    } else if (key === "Delete" || key === "Backspace") this.changePins(() => this.pins.remove(this.pins.active), true);
    else if (key === "Escape") this.changePins(() => (this.pins.active = null), true);
    else return false;
    return true;
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

  /** What cannot be had, or is waited for no longer, gives way to what is seen. @param {import("../../lab.js").Question} refused */
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
    Object.assign(this.controls.quantity, { value: quantity });
    Object.assign(this.controls.block, { value: viewer.arrays.number + 1 });
    Object.assign(this.controls.layer, { value: lab.state.layer });
    Object.assign(this.controls.mass, { value: lab.state.mass });
    this.labelBlock(viewer.arrays.number + 1, viewer.grid.blocks);
    if (asked.colormap) this.controls.colormap.value = chosenColors[quantity] ?? asked.colormap;
    this.find(".lab-title").textContent = asked.title;
    this.find(".lab-tiles").hidden = !asked.heads;
    for (const part of findAll(this.root, "[data-needs]")) {
      part.hidden = part.dataset.needs === "heads" ? !asked.heads : Boolean(asked.colors);
    }
  }

  /** @param {number} block  from 1 @param {number} blocks */
  labelBlock(block, blocks) {
    this.find(".lab-block output").value = `${block} of ${blocks}`;
  }

  render() {
    if (!this.encoding) return;
    const { settings, pins } = this;
    const active = pins.active && this.encoding.patchAt(pins.active);
    for (const name of /** @type {const} */ (["mass", "opacity"])) {
      this.find(`.lab-${name} output`).value = `${Math.round(100 * settings[name])} %`;
    }
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
      viewer.paint(canvas, shown, maps);
      return `${percent(keptShares(maps.map("mean"), maps.kept(shown)).area)} kept`;
    });
  }

  /** The readout, after every drawing; spoken only after a rest, not for every patch crossed. */
  drawn() {
    const [where, what] = this.viewer.maps ? this.describe(this.viewer.maps) : this.describeColors();
    this.find(".lab-where").textContent = where;
    this.find(".lab-what").textContent = what;
    this.lab.speak(`${where}. ${what}.`);
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
    const { patch, shown, asked } = viewer;
    if (asked.asks && patch) return this.describeLikeness(maps, patch);
    const { mass, area, entropy, flat } = viewer.measure(maps);
    const names = /** @type {Record<string, string>} */ ({
      heads: "All heads together",
      mean: asked.heads ? "Mean of the heads" : "Tokens",
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
