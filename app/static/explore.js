// The tab Explore: one answer of the server per picture and block, everything else happens here.

import { attentionMaps, entropy, keepMass, keptShares, maxMap, meanMap, range } from "./attention.js";
import { Encoding, Refusal } from "./encoding.js";
import { colormap, outlinePath } from "./paint.js";
import { Pins, samePatch } from "./pins.js";
import { receivePhotos } from "./receive.js";
import { Stage } from "./stage.js";
import { Tiles } from "./tiles.js";

const MASK_TINT = 0.6; // a mask covers its picture more lightly than a heat map does
const SPEAK_AFTER = 500; // milliseconds of rest before the readout is spoken

/**
 * Start the tab inside its component. Called once, by the line of script that Gradio runs when the component loads.
 * @param {HTMLElement} element  the component
 * @param {object} props  value: the encoding shown, or an error; facts: colours and examples, given once
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
}

class Explorer {
  constructor(root, facts, openExample) {
    this.root = root;
    this.find = (selector) => root.querySelector(selector);
    this.form = this.find(".lab-settings");
    this.facts = facts;
    const tables = Object.entries(facts.colormaps).map(([name, bytes]) => [name, colormap(bytes)]);
    this.colormaps = Object.fromEntries(tables);
    this.turn = 0; // counts answers asked for, so that a late one is dropped
    this.encoding = null;
    this.block = null;
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
    this.listExamples(openExample);
    this.listen();
    root.explorer = this; // for the browser's console, and for tests
  }

  listen() {
    this.form.addEventListener("submit", (event) => event.preventDefault());
    this.form.addEventListener("input", ({ target }) => {
      for (const name of ["mass", "opacity"]) {
        this.find(`.lab-${name} output`).value = `${this.form.elements[name].value} %`;
      }
      if (target.name === "block") this.openBlock(Number(target.value) - 1);
      else this.render();
    });
    this.find(".lab-undo").addEventListener("click", () => this.change(() => this.pins.undo()));
    for (const link of this.root.querySelectorAll("[data-download]")) {
      link.addEventListener("click", () => {
        if (this.encoding) this.attempt(() => this.encoding.download(link.dataset.download, this.request));
      });
    }
  }

  // ---- what the server sends

  /** Show another encoding, or say in words why there is none. */
  async open(value) {
    this.say(value.error ?? "");
    if (value.error) return;
    const encoding = new Encoding(value);
    const block = await this.newest(() => encoding.block(encoding.blocks - 1));
    if (!block) return;
    Object.assign(this, { encoding, block, hovered: null });
    this.pins.clear();
    this.showEncoding();
    this.render();
    this.root.dataset.token = encoding.token; // says that everything is on the screen
  }

  async openBlock(number) {
    if (!this.encoding) return;
    this.labelBlock(number);
    const block = await this.newest(() => this.encoding.block(number));
    if (!block) return;
    this.block = block;
    this.render();
  }

  /** What `action` brings, unless another was asked for meanwhile. */
  async newest(action) {
    const turn = ++this.turn;
    const brought = await this.attempt(action);
    return turn === this.turn ? brought : null;
  }

  /** What `action` brings, or null after saying why there is nothing. */
  async attempt(action) {
    try {
      const brought = await action();
      this.say("");
      return brought ?? null;
    } catch (error) {
      if (!(error instanceof Refusal)) throw error;
      this.say(error.message);
      return null;
    }
  }

  /** One sentence above the picture; an empty one takes it away. */
  say(sentence) {
    const alert = this.find(".lab-alert");
    alert.textContent = sentence;
    alert.hidden = !sentence;
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

  get settings() {
    const { layer, mass, opacity, colormap: colors, smooth, shared, outline } = this.form.elements;
    const masked = layer.value === "mask" && this.show !== "heads";
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
    const { patch, show, settings } = this;
    const query = patch ? `${patch.row},${patch.column}` : "cls";
    return { ...settings, block: this.block.number, query, show };
  }

  /** A map, its kept patches and its range for every entry of the gallery but "heads", which has all of them. */
  view() {
    const { block, patch, encoding, settings } = this;
    const heads = attentionMaps(block, encoding.tokenOf(patch));
    const maps = new Map(heads.map((map, head) => [String(head), map]));
    maps.set("mean", meanMap(heads)).set("max", maxMap(heads));
    const kept = new Map([...maps].map(([key, map]) => [key, keepMass(map, settings.mass)]));
    const own = new Map([...maps].map(([key, map]) => [key, range(map)]));
    return { patch, settings, heads, maps, kept, own, drawn: settings.shared ? shareRange(own, heads.length) : own };
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
    this.stage.open(encoding);
    this.tiles.open(encoding, shows);
    this.find(".lab-banner").hidden = !encoding.random;
    this.form.elements.block.max = encoding.blocks;
    this.form.elements.block.value = this.block.number + 1;
    this.labelBlock(this.block.number);
    listFacts(this.find(".lab-facts"), encoding.facts);
    for (const example of this.root.querySelectorAll(".lab-example")) {
      example.setAttribute("aria-pressed", String(example.dataset.example === encoding.example));
    }
  }

  labelBlock(number) {
    this.find(".lab-block output").value = `${number + 1} of ${this.encoding.blocks}`;
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
    this.paint(this.stage.canvas, this.show, view);
    for (const [key, { canvas, note }] of this.tiles.tiles) {
      this.paint(canvas, key, view);
      note.textContent = key === "heads" ? "" : percent(view.own.get(key)[1]);
    }
    this.tiles.choose(this.show);
    this.stage.draw(this.outlines(view), patch, this.pins.at(patch)?.color ?? "#fff");
    this.stage.mark(this.pins.list);
    this.listQueries();
    this.describe(view);
  }

  paint(canvas, key, { settings, heads, maps, kept, drawn }) {
    if (key === "heads") {
      const keys = heads.map((_, head) => String(head));
      canvas.heads(heads, keys.map((head) => kept.get(head)), keys.map((head) => this.colorOf(head)));
    } else if (settings.layer === "mask") canvas.mask(kept.get(key), this.colorOf(key));
    else canvas.heat(maps.get(key), this.colormaps[settings.colormap], drawn.get(key));
  }

  /** Outline of the kept patches of the map on the stage. */
  outlines({ settings, kept }) {
    if (this.show === "heads" || !settings.outline) return [];
    const path = outlinePath(kept.get(this.show), this.encoding.rows, this.encoding.columns);
    return [{ path, color: settings.layer === "mask" ? css(this.colorOf(this.show)) : "#fff" }];
  }

  /** [red, green, blue] of a head; the mean and the maximum share one. */
  colorOf(key) {
    const { heads, summary } = this.facts;
    return key === "mean" || key === "max" ? summary : heads[Number(key) % heads.length];
  }

  /** Patch, attention kept and entropy, in words and numbers. */
  describe({ patch, maps, kept, settings }) {
    const key = this.show === "heads" ? "mean" : this.show;
    const map = maps.get(key);
    const shares = keptShares(map, kept.get(key));
    const where = patch ? this.place(patch) : "[CLS], the token that stands for the whole picture";
    const name = { mean: "Mean of the heads", max: "Max of the heads" }[key] ?? `Head ${key}`;
    const what =
      `${name}: ${percent(shares.mass)} of the attention on ${percent(shares.area)} of the picture · ` +
      `entropy ${entropy(map).toFixed(2)} of ${Math.log(map.length).toFixed(2)} nats`;
    this.find(".lab-where").textContent = where;
    this.find(".lab-what").textContent = what;
    this.find(".lab-legend").textContent =
      (settings.shared ? "One colour scale for all heads" : "Colours from each map's own least to greatest") +
      "; the figure is the strongest patch's share.";
    clearTimeout(this.speaking); // not for every patch crossed
    this.speaking = setTimeout(() => (this.find(".lab-spoken").textContent = `${where}. ${what}.`), SPEAK_AFTER);
  }

  place({ row, column }) {
    const { rows, columns, width, height } = this.encoding;
    const x = pixels(column, columns, width);
    const y = pixels(row, rows, height);
    return `Patch row ${row}, column ${column} · pixels x ${x}, y ${y}`;
  }

  // ---- lists

  /** [CLS] and the pins as chips. */
  listQueries() {
    const { list, active, history } = this.pins;
    const state = JSON.stringify([list, list.indexOf(active), history.length > 0]);
    if (this.listed === state) return; // so that the focus stays where it is
    this.listed = state;
    const chips = list.map((pin, index) => this.chip(`${index + 1} · row ${pin.row}, column ${pin.column}`, pin));
    this.find(".lab-queries").replaceChildren(this.chip("[CLS]", null), ...chips);
    this.find(".lab-undo").disabled = history.length === 0;
  }

  chip(label, pin) {
    const item = document.createElement("li");
    item.className = "lab-chip";
    item.style.setProperty("--pin", pin?.color ?? "var(--lab-ink)");
    const choose = button(label, () => this.change(() => (this.pins.active = pin)));
    choose.setAttribute("aria-pressed", String(this.pins.active === pin));
    item.append(choose);
    if (pin) {
      const remove = button("×", () => this.change(() => this.pins.remove(pin)));
      remove.setAttribute("aria-label", `Remove ${label}`);
      item.append(remove);
    }
    return item;
  }

  listExamples(openExample) {
    for (const { name, title, thumbnail } of this.facts.examples) {
      const made = button("", () => openExample(name));
      made.className = "lab-example";
      made.dataset.example = name;
      made.title = title;
      const picture = document.createElement("img");
      picture.src = thumbnail;
      picture.alt = title;
      made.append(picture);
      this.find(".lab-examples").append(made);
    }
  }
}

/** One range for every map: the least and greatest value of any head. */
function shareRange(own, heads) {
  const all = Array.from({ length: heads }, (_, head) => own.get(String(head)));
  const common = [Math.min(...all.map(([low]) => low)), Math.max(...all.map(([, high]) => high))];
  return new Map([...own.keys()].map((key) => [key, common]));
}

function css(color) {
  return `rgb(${color.join(" ")})`;
}

/** One decimal below ten percent. */
function percent(share) {
  return `${(100 * share).toFixed(share < 0.0995 ? 1 : 0)} %`;
}

/** First and last pixel of a patch along one side. */
function pixels(index, count, length) {
  const first = Math.floor((index * length) / count);
  return `${first}–${Math.max(Math.ceil(((index + 1) * length) / count) - 1, first)}`;
}

function button(label, onClick) {
  const made = document.createElement("button");
  made.type = "button";
  made.textContent = label;
  made.addEventListener("click", onClick);
  return made;
}

/** Terms and their descriptions, as text. */
function listFacts(list, facts) {
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
