// The tab Compare: two encodings of one photograph, one cursor, one drawn mask; all numbers are computed here.

import { Alert } from "./alert.js";
import { attentionMaps, keepMass, meanMap, range } from "./attention.js";
import { DrawnMask } from "./drawn.js";
import { Encoding, keep } from "./encoding.js";
import { markExample, offerPhotographs, tokenInExplore } from "./examples.js";
import { percent } from "./format.js";
import { area, best, jaccard } from "./labels.js";
import { colormap, outlinePath } from "./paint.js";
import { receivePhotos } from "./receive.js";
import { Stage } from "./stage.js";
import { Tiles } from "./tiles.js";

const MASK_COLOR = [86, 180, 233];
const SIDES = ["left", "right"];
const LONGEST = 1024; // cells of the long side at which two masks are compared

/**
 * Start the tab inside its component, when it is first shown.
 * @param {{open: (asked: {example?: string, token?: string}) => void}} send  asks the server for a photograph
 */
export function mount({ element, props, watch, send }) {
  const comparison = new Comparison(element.querySelector(".lab"), props.facts, send.open);
  const load = () => {
    if (props.value?.token || props.value?.error) comparison.open(props.value);
  };
  watch("value", load);
  receivePhotos("compare", props.facts.maxBytes, (sentence) => comparison.alert.say(sentence));
  send.open({ token: tokenInExplore() });
}

class Comparison {
  constructor(root, facts, open) {
    this.root = root;
    this.find = (selector) => root.querySelector(selector);
    this.alert = new Alert(this.find(".lab-alert"));
    this.tools = this.find(".lab-tools").elements;
    this.place = null; // {x, y}, shares of width and height that are asked about; null: [CLS]
    const first = this.find(".compare-side");
    first.after(first.cloneNode(true));
    const colors = colormap(facts.colormaps.inferno);
    this.sides = [...root.querySelectorAll(".compare-side")].map((element, index) => this.build(element, index, colors));
    offerPhotographs(this.find(".lab-examples"), facts.examples, open);
    this.listen();
    root.comparison = this; // for the browser's console, and for tests
  }

  build(element, index, colors) {
    const side = new Side(element, SIDES[index], colors, {
      point: (place) => this.point(place),
      draw: () => this.share(side),
      undo: () => this.undo(),
      choose: () => this.render(),
    });
    return side;
  }

  listen() {
    const { tools } = this;
    const form = this.find(".lab-tools");
    form.addEventListener("submit", (event) => event.preventDefault());
    form.addEventListener("input", () => {
      this.root.dataset.tool = tools.tool.value;
      for (const { drawn } of this.sides) drawn.erasing = tools.tool.value === "erase";
      this.render();
    });
    tools.file.addEventListener("change", ({ target }) => {
      if (target.files[0]) this.alert.afresh(() => this.sides[0].drawn.load(target.files[0]));
      target.value = ""; // so that the same file can be chosen again
    });
    this.find(".lab-open-mask").addEventListener("click", () => tools.file.click());
    this.find(".lab-clear").addEventListener("click", () => this.sides[0].drawn.clear());
    this.find(".lab-undo").addEventListener("click", () => this.undo());
    this.find(".compare-paper").addEventListener("click", () => this.asInThePaper());
    this.find(".compare-figure").addEventListener("click", () => this.alert.afresh(() => this.download()));
  }

  // ---- what the server sends

  /** Take up another pair of encodings, or say in words why there is none. */
  async open(value) {
    this.alert.say(value.error ?? "");
    if (value.error) return;
    this.opening = value.token;
    const encodings = SIDES.map((side) => new Encoding(value[side]));
    const blocks = await this.alert.afresh(() => Promise.all(encodings.map((one) => one.block(one.blocks - 1))));
    if (!blocks || this.opening !== value.token) return;
    const again = samePicture(this.sides[0].encoding, encodings[0]);
    this.place = null;
    this.sides.forEach((side, index) => side.open(encodings[index], blocks[index], again));
    markExample(this.find(".lab-examples"), encodings[0].example);
    this.render();
    this.root.dataset.token = value.token; // says that both are on the screen
  }

  // ---- what both sides share

  point(place) {
    if (place?.x === this.place?.x && place?.y === this.place?.y) return;
    this.place = place;
    this.render();
  }

  /** What was drawn on one side lies on the other too. */
  share(from) {
    for (const { drawn } of this.sides) if (drawn !== from.drawn) drawn.set(from.drawn.values);
    this.last = from;
    this.render();
  }

  undo() {
    (this.last ?? this.sides[0]).drawn.undo();
  }

  /** The best head of both models by the drawn mask, each with 60 % of what [CLS] attends to. */
  asInThePaper() {
    this.place = null;
    this.tools.layer.value = "mask";
    this.tools.mass.value = 60;
    for (const side of this.sides) side.chosen = "best";
    this.render();
  }

  async download() {
    const [left, right] = this.sides;
    const query = {
      left: left.encoding.token,
      right: right.encoding.token,
      left_head: left.head,
      right_head: right.head,
      mass: this.mass,
    };
    await keep(`lab/compare/figure.png?${new URLSearchParams(query)}`, "figure.png");
  }

  get mass() {
    return Number(this.tools.mass.value) / 100;
  }

  render() {
    if (!this.sides.every((side) => side.encoding)) return;
    this.root.dataset.layer = this.tools.layer.value;
    this.find(".compare-mass output").value = `${this.tools.mass.value} %`;
    this.find(".lab-undo").disabled = !(this.last ?? this.sides[0]).drawn.history.length;
    const masks = this.sides.map((side) => side.render(this.place, this.mass, this.tools.layer.value));
    const agreement = jaccard(...masks, commonSize(this.sides[0].encoding));
    const hint = this.sides[0].drawn.mask ? "" : " Draw the object, and each model's best head is chosen by it.";
    this.agreement = agreement;
    this.find(".compare-agreement").textContent = `Jaccard similarity of the two masks: ${agreement.toFixed(3)}.${hint}`;
  }
}

/** One model's view of the photograph. */
class Side {
  /**
   * @param {HTMLElement} element  section with a stage and a gallery
   * @param {string} name  "left" or "right"
   * @param {Uint32Array} colors  of heat maps
   * @param {object} on  what to call: point({x, y} or null), draw(), undo(), choose()
   */
  constructor(element, name, colors, on) {
    this.find = (selector) => element.querySelector(selector);
    this.colors = colors;
    this.encoding = null;
    this.chosen = "best"; // or "mean", the number of a head
    this.head = "mean"; // what is chosen stands for
    const stage = this.find(".lab-stage");
    stage.setAttribute("aria-label", `Picture with attention of the ${name} model`);
    this.find(".lab-tiles").setAttribute("aria-label", `Head of the ${name} model`);
    this.drawn = new DrawnMask(stage, on.draw);
    const drawing = () => stage.closest(".lab").dataset.tool !== "point";
    this.stage = new Stage(stage, {
      point: (patch) => (drawing() ? this.drawn.pointAt(this.centre(patch)) : on.point(this.centre(patch))),
      leave: () => drawing() || on.point(null),
      // A finger that is lifted leaves the picture: what it tapped is asked when the click follows.
      pin: (patch) => (drawing() ? this.drawn.dab(this.centre(patch)) : on.point(this.centre(patch))),
      remove: () => drawing() && this.drawn.clear(),
      undo: on.undo,
      rest: () => on.point(null),
    });
    this.tiles = new Tiles(this.find(".lab-tiles"), (key) => {
      this.chosen = key;
      on.choose();
    });
  }

  centre({ row, column }) {
    const { rows, columns } = this.encoding;
    return { x: (column + 0.5) / columns, y: (row + 0.5) / rows };
  }

  /** Another encoding; `again`: of the photograph that lies here already, whose drawn mask stays. */
  open(encoding, block, again) {
    Object.assign(this, { encoding, block });
    const heads = Array.from({ length: encoding.heads }, (_, head) => String(head));
    if (!["best", "mean", ...heads].includes(this.chosen)) this.chosen = "best";
    const color = "transparent";
    this.stage.open(encoding);
    if (!again) this.drawn.open(encoding);
    this.find("h2").textContent = encoding.facts[0][1];
    this.find(".lab-banner").hidden = !encoding.random;
    this.tiles.open(encoding, [
      { key: "best", label: "Best", color },
      { key: "mean", label: "Mean", color },
      ...heads.map((key) => ({ key, label: `Head ${key}`, color })),
    ]);
  }

  /** The patch of this model's grid that holds a place; null for none. */
  patchAt(place) {
    if (!place) return null;
    const { rows, columns } = this.encoding;
    return { row: Math.floor(place.y * rows), column: Math.floor(place.x * columns) };
  }

  /** Draw everything for a place; returns the mask that is shown. */
  render(place, mass, layer) {
    const { encoding, stage } = this;
    const patch = this.patchAt(place);
    const { maps, masks } = this.compute(patch, mass);
    for (const [key, { canvas, note }] of this.tiles.tiles) {
      paint(canvas, maps.get(key), masks.get(key), layer, this.colors);
      note.textContent = this.drawn.mask ? jaccard(masks.get(key), this.drawn.mask).toFixed(2) : percent(area(masks.get(key)));
    }
    this.tiles.choose(this.chosen);
    const mask = masks.get(this.chosen);
    paint(stage.canvas, maps.get(this.chosen), mask, layer, this.colors);
    const path = outlinePath(mask.values, encoding.rows, encoding.columns);
    stage.draw([{ path, color: layer === "mask" ? `rgb(${MASK_COLOR.join(" ")})` : "#fff" }], patch, "#fff");
    this.drawn.outline(this.find(".lab-drawn"));
    this.describe(patch, mass, mask);
    return mask;
  }

  /** Maps and kept patches of every entry of the gallery. */
  compute(patch, mass) {
    const { rows, columns } = this.encoding;
    const heads = attentionMaps(this.block, this.encoding.tokenOf(patch));
    const maps = new Map(heads.map((map, head) => [String(head), map]));
    const kept = (map) => ({ rows, columns, values: keepMass(map, mass) });
    const masks = new Map([...maps].map(([key, map]) => [key, kept(map)]));
    const bestHead = this.drawn.mask ? best(masks, this.drawn.mask) : "mean";
    maps.set("mean", meanMap(heads));
    masks.set("mean", kept(maps.get("mean")));
    maps.set("best", maps.get(bestHead));
    masks.set("best", masks.get(bestHead));
    this.head = this.chosen === "best" ? bestHead : this.chosen;
    return { maps, masks };
  }

  describe(patch, mass, mask) {
    const { rows, columns } = this.encoding;
    const head = this.head === "mean" ? "Mean of the heads" : `Head ${this.head}`;
    const score = this.drawn.mask ? ` · Jaccard with your mask ${jaccard(mask, this.drawn.mask).toFixed(3)}` : "";
    this.find(".lab-where").textContent =
      (patch ? `Row ${patch.row}, column ${patch.column}` : "[CLS], the whole picture") + ` of ${rows} × ${columns} patches`;
    this.find(".lab-what").textContent = `${head}: ${percent(mass)} of the attention on ${percent(area(mask))} of the picture${score}`;
  }
}

function paint(canvas, map, mask, layer, colors) {
  if (layer === "mask") canvas.mask(mask.values, MASK_COLOR);
  else canvas.heat(map, colors, range(map));
}

/** Rows and columns at which masks of several grids are compared: the photograph's own, up to a limit. */
function commonSize({ width, height }) {
  const scale = Math.min(1, LONGEST / Math.max(width, height));
  return { rows: Math.max(1, Math.round(height * scale)), columns: Math.max(1, Math.round(width * scale)) };
}

/** Whether two encodings are of one photograph. */
function samePicture(one, other) {
  return ["name", "example", "width", "height"].every((fact) => one?.[fact] === other[fact]);
}
