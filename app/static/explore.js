// The tab Explore: one answer of the server per picture and block, everything else here.

import { attentionMaps, decodeBlock, entropy, keepMass, keptShares, maxMap, meanMap, range } from "./attention.js";
import { colormap, outlinePath } from "./paint.js";
import { receivePhotos } from "./receive.js";
import { Stage } from "./stage.js";
import { Tiles } from "./tiles.js";

const MAX_PINS = 8;
const BLOCKS_KEPT = 4;
const MASK_TINT = 0.6; // a mask covers its picture more lightly than a heat map does

/**
 * Start the tab inside its component. Called once, by the line of script that Gradio runs when the component loads.
 * @param {HTMLElement} element  the component
 * @param {object} props  value: the encoding shown; facts: colours, pins and examples, given once
 * @param {Function} watch  calls back when the server sends another value
 * @param {(example: string) => void} openExample
 */
export function mount({ element, props, watch, openExample }) {
  const explorer = new Explorer(element.querySelector(".lab"), props.facts, openExample);
  const load = () => {
    if (props.value?.token || props.value?.error) explorer.open(props.value);
  };
  watch("value", load);
  load();
  receivePhotos(() => document.querySelector("#toolbar input[type=file]"));
  return explorer;
}

class Explorer {
  constructor(root, facts, openExample) {
    this.root = root;
    this.facts = facts;
    this.find = (selector) => root.querySelector(selector);
    this.colormaps = Object.fromEntries(Object.entries(facts.colormaps).map(([name, bytes]) => [name, colormap(bytes)]));
    this.turn = 0; // counts answers asked for, so that a late one is dropped
    this.encoding = null;
    this.block = null;
    this.hovered = null;
    this.pins = [];
    this.active = null; // the pin that rests on the stage; null: [CLS]
    this.history = [];
    this.show = "heads";
    root.explorer = this; // for the browser's console and for tests

    this.stage = new Stage(this.find(".lab-stage"), {
      point: (patch) => this.hover(patch),
      leave: () => this.hover(null),
      pin: (patch) => this.pin(patch),
      remove: () => this.unpin(this.active),
      undo: () => this.undo(),
      rest: () => this.rest(null),
    });
    this.tiles = new Tiles(this.find(".lab-tiles"), (key) => this.choose(key));
    this.listExamples(openExample);
    this.listen();
  }

  // ---- what the server sends ------------------------------------------------------------------------------------

  /** Show another encoding, or say in words why there is none. */
  async open(value) {
    const turn = ++this.turn;
    this.say(value.error ?? "");
    if (value.error) return;
    const blocks = new Map();
    const number = value.blocks - 1;
    const block = await this.fetchBlock(value, number, blocks);
    if (turn !== this.turn || !block) return;
    this.encoding = { ...value, url: `lab/encodings/${value.token}`, loaded: blocks };
    this.block = block;
    this.hovered = null;
    this.pins = [];
    this.active = null;
    this.history = [];
    this.showEncoding();
    this.render();
    this.root.dataset.token = value.token;
  }

  async openBlock(number) {
    const turn = ++this.turn;
    this.find(".lab-block output").value = `${number + 1} of ${this.encoding.blocks}`;
    const block = await this.fetchBlock(this.encoding, number, this.encoding.loaded);
    if (turn !== this.turn || !block) return;
    this.block = block;
    this.render();
  }

  /** Queries and keys of one block, from memory or from the server; null when it has none, which is then said. */
  async fetchBlock(encoding, number, loaded) {
    if (loaded.has(number)) return loaded.get(number);
    const answer = await this.ask(`lab/encodings/${encoding.token}/blocks/${number}`);
    if (!answer) return null;
    const tokens = encoding.prefix + encoding.rows * encoding.columns;
    const block = decodeBlock(await answer.arrayBuffer(), { ...encoding, tokens });
    block.number = number;
    loaded.set(number, block);
    if (loaded.size > BLOCKS_KEPT) loaded.delete(loaded.keys().next().value);
    return block;
  }

  /** A response that is well, or null after saying what is wrong. */
  async ask(address) {
    try {
      const answer = await fetch(address);
      if (answer.ok) return answer;
      const { detail } = await answer.json().catch(() => ({}));
      this.say(typeof detail === "string" ? detail : `The server answered with ${answer.status}. Open the picture again.`);
    } catch {
      this.say("The server cannot be reached. Is it still running?");
    }
    return null;
  }

  // ---- pointing -------------------------------------------------------------------------------------------------

  hover(patch) {
    if (!this.encoding || same(patch, this.hovered)) return;
    this.hovered = patch;
    this.render();
  }

  pin(patch) {
    this.remember();
    const known = this.pins.find((pin) => same(pin, patch));
    if (!known && this.pins.length === MAX_PINS) this.pins = this.pins.slice(1); // the oldest gives way
    const used = new Set(this.pins.map((pin) => pin.color));
    const color = this.facts.pins.find((candidate) => !used.has(candidate));
    if (!known) this.pins = [...this.pins, { ...patch, color }];
    this.rest(known ?? this.pins.at(-1), patch);
  }

  unpin(pin) {
    if (!pin) return;
    this.remember();
    this.pins = this.pins.filter((other) => other !== pin);
    this.rest(this.active === pin ? null : this.active);
  }

  /** What is shown while nothing is pointed at: a pin, or null for [CLS]. */
  rest(pin, hovered = null) {
    this.active = pin;
    this.hovered = hovered;
    this.render();
  }

  remember() {
    this.history = [...this.history.slice(-49), { pins: this.pins, active: this.active }];
  }

  undo() {
    const before = this.history.pop();
    if (!before) return;
    this.pins = before.pins;
    this.rest(before.active);
  }

  choose(key) {
    this.show = key;
    this.render();
  }

  // ---- what is seen ---------------------------------------------------------------------------------------------

  /** The patch asked about, or null for [CLS]. */
  get patch() {
    return this.hovered ?? this.active;
  }

  get settings() {
    const form = this.find(".lab-settings");
    const masked = form.elements.layer.value === "mask" && this.show !== "heads";
    return {
      layer: form.elements.layer.value,
      mass: Number(form.elements.mass.value) / 100,
      opacity: (Number(form.elements.opacity.value) / 100) * (masked ? MASK_TINT : 1),
      colormap: form.elements.colormap.value,
      smooth: form.elements.smooth.checked,
      shared: form.elements.shared.checked,
      outline: form.elements.outline.checked,
    };
  }

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
        color: css(this.headColor(head)),
      })),
    ];
    if (!shows.some(({ key }) => key === this.show)) this.show = "heads";
    const url = `${encoding.url}/picture.jpg`;
    this.stage.open({ ...encoding, url });
    this.tiles.open({ ...encoding, url, shows });
    this.find(".lab-banner").hidden = !encoding.random;
    const slider = this.find(".lab-block input");
    slider.max = encoding.blocks;
    slider.value = this.block.number + 1;
    this.find(".lab-block output").value = `${this.block.number + 1} of ${encoding.blocks}`;
    fillFacts(this.find(".lab-facts"), encoding.facts);
    for (const button of this.root.querySelectorAll(".lab-example")) {
      button.setAttribute("aria-pressed", String(button.dataset.example === encoding.example));
    }
  }

  /** Draw stage, gallery and readout for the patch asked about. */
  render() {
    if (!this.encoding) return;
    const view = this.view();
    const { settings, patch } = view;
    this.root.dataset.layer = settings.layer;
    this.root.dataset.show = this.show;
    this.root.classList.toggle("lab-smooth", settings.smooth);
    this.root.style.setProperty("--opacity", settings.opacity);
    this.drawStage(view);
    for (const [key, tile] of this.tiles.tiles) this.drawTile(key, tile, view);
    this.tiles.choose(this.show);
    const color = this.pins.find((pin) => same(pin, patch))?.color ?? "#fff";
    this.stage.draw(this.outlines(view), patch, color);
    this.stage.mark(this.pins);
    this.find(".lab-legend").textContent =
      (settings.shared ? "One colour scale for all heads" : "Colours from each map's own least to greatest") +
      "; the figure is the strongest patch's share.";
    this.listQueries();
    this.describe(view);
  }

  /** The numbers of what is seen: a map and its kept patches for every entry of the gallery. */
  view() {
    const { block, patch, encoding } = this;
    const settings = this.settings;
    const token = patch ? encoding.prefix + patch.row * encoding.columns + patch.column : 0;
    const heads = attentionMaps(block, token);
    const maps = new Map(heads.map((map, head) => [String(head), map]));
    maps.set("mean", meanMap(heads)).set("max", maxMap(heads));
    const wanted = settings.layer === "mask" || this.show === "heads" ? [...maps.keys()] : [this.show];
    const keys = new Set([...wanted, ...heads.keys()].map(String));
    const kept = new Map([...keys].map((key) => [key, keepMass(maps.get(key), settings.mass)]));
    return { settings, patch, token, heads, maps, kept, ranges: this.ranges(maps, heads, settings.shared) };
  }

  /** Values of the first and last colour for every map: its own, or one range for all heads. */
  ranges(maps, heads, shared) {
    const own = new Map([...maps].map(([key, map]) => [key, range(map)]));
    if (!shared) return { own, drawn: own };
    const all = heads.map((_, head) => own.get(String(head)));
    const common = [Math.min(...all.map(([low]) => low)), Math.max(...all.map(([, high]) => high))];
    return { own, drawn: new Map([...maps.keys()].map((key) => [key, common])) };
  }

  drawStage(view) {
    this.paint(this.stage.canvas, this.show, view);
  }

  drawTile(key, tile, view) {
    this.paint(tile.canvas, key, view);
    tile.note.textContent = key === "heads" ? "" : percent(view.ranges.own.get(key)[1]);
  }

  paint(canvas, key, { settings, heads, maps, kept, ranges }) {
    if (key === "heads") {
      const masks = heads.map((_, head) => kept.get(String(head)));
      canvas.heads(heads, masks, heads.map((_, head) => this.headColor(head)));
    } else if (settings.layer === "mask") canvas.mask(kept.get(key), this.showColor(key));
    else canvas.heat(maps.get(key), this.colormaps[settings.colormap], ranges.drawn.get(key));
  }

  /** Outline of the kept patches of the map on the stage. */
  outlines({ settings, kept }) {
    if (this.show === "heads" || !settings.outline) return [];
    const path = outlinePath(kept.get(this.show), this.encoding.rows, this.encoding.columns);
    const color = settings.layer === "mask" ? css(this.showColor(this.show)) : "#fff";
    return [{ path, color }];
  }

  headColor(head) {
    return this.facts.heads[head % this.facts.heads.length];
  }

  showColor(key) {
    return key === "mean" || key === "max" ? this.facts.summary : this.headColor(Number(key));
  }

  /** The line under the picture, in words and numbers. */
  describe({ patch, maps, kept, settings }) {
    const key = this.show === "heads" ? "mean" : this.show;
    const map = maps.get(key);
    const mask = kept.get(key) ?? keepMass(map, settings.mass);
    const shares = keptShares(map, mask);
    const { rows, columns, width, height } = this.encoding;
    const where = patch
      ? `Patch row ${patch.row}, column ${patch.column} · pixels x ${pixels(patch.column, columns, width)}, y ${pixels(patch.row, rows, height)}`
      : "[CLS], the whole picture";
    const name = { mean: "Mean of the heads", max: "Max of the heads" }[key] ?? `Head ${key}`;
    const what =
      `${name}: ${percent(shares.mass)} of the attention on ${percent(shares.area)} of the picture · ` +
      `entropy ${entropy(map).toFixed(2)} of ${Math.log(map.length).toFixed(2)} nats`;
    this.find(".lab-where").textContent = where;
    this.find(".lab-what").textContent = what;
    clearTimeout(this.speaking); // spoken once the pointer rests, not for every patch crossed
    this.speaking = setTimeout(() => (this.find(".lab-spoken").textContent = `${where}. ${what}.`), 500);
  }

  // ---- lists, controls, downloads -------------------------------------------------------------------------------

  listQueries() {
    const chip = (label, color, pin) => {
      const item = document.createElement("li");
      item.className = "lab-chip";
      item.style.setProperty("--pin", color);
      const choose = button(label, () => this.rest(pin));
      choose.setAttribute("aria-pressed", String(this.active === pin));
      item.append(choose);
      if (pin) {
        const remove = button("×", () => this.unpin(pin));
        remove.setAttribute("aria-label", `Remove ${label}`);
        item.append(remove);
      }
      return item;
    };
    const state = JSON.stringify([this.pins, this.pins.indexOf(this.active)]);
    if (this.listed === state) return; // the focus stays where it is
    this.listed = state;
    const pins = this.pins.map((pin, index) => chip(`${index + 1} · row ${pin.row}, column ${pin.column}`, pin.color, pin));
    this.find(".lab-queries").replaceChildren(chip("[CLS]", "var(--lab-ink)", null), ...pins);
    this.find(".lab-undo").disabled = this.history.length === 0;
  }

  listExamples(openExample) {
    const buttons = this.facts.examples.map(({ name, title, thumbnail }) => {
      const made = button("", () => openExample(name));
      made.className = "lab-example";
      made.dataset.example = name;
      made.setAttribute("aria-pressed", "false");
      made.title = title;
      const picture = document.createElement("img");
      picture.src = thumbnail;
      picture.alt = title;
      made.append(picture);
      return made;
    });
    this.find(".lab-examples").append(...buttons);
  }

  listen() {
    const form = this.find(".lab-settings");
    form.addEventListener("submit", (event) => event.preventDefault());
    form.addEventListener("input", (event) => {
      for (const name of ["mass", "opacity"]) {
        form.querySelector(`.lab-${name} output`).value = `${form.elements[name].value} %`;
      }
      if (event.target.name === "block") this.openBlock(Number(event.target.value) - 1);
      else this.render();
    });
    this.find(".lab-undo").addEventListener("click", () => this.undo());
    for (const link of this.root.querySelectorAll("[data-download]")) {
      link.addEventListener("click", () => this.download(link.dataset.download));
    }
  }

  /** What is on the stage, as the server's words for it. */
  get query() {
    const { patch, active, show } = this;
    const asked = patch ?? active;
    const { layer, mass, opacity, colormap: colors, smooth, shared, outline } = this.settings;
    return new URLSearchParams({
      block: this.block.number,
      query: asked ? `${asked.row},${asked.column}` : "cls",
      show,
      layer,
      mass,
      opacity,
      colormap: colors,
      smooth,
      shared,
      outline,
    });
  }

  async download(file) {
    if (!this.encoding) return;
    const answer = await this.ask(`${this.encoding.url}/${file}?${this.query}`);
    if (!answer) return;
    this.say("");
    const name = /filename="([^"]+)"/.exec(answer.headers.get("Content-Disposition"))?.[1] ?? file;
    const link = document.createElement("a");
    link.href = URL.createObjectURL(await answer.blob());
    link.download = name;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
  }

  /** One sentence above the picture; none takes it away. */
  say(sentence) {
    const alert = this.find(".lab-alert");
    alert.textContent = sentence;
    alert.hidden = !sentence;
  }
}

function same(one, other) {
  return one?.row === other?.row && one?.column === other?.column;
}

function css(color) {
  return `rgb(${color.join(" ")})`;
}

function percent(share) {
  return `${(100 * share).toFixed(share < 0.0995 ? 1 : 0)} %`;
}

/** First and last pixel of a patch along one side. */
function pixels(index, count, length) {
  return `${Math.floor((index * length) / count)}–${Math.max(Math.ceil(((index + 1) * length) / count) - 1, 0)}`;
}

function button(label, onClick) {
  const made = document.createElement("button");
  made.type = "button";
  made.textContent = label;
  made.addEventListener("click", onClick);
  return made;
}

/** Pairs of a term and its description into a list; text only. */
function fillFacts(list, facts) {
  const entries = facts.map(([term, description]) => {
    const entry = document.createElement("div");
    const name = document.createElement("dt");
    const text = document.createElement("dd");
    name.textContent = term;
    text.textContent = description;
    entry.append(name, text);
    return entry;
  });
  list.replaceChildren(...entries);
}
