// The tab Explore: one answer of the server per picture, block and quantity, everything else happens here.

import { Alert } from "./alert.js";
import { entropy, keptShares } from "./attention.js";
import { Encoding } from "./encoding.js";
import { markExample, offerExamples } from "./examples.js";
import { listFacts } from "./facts.js";
import { css, decimals, percent } from "./format.js";
import { Maps } from "./maps.js";
import { colormap, outlinePath } from "./paint.js";
import { Pins, samePatch } from "./pins.js";
import { QUANTITIES } from "./quantities.js";
import { Queries } from "./queries.js";
import { receivePhotos } from "./receive.js";
import { Stage } from "./stage.js";
import { Tiles } from "./tiles.js";

const MASK_TINT = 0.6; // a mask covers its picture more lightly than a heat map does
const SPEAK_AFTER = 500; // milliseconds of rest before the readout is spoken

/**
 * Start the tab inside its component. Called once, by the line of script that Gradio runs when the component loads.
 * @param {HTMLElement} element  the component
 * @param {object} props  value: the encoding shown, or an error; facts: colours, examples and limits, given once
 * @param {Function} watch  calls back when the server sends another value
 * @param {{open: (asked: {example: string}) => void}} send  asks the server for a photograph
 */
export function mount({ element, props, watch, send }) {
  const explorer = new Explorer(element.querySelector(".lab"), props.facts, send.open);
  const load = () => {
    if (props.value?.token || props.value?.error) explorer.open(props.value);
  };
  watch("value", load);
  load();
  receivePhotos("explore", props.facts.maxBytes, (sentence) => explorer.alert.say(sentence));
}

class Explorer {
  constructor(root, facts, open) {
    this.root = root;
    this.find = (selector) => root.querySelector(selector);
    this.alert = new Alert(this.find(".lab-alert"));
    this.form = this.find(".lab-settings");
    this.facts = facts;
    const tables = Object.entries(facts.colormaps).map(([name, bytes]) => [name, colormap(bytes)]);
    this.colormaps = Object.fromEntries(tables);
    this.turn = 0; // counts answers asked for, so that a late one is dropped
    this.encoding = null;
    this.block = null; // the arrays of one block that the quantity is computed from
    this.quantity = "attention"; // a key of QUANTITIES
    this.chosenColors = {}; // colour map by quantity
    this.hovered = null;
    this.pins = new Pins(facts.pins);
    this.show = "heads"; // or "mean", "max", the number of a head
    this.stage = new Stage(this.find(".lab-stage"), {
      point: (patch) => this.hover(patch),
      leave: () => this.hover(null),
      pin: (patch) => this.change(() => this.pins.pin(patch), patch),
      remove: () => this.change(() => this.pins.remove(this.pins.active)),
      undo: () => this.change(() => this.pins.undo()),
      rest: () => this.change(() => (this.pins.active = null)),
    });
    this.tiles = new Tiles(this.find(".lab-tiles"), (key) => {
      this.show = key;
      this.render();
    });
    this.queries = new Queries(this.find(".lab-compared"), {
      choose: (pin) => this.change(() => (this.pins.active = pin)),
      remove: (pin) => this.change(() => this.pins.remove(pin)),
    });
    offerExamples(this.find(".lab-examples"), facts.examples, ({ name }) => open({ example: name }));
    this.listen();
    root.explorer = this; // for the browser's console, and for tests
  }

  listen() {
    this.form.addEventListener("submit", (event) => event.preventDefault());
    this.root.addEventListener("input", ({ target }) => {
      const { block, quantity } = this.form.elements;
      if (target.name === "block") this.openBlock(Number(block.value) - 1);
      else if (target.name === "quantity") this.openQuantity(quantity.value);
      else {
        if (target.name === "colormap") this.chosenColors[this.quantity] = target.value;
        this.render();
      }
    });
    this.find(".lab-undo").addEventListener("click", () => this.change(() => this.pins.undo()));
    for (const link of this.root.querySelectorAll("[data-download]")) {
      link.addEventListener("click", () => {
        if (this.encoding) this.alert.afresh(() => this.encoding.download(link.dataset.download, this.request));
      });
    }
    this.find(".lab-copy").addEventListener("click", () => this.copyPython());
  }

  // ---- what the server sends

  /** Show another encoding, or say in words why there is none. */
  async open(value) {
    this.alert.say(value.error ?? "");
    if (value.error) return;
    const encoding = new Encoding(value);
    const block = await this.newest(() => QUANTITIES[this.quantity].load(encoding, encoding.blocks - 1));
    if (!block) return;
    Object.assign(this, { encoding, block, hovered: null });
    this.pins.clear();
    this.showEncoding();
    this.render();
    this.root.dataset.token = encoding.token; // says that everything is on the screen
  }

  /** Look at another block, counted from 0. */
  async openBlock(number) {
    await this.load(this.form.elements.quantity.value, number);
  }

  /** Look at another quantity of the same block. */
  async openQuantity(quantity) {
    await this.load(quantity, Number(this.form.elements.block.value) - 1);
  }

  /** What was chosen last counts, even while what was chosen before is still on its way. */
  async load(quantity, number) {
    if (!this.encoding) return;
    Object.assign(this.form.elements.quantity, { value: quantity });
    Object.assign(this.form.elements.block, { value: number + 1 });
    this.labelBlock(number);
    const block = await this.newest(() => QUANTITIES[quantity].load(this.encoding, number));
    if (block === undefined) return; // another was chosen meanwhile
    if (block) Object.assign(this, { quantity, block });
    this.showControls();
    this.render();
  }

  /** What `action` brings, null where it is refused, undefined where another was asked for meanwhile. */
  async newest(action) {
    const turn = ++this.turn;
    const brought = await this.alert.afresh(action);
    return turn === this.turn ? brought : undefined;
  }

  /** Put the view's Python on the clipboard; where the browser forbids that, show it. */
  async copyPython() {
    const code = this.encoding && (await this.alert.afresh(() => this.encoding.text("view.py", this.request)));
    if (!code) return;
    const refused = await navigator.clipboard?.writeText(code).then(() => false, () => true);
    this.find(".lab-code code").textContent = code;
    this.find(".lab-code").open = refused ?? true;
    this.find(".lab-code").hidden = false;
    this.find(".lab-copied").textContent =
      refused === false ? "Copied." : "Copy this by hand: the browser keeps its clipboard shut.";
  }

  // ---- pointing

  hover(patch) {
    if (!this.encoding || samePatch(patch, this.hovered)) return;
    this.hovered = patch;
    this.render();
  }

  /** Do something to the pins; `hovered` is where the pointer stays. */
  change(action, hovered = null) {
    action();
    this.hovered = hovered;
    this.render();
  }

  /** The patch asked about, or null for [CLS]. */
  get patch() {
    return this.hovered ?? this.pins.active;
  }

  // ---- numbers

  /** What is asked for, by its name in QUANTITIES. */
  get asked() {
    return QUANTITIES[this.quantity];
  }

  /** The map on the stage: as chosen, but the only one there is where heads have none of their own. */
  get shown() {
    return this.asked.heads ? this.show : "mean";
  }

  get settings() {
    const { layer, mass, opacity, colormap: colors, smooth, shared, outline } = this.form.elements;
    const masked = layer.value === "mask" && this.shown !== "heads" && !this.asked.colors;
    return {
      layer: layer.value,
      mass: Number(mass.value) / 100,
      opacity: (Number(opacity.value) / 100) * (masked ? MASK_TINT : 1),
      colormap: colors.value,
      smooth: smooth.checked,
      shared: shared.checked,
      outline: outline.checked,
    };
  }

  /** What is on the stage, in the server's words. */
  get request() {
    const { patch, shown, settings, quantity } = this;
    const query = patch && !this.asked.colors ? `${patch.row},${patch.column}` : "cls";
    return { ...settings, quantity, block: this.block.number, query, show: shown };
  }

  /** The maps of one patch, or of [CLS] for null, under the settings. Not for colours. */
  mapsOf(patch, { mass, shared, colormap: colors } = this.settings) {
    const heads = this.asked.maps(this.block, this.encoding.tokenOf(patch));
    const diverging = this.facts.diverging.includes(colors);
    return new Maps(heads, { mass, shared, diverging, signed: this.asked.signed });
  }

  // ---- what is seen

  /** Everything that follows from a new picture. */
  showEncoding() {
    const { encoding } = this;
    const shows = [
      { key: "heads", label: "All heads", color: "transparent" },
      { key: "mean", label: "Mean", color: css(this.facts.summary) },
      { key: "max", label: "Max", color: css(this.facts.summary) },
      ...Array.from({ length: encoding.heads }, (_, head) => ({
        key: String(head),
        label: `Head ${head}`,
        color: css(this.colorOf(String(head))),
      })),
    ];
    if (!shows.some(({ key }) => key === this.show)) this.show = "heads";
    this.dressed = ""; // new tiles are not dressed yet
    this.stage.open(encoding);
    this.tiles.open(encoding, shows);
    this.queries.open(encoding);
    this.find(".lab-banner").hidden = !encoding.random;
    this.form.elements.block.max = encoding.blocks;
    this.showControls();
    listFacts(this.find(".lab-facts"), encoding.facts);
    markExample(this.find(".lab-examples"), encoding.example);
  }

  /** Controls and words that follow from the quantity and the block. */
  showControls() {
    const { asked, quantity, form, chosenColors } = this;
    form.elements.quantity.value = quantity;
    form.elements.block.value = this.block.number + 1;
    this.labelBlock(this.block.number);
    if (asked.colormap) form.elements.colormap.value = chosenColors[quantity] ?? asked.colormap;
    this.find(".lab-title").textContent = asked.title;
    this.find(".lab-tiles").hidden = !asked.heads;
    for (const part of this.root.querySelectorAll("[data-needs]")) {
      const needs = part.dataset.needs; // maps, or heads of their own
      part.hidden = needs === "heads" ? !asked.heads : Boolean(asked.colors);
    }
  }

  labelBlock(number) {
    this.find(".lab-block output").value = `${number + 1} of ${this.encoding.blocks}`;
  }

  /** Draw stage, gallery and readout for the patch asked about. */
  render() {
    if (!this.encoding) return;
    const { settings, patch } = this;
    this.dress(settings);
    this.stage.mark(this.pins.list);
    this.queries.show(this.pins.list, this.pins.active);
    this.find(".lab-undo").disabled = this.pins.history.length === 0;
    this.find(".lab-hint").hidden = this.pins.list.length > 0;
    if (this.asked.colors) this.drawColors(patch);
    else this.drawMaps(patch, settings);
  }

  /** Settings that the style sheet draws, touched only when they change: every hover would lay out the page anew. */
  dress(settings) {
    const { quantity, shown } = this;
    const state = JSON.stringify([settings, quantity, shown]);
    if (this.dressed === state) return;
    this.dressed = state;
    const colored = this.asked.colors;
    Object.assign(this.root.dataset, { layer: colored ? "heat" : settings.layer, show: colored ? "colors" : shown });
    this.root.classList.toggle("lab-smooth", settings.smooth);
    this.root.style.setProperty("--opacity", settings.opacity);
    this.tiles.choose(shown);
    for (const name of ["mass", "opacity"]) {
      this.find(`.lab-${name} output`).value = `${this.form.elements[name].value} %`;
    }
    const centred = this.facts.diverging.includes(settings.colormap);
    const ends = centred ? ", with zero in the middle." : ".";
    const scale = (settings.shared ? " One colour scale for all heads" : " Colours from each map's least to greatest") + ends;
    this.find(".lab-legend").textContent = this.asked.legend + (this.asked.heads ? scale : "");
  }

  drawColors(patch) {
    this.stage.canvas.colors(this.block.colors);
    this.stage.draw([], patch, this.pins.at(patch)?.color ?? "#fff");
    const at = patch && 3 * (patch.row * this.encoding.columns + patch.column);
    const [red, green, blue] = patch ? this.block.colors.subarray(at, at + 3) : [];
    const what = patch ? `Components: red ${decimals(red)}, green ${decimals(green)}, blue ${decimals(blue)}` : "";
    this.tell(patch ? this.place(patch) : "All patches at once: none is asked", what);
  }

  drawMaps(patch, settings) {
    const { shown } = this;
    const maps = this.mapsOf(patch, settings);
    this.paint(this.stage.canvas, shown, maps, settings);
    if (this.asked.heads) {
      for (const [key, { canvas, note }] of this.tiles.tiles) {
        this.paint(canvas, key, maps, settings);
        note.textContent = key === "heads" ? "" : this.asked.figure(maps.range(key));
      }
    }
    this.stage.draw(this.outlines(maps, settings), patch, this.pins.at(patch)?.color ?? "#fff");
    this.compare(settings);
    this.tell(...this.describe(patch, maps));
  }

  /** One map per pin, drawn again only when another pin, block, quantity, head or setting changes them. */
  compare(settings) {
    const { quantity, shown, block, pins } = this;
    const state = JSON.stringify([settings, quantity, shown, block.number, pins.list, this.encoding.token]);
    if (this.compared === state) return;
    this.compared = state;
    this.queries.paint((canvas, pin) => {
      const maps = this.mapsOf(pin, settings);
      this.paint(canvas, shown, maps, settings);
      return `${percent(this.keptArea(maps))} kept`;
    });
  }

  /** Share of the picture within the mask. */
  keptArea(maps) {
    const key = this.shown === "heads" ? "mean" : this.shown;
    return keptShares(maps.weights(key), maps.kept(key)).area;
  }

  paint(canvas, key, maps, settings) {
    if (key === "heads") {
      const keys = maps.heads.map((_, head) => String(head));
      const [weights, kept] = [keys.map((head) => maps.weights(head)), keys.map((head) => maps.kept(head))];
      canvas.heads(weights, kept, keys.map((head) => this.colorOf(head)));
    } else if (settings.layer === "mask") canvas.mask(maps.kept(key), this.colorOf(key));
    else canvas.heat(maps.map(key), this.colormaps[settings.colormap], maps.scale(key));
  }

  /** Outline of the kept patches of the map on the stage. */
  outlines(maps, settings) {
    if (this.shown === "heads" || !settings.outline) return [];
    const path = outlinePath(maps.kept(this.shown), this.encoding.rows, this.encoding.columns);
    return [{ path, color: settings.layer === "mask" ? css(this.colorOf(this.shown)) : "#fff" }];
  }

  /** [red, green, blue] of a head; the mean and the maximum share one. */
  colorOf(key) {
    const { heads, summary } = this.facts;
    return key === "mean" || key === "max" ? summary : heads[Number(key) % heads.length];
  }

  /** Patch, mass and area kept, and entropy or range, in words and numbers. */
  describe(patch, maps) {
    const key = this.shown === "heads" ? "mean" : this.shown;
    const shares = keptShares(maps.weights(key), maps.kept(key));
    const names = { mean: this.asked.heads ? "Mean of the heads" : "Tokens", max: "Max of the heads" };
    const [low, high] = maps.range(key);
    const map = maps.map(key);
    const figures = this.asked.signed
      ? `values from ${decimals(low)} to ${decimals(high)}`
      : `entropy ${entropy(map).toFixed(2)} of ${Math.log(map.length).toFixed(2)} nats`;
    const mass = this.asked.signed ? "what lies above the least" : "the attention";
    const kept = `${percent(shares.mass)} of ${mass} on ${percent(shares.area)} of the picture`;
    return [
      patch ? this.place(patch) : "[CLS], the token that stands for the whole picture",
      `${names[key] ?? `Head ${key}`}: ${kept} · ${figures}`,
    ];
  }

  /** The readout; spoken only after a rest, not for every patch crossed. */
  tell(where, what) {
    this.find(".lab-where").textContent = where;
    this.find(".lab-what").textContent = what;
    clearTimeout(this.speaking);
    this.speaking = setTimeout(() => (this.find(".lab-spoken").textContent = `${where}. ${what}.`), SPEAK_AFTER);
  }

  place({ row, column }) {
    const { rows, columns, width, height } = this.encoding;
    const x = pixels(column, columns, width);
    const y = pixels(row, rows, height);
    return `Patch row ${row}, column ${column} · pixels x ${x}, y ${y}`;
  }
}

/** First and last pixel of a patch along one side. */
function pixels(index, count, length) {
  const first = Math.floor((index * length) / count);
  return `${first}–${Math.max(Math.ceil(((index + 1) * length) / count) - 1, first)}`;
}
