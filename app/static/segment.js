// The tab Segment: what attention keeps follows from queries and keys here; LOST, TokenCut, several objects and
// refined edges are asked of the server, once for each picture and setting.

import { Alert } from "./alert.js";
import { attentionMaps, keepMass, meanMap } from "./attention.js";
import { DrawnMask } from "./drawn.js";
import { Encoding } from "./encoding.js";
import { markExample, offerPhotographs, tokenInExplore } from "./examples.js";
import { css, percent } from "./format.js";
import { area, best, countOf, jaccard, only } from "./labels.js";
import { outlinePath } from "./paint.js";
import { receivePhotos } from "./receive.js";
import { Stage } from "./stage.js";
import { Tiles } from "./tiles.js";

const METHODS = {
  attention: ["Attention", "The patches that hold most of what [CLS] attends to."],
  lost: ["LOST", "Grown from the patch whose key resembles the fewest others."],
  tokencut: ["TokenCut", "The graph of similar keys, cut in two where it is thinnest."],
  several: ["Several", "Cut, set the object aside, cut what is left."],
};
const CLS = 0; // its token
const REST = 150; // milliseconds without change before the server is asked

/**
 * Start the tab inside its component, when it is first shown.
 * @param {{open: (asked: {example?: string, token?: string}) => void}} send  asks the server for a photograph
 */
export function mount({ element, props, watch, send }) {
  const segmenter = new Segmenter(element.querySelector(".lab"), props.facts, send.open);
  const load = () => {
    if (props.value?.token || props.value?.error) segmenter.open(props.value);
  };
  watch("value", load);
  receivePhotos("segment", props.facts.maxBytes, (sentence) => segmenter.alert.say(sentence));
  send.open({ token: tokenInExplore() });
}

class Segmenter {
  constructor(root, facts, open) {
    this.root = root;
    this.find = (selector) => root.querySelector(selector);
    this.alert = new Alert(this.find(".lab-alert"));
    this.settings = this.find(".lab-settings").elements;
    this.tools = this.find(".lab-tools");
    this.colors = facts.objects;
    this.encoding = null;
    this.method = "attention";
    this.head = "best"; // or "mean", the number of a head
    this.cursor = null; // the patch where the arrow keys hold the brush
    this.stage = new Stage(this.find(".lab-stage"), {
      point: (patch) => (this.cursor = patch),
      leave: () => {},
      pin: (patch) => this.drawn.dab(this.centre(patch)),
      remove: () => this.drawn.clear(),
      undo: () => this.drawn.undo(),
      rest: () => {},
    });
    this.drawn = new DrawnMask(this.find(".lab-stage"), () => this.render());
    this.methods = new Tiles(this.find(".lab-methods"), (key) => this.choose({ method: key }));
    this.heads = new Tiles(this.find(".lab-heads .lab-tiles"), (key) => this.choose({ head: key }));
    offerPhotographs(this.find(".lab-examples"), facts.examples, open);
    this.listen();
    root.segmenter = this; // for the browser's console, and for tests
  }

  listen() {
    this.find(".lab-settings").addEventListener("submit", (event) => event.preventDefault());
    this.find(".lab-settings").addEventListener("input", () => this.render());
    this.tools.addEventListener("submit", (event) => event.preventDefault());
    this.tools.addEventListener("input", () => {
      this.drawn.erasing = this.tools.elements.tool.value === "erase";
      this.drawn.size = Number(this.tools.elements.brush.value) / 100;
    });
    this.tools.elements.file.addEventListener("change", ({ target }) => {
      if (target.files[0]) this.alert.afresh(() => this.drawn.load(target.files[0]));
      target.value = ""; // so that the same file can be chosen again
    });
    this.find(".lab-open-mask").addEventListener("click", () => this.tools.elements.file.click());
    for (const act of ["undo", "clear", "invert"]) {
      this.find(`.lab-${act}`).addEventListener("click", () => this.drawn[act]());
    }
    // Arrow keys move the stage's cursor first, then the ring follows it.
    this.find(".lab-stage").addEventListener("keydown", () => {
      if (this.cursor) this.drawn.pointAt(this.centre(this.cursor));
    });
    for (const link of this.root.querySelectorAll("[data-download]")) {
      link.addEventListener("click", () => {
        if (this.encoding) this.alert.afresh(() => this.encoding.download(link.dataset.download, this.recipe));
      });
    }
  }

  centre({ row, column }) {
    const { rows, columns } = this.encoding;
    return { x: (column + 0.5) / columns, y: (row + 0.5) / rows };
  }

  // ---- what the server sends

  /** Take up another encoding, or say in words why there is none. */
  async open(value) {
    this.alert.say(value.error ?? "");
    if (value.error) return;
    const encoding = new Encoding(value);
    this.opening = encoding;
    const block = await this.alert.attempt(() => encoding.block(encoding.blocks - 1));
    if (!block || this.opening !== encoding) return;
    const again = samePicture(this.encoding, encoding);
    const heads = attentionMaps(block, CLS);
    this.maps = new Map([["mean", meanMap(heads)], ...heads.map((map, head) => [String(head), map])]);
    this.encoding = encoding;
    this.found = new Map(); // query -> labels and seeds, as the server found them
    if (!again) this.drawn.open(encoding);
    this.showEncoding();
    this.render();
    this.root.dataset.token = encoding.token; // says that the picture is on the screen
  }

  /** Labels of a recipe from the server; null until they are here, and then everything is drawn again. */
  ask(recipe) {
    const { encoding, found } = this;
    const query = new URLSearchParams(recipe).toString();
    if (!found.has(query)) {
      found.set(query, null);
      this.alert.attempt(() => encoding.tell("objects/found", recipe)).then((told) => {
        if (told) found.set(query, { ...told, values: bytes(told.labels) });
        if (this.encoding === encoding) this.render();
      });
    }
    return found.get(query);
  }

  // ---- what is asked for

  choose(choice) {
    Object.assign(this, choice);
    this.alert.say("");
    this.render();
  }

  /** What is on the stage, in the server's words. */
  get recipe() {
    const { mass, refined } = this.settings;
    return { ...this.plain(this.method), head: this.chosenHead, mass: Number(mass.value) / 100, refined: refined.checked };
  }

  /** A way to find objects with nothing but what its result depends on, so that it is asked once. */
  plain(method) {
    return method === "several" ? { method, count: Number(this.settings.count.value) } : { method };
  }

  // ---- numbers

  /** The kept patches of the mean and of every head, as Map key -> mask. */
  masks() {
    const { rows, columns } = this.encoding;
    const mass = Number(this.settings.mass.value) / 100;
    return new Map([...this.maps].map(([key, map]) => [key, { rows, columns, values: keepMass(map, mass) }]));
  }

  /** Which head "best" stands for: of the heads, the one that agrees most with the drawn mask. */
  bestHead(masks) {
    if (!this.drawn.mask) return "mean";
    return best(new Map([...masks].filter(([key]) => key !== "mean")), this.drawn.mask);
  }

  /** Everything that is drawn: labels of every method and head, null while they are on their way. */
  view() {
    const masks = this.masks();
    const bestHead = this.bestHead(masks);
    this.chosenHead = this.head === "best" ? bestHead : this.head;
    masks.set("best", masks.get(bestHead));
    const methods = new Map(Object.keys(METHODS).map((method) => [method, this.labelsBy(method, masks)]));
    const refined = this.settings.refined.checked ? this.refinedLabels() : null;
    return { masks, bestHead, methods, labels: refined ?? methods.get(this.method) };
  }

  labelsBy(method, masks) {
    return method === "attention" ? masks.get(this.head) : this.ask(this.plain(method));
  }

  /** Refined labels, if they are here; asked for once the settings rest. */
  refinedLabels() {
    const { encoding, recipe } = this;
    const query = new URLSearchParams(recipe).toString();
    const wanted = `${encoding.token}?${query}`;
    if (this.wanted !== wanted) {
      clearTimeout(this.resting);
      this.wanted = wanted;
      if (!this.found.has(query)) {
        this.resting = setTimeout(() => this.encoding === encoding && this.ask(recipe), REST);
      }
    }
    return this.found.get(query);
  }

  // ---- what is seen

  /** Everything that follows from a new picture. */
  showEncoding() {
    const { encoding } = this;
    const color = css(this.colors[0]);
    const heads = [...this.maps.keys()].filter((key) => key !== "mean");
    const tile = (key, label) => ({ key, label, color });
    if (!["best", "mean", ...heads].includes(this.head)) this.head = "best";
    this.stage.open(encoding);
    this.methods.open(encoding, Object.entries(METHODS).map(([key, [label]]) => tile(key, label)));
    this.heads.open(encoding, [
      tile("best", "Best"),
      tile("mean", "Mean"),
      ...heads.map((key) => tile(key, `Head ${key}`)),
    ]);
    markExample(this.find(".lab-examples"), encoding.example);
  }

  render() {
    if (!this.encoding) return;
    const view = this.view();
    this.showSettings();
    this.showTiles(this.methods, view.methods, this.method);
    this.showTiles(this.heads, view.masks, this.head);
    this.showObjects(view.labels);
    this.drawn.outline(this.find(".lab-drawn"));
    this.showScores(view.labels);
    this.explain(view);
  }

  showSettings() {
    const { mass, count } = this.settings;
    const byAttention = this.method === "attention";
    this.find(".lab-heads").hidden = this.find(".lab-mass").hidden = !byAttention;
    this.find(".lab-mass").hidden = !byAttention;
    this.find(".lab-count").hidden = this.method !== "several";
    this.find(".lab-mass output").value = `${mass.value} %`;
    this.find(".lab-count output").value = count.value === "1" ? "1 object" : `${count.value} objects`;
    this.find(".lab-undo").disabled = !this.drawn.history.length;
  }

  /** Masks over small pictures, and one figure each: Jaccard with the drawn mask, or else the area. */
  showTiles(tiles, shown, chosen) {
    const { mask } = this.drawn;
    for (const [key, { canvas, note }] of tiles.tiles) {
      const labels = shown.get(key);
      note.textContent = !labels ? "…" : mask ? jaccard(labels, mask).toFixed(2) : percent(area(labels));
      if (labels) canvas.labels(labels.values, this.colors);
    }
    tiles.choose(chosen);
  }

  showObjects(labels) {
    const { stage, colors } = this;
    if (!labels) return stage.draw([], null);
    stage.canvas.resize(labels.rows, labels.columns);
    stage.canvas.labels(labels.values, colors);
    stage.ink.setAttribute("viewBox", `0 0 ${labels.columns} ${labels.rows}`);
    const outlines = numbers(labels).map((number) => ({
      path: outlinePath(only(labels, number), labels.rows, labels.columns),
      color: css(colors[number - 1]),
    }));
    stage.draw(outlines, null);
    const seeds = labels.seeds ?? [];
    stage.mark(seeds.map(([row, column], index) => ({ row, column, color: css(colors[index]) })));
  }

  /** One line per object; of several also one for all of them. */
  showScores(labels) {
    const { mask } = this.drawn;
    const score = (number) => (mask ? jaccard(labels, mask, mask, number).toFixed(3) : "draw it, or open a file");
    const found = labels ? numbers(labels) : [];
    const lines = found.map((number) => [this.colors[number - 1], `Object ${number}`, percent(area(labels, number)), score(number)]);
    if (found.length > 1) lines.push([null, "All objects", percent(area(labels)), score(0)]);
    if (!labels) lines.push([null, "Looking …", "", ""]);
    else if (!found.length) lines.push([null, "Nothing stands out", "0 %", score(0)]);
    if (mask) lines.push([null, "Your mask", percent(area(mask)), ""]);
    this.find(".lab-scores tbody").replaceChildren(...lines.map(scoreLine));
  }

  explain({ bestHead }) {
    const figure = this.drawn.mask ? "The figure is the Jaccard similarity with your mask." : "The figure is the share of the picture.";
    this.find(".lab-how").textContent = `${METHODS[this.method][1]} ${figure}`;
    this.find(".lab-who").textContent =
      bestHead === "mean" ? "Best needs a mask to compare with: until you draw one, it is the mean." : `Best is head ${bestHead}.`;
  }
}

/** Whether two encodings are of one photograph, so that what was drawn on it stays. */
function samePicture(one, other) {
  return ["name", "example", "width", "height"].every((fact) => one?.[fact] === other[fact]);
}

/** Numbers of the objects of labels. */
function numbers(labels) {
  return Array.from({ length: countOf(labels) }, (_, index) => index + 1);
}

function scoreLine([color, ...cells]) {
  const row = document.createElement("tr");
  cells.forEach((text, index) => {
    const cell = document.createElement(index ? "td" : "th");
    if (!index) cell.scope = "row";
    cell.textContent = text;
    if (!index && color) {
      cell.className = "lab-swatch";
      cell.style.setProperty("--object", css(color));
    }
    row.append(cell);
  });
  return row;
}

function bytes(base64) {
  return Uint8Array.from(atob(base64), (letter) => letter.charCodeAt(0));
}
