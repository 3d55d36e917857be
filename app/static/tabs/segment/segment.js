// The tab Segment: what attention keeps follows from queries and keys here; LOST, TokenCut, several objects and
// refined edges are asked of the server, for the way that is shown, once for each picture and setting.

import { find, findAll, controls } from "../../dom.js";
import { attentionMaps, keepMass, meanMap } from "../../maths/attention.js";
import { css, fromBase64, percent } from "../../maths/format.js";
import { area, best, countOf, jaccard, only, outlinePath } from "../../maths/labels.js";
import { rested } from "../../newest.js";
import { html, render } from "../../vendor/lit-html.js";
import { Brush } from "../../widgets/brush.js";
import { drawingKey, drawingTools } from "../../widgets/drawing.js";
import { Stage } from "../../widgets/stage.js";
import { Tiles } from "../../widgets/tiles.js";

/**
 * @typedef {import("../../encoding.js").Encoding} Encoding
 * @typedef {import("../../maths/labels.js").Labels & { seeds?: [number, number][] }} Labels
 */

const METHODS = /** @type {Record<string, [string, string]>} */ ({
  attention: ["Attention", "The patches that hold most of what [CLS] attends to."],
  lost: ["LOST", "Grown from the patch whose key resembles the fewest others."],
  tokencut: ["TokenCut", "The graph of similar keys, cut in two where it is thinnest."],
  several: ["Several", "Cut, set the object aside, cut what is left."],
});
const CLS = 0; // its token
const WHITE = [[255, 255, 255]]; // of what is drawn by hand
const REST = 150; // milliseconds without change before the server is asked

/** @param {HTMLElement} root @param {import("../../lab.js").Lab} lab */
export function mount(root, lab) {
  return new Segmenter(root, lab);
}

class Segmenter {
  /** @param {HTMLElement} root @param {import("../../lab.js").Lab} lab */
  constructor(root, lab) {
    this.root = root;
    this.lab = lab;
    this.asker = lab.asker("segment");
    this.finding = lab.asker("segment");
    this.find = (/** @type {string} */ selector) => find(root, selector);
    this.settings = controls(this.find(".lab-settings"));
    this.colors = lab.facts.colors.objects;
    /** @type {Encoding | null} */
    this.encoding = null;
    /** @type {Map<string, Float32Array>} */
    this.maps = new Map();
    /** @type {Map<string, Labels>} */
    this.found = new Map(); // query -> what the server found
    this.asking = ""; // the query that is on its way
    this.head = "best"; // or "mean", the number of a head
    this.chosenHead = "mean"; // what `head` stands for
    this.stage = new Stage(this.find(".lab-stage"), {
      point: () => this.brush.ring(this.stage.paints),
      leave: () => this.brush.ring(false),
      stroke: (from, to) => this.brush.stroke(from, to),
      lift: () => this.drawn(),
      key: (event) => drawingKey(event, this.brush),
    });
    /** @type {Brush} */
    this.brush = new Brush(this.stage, WHITE, () => this.drawn());
    this.methods = new Tiles(this.find(".lab-methods"), (method) => lab.change({ method }));
    this.heads = new Tiles(this.find(".lab-heads .lab-tiles"), (head) => this.choose(head));
    this.ask = rested(() => this.search(), REST);
    this.listen();
    Object.assign(root, { segmenter: this }); // for the browser's console, and for tests
  }

  listen() {
    const form = this.find(".lab-settings");
    form.addEventListener("submit", (event) => event.preventDefault());
    form.addEventListener("input", () => {
      this.lab.note({ mass: Number(this.settings.mass.value) });
      this.render();
    });
    drawingTools(this.find(".lab-tools"), [this.brush], this.asker);
    for (const link of findAll(this.root, "[data-download]")) {
      link.addEventListener("click", () => {
        const { encoding } = this;
        if (encoding) this.asker.attempt(() => encoding.keep(link.dataset.download ?? "", this.recipe));
      });
    }
  }

  // ---- what the lab says

  async look() {
    const { lab } = this;
    const { question } = lab;
    const brought = await this.asker.ask(
      async (listening) => {
        const encoding = await lab.open(listening);
        return { encoding, block: await encoding.block(undefined, listening.signal) };
      },
      () => lab.giveWay(question),
    );
    if (!brought) return;
    const { encoding, block } = brought;
    if (this.encoding !== encoding) this.open(encoding, attentionMaps(block, CLS));
    this.brush.open(lab.drawings.of(encoding)); // Compare may have drawn on it
    this.brush.outline();
    this.settings.mass.value = String(lab.state.mass);
    this.render();
    this.root.dataset.token = encoding.token; // says that the picture is on the screen
  }

  leave() {
    this.ask.cancel();
    this.finding.stop();
    this.asking = "";
  }

  /** @param {Encoding} encoding @param {Float32Array[]} heads  where [CLS] looks */
  open(encoding, heads) {
    const color = css(this.colors[0]);
    const tile = (/** @type {string} */ key, /** @type {string} */ label) => ({ key, label, color });
    const keys = heads.map((_, head) => String(head));
    this.leave();
    this.encoding = encoding;
    this.found = new Map();
    this.maps = new Map([
      ["mean", meanMap(heads)],
      ...heads.map((map, head) => /** @type {[string, Float32Array]} */ ([keys[head], map])),
    ]);
    if (!["best", "mean", ...keys].includes(this.head)) this.head = "best";
    this.stage.show(encoding);
    this.methods.open(
      encoding,
      Object.entries(METHODS).map(([key, [label]]) => tile(key, label)),
    );
    this.heads.open(encoding, [
      tile("best", "Best"),
      tile("mean", "Mean"),
      ...keys.map((key) => tile(key, `Head ${key}`)),
    ]);
  }

  // ---- what is asked for

  get method() {
    const { method } = this.lab.state;
    return method in METHODS ? method : "attention";
  }

  /** @param {string} head */
  choose(head) {
    this.head = head;
    this.render();
  }

  /** What is on the stage, in the server's words. */
  get recipe() {
    const { mass, refined } = this.settings;
    const all = { ...this.plain, head: this.chosenHead, mass: Number(mass.value) / 100 };
    return { ...all, refined: refined.checked };
  }

  /** The way to find objects with nothing but what its result depends on, so that it is asked once. */
  get plain() {
    const { method } = this;
    return method === "several" ? { method, count: Number(this.settings.count.value) } : { method };
  }

  /** What the server is to find for the stage; null where all follows from attention. */
  get wanted() {
    if (this.settings.refined.checked) return this.recipe;
    return this.method === "attention" ? null : this.plain;
  }

  /** Ask for what is wanted and not known yet. A refused way is left unfound until it is chosen again. */
  async search() {
    const { encoding, wanted } = this;
    const query = JSON.stringify(wanted);
    if (!encoding || !wanted || this.found.has(query) || this.asking === query) return;
    this.asking = query;
    const refused = () => {
      if (this.asking === query) this.asking = "";
      this.render(false);
    };
    const told = await this.finding.ask(({ signal }) => encoding.objects(wanted, signal), refused);
    if (!told || this.encoding !== encoding) return;
    this.asking = "";
    this.found.set(query, { ...told, values: fromBase64(told.labels) });
    this.render();
  }

  // ---- numbers

  /** The kept patches of the mean and of every head. @returns {Map<string, Labels>} */
  masks() {
    const { rows, columns } = /** @type {Encoding} */ (this.encoding);
    const mass = Number(this.settings.mass.value) / 100;
    return new Map([...this.maps].map(([key, map]) => [key, { rows, columns, values: keepMass(map, mass) }]));
  }

  /** Which head "best" stands for: of the heads, the one that agrees most with the drawn mask. @param {Map<string, Labels>} masks */
  bestHead(masks) {
    const { labels } = this.brush.painting;
    return labels ? best(new Map([...masks].filter(([key]) => key !== "mean")), labels) : "mean";
  }

  /** Everything that is drawn: masks of every head, labels of the stage; undefined while they are on their way. */
  view() {
    const masks = this.masks();
    const bestHead = this.bestHead(masks);
    this.chosenHead = this.head === "best" ? bestHead : this.head;
    masks.set("best", /** @type {Labels} */ (masks.get(bestHead)));
    const plain = this.method === "attention" ? masks.get(this.head) : this.found.get(JSON.stringify(this.plain));
    const { wanted } = this;
    const labels = (wanted && this.found.get(JSON.stringify(wanted))) || plain;
    return { masks, bestHead, labels };
  }

  // ---- what is seen

  /** @param {boolean} search  whether what is missing is asked for */
  render(search = true) {
    if (!this.encoding) return;
    const view = this.view();
    this.showSettings();
    const { labels } = this.brush.painting;
    for (const [key, { canvas, note }] of this.heads.tiles)
      showTile(canvas, note, view.masks.get(key), labels, this.colors);
    for (const [key, { canvas, note }] of this.methods.tiles) {
      const shown = key === this.method ? view.labels : this.foundBy(key, view.masks);
      showTile(canvas, note, shown, labels, this.colors);
    }
    this.methods.choose(this.method);
    this.heads.choose(this.head);
    this.showObjects(view.labels);
    this.showScores(view.labels);
    this.explain(view.bestHead);
    if (search) this.ask();
  }

  /** What a way that is not shown found before, if it did. @param {string} method @param {Map<string, Labels>} masks */
  foundBy(method, masks) {
    if (method === "attention") return masks.get(this.head);
    const { count } = this.settings;
    return this.found.get(JSON.stringify(method === "several" ? { method, count: Number(count.value) } : { method }));
  }

  /** A stroke has ended, or the mask was changed otherwise. */
  drawn() {
    const { encoding, brush } = this;
    if (!encoding) return;
    this.lab.drawings.keep(encoding.photo, brush.painting);
    brush.outline();
    this.render();
  }

  showSettings() {
    const { mass, count } = this.settings;
    const byAttention = this.method === "attention";
    this.find(".lab-heads").hidden = this.find(".lab-mass").hidden = !byAttention;
    this.find(".lab-count").hidden = this.method !== "several";
    this.find(".lab-mass output").value = `${mass.value} %`;
    const objects = count.value === "1" ? "1 object" : `${count.value} objects`;
    this.find(".lab-count output").value = objects;
    this.find(".lab-undo").disabled = !this.brush.painting.past.length;
  }

  /** @param {Labels | undefined} labels */
  showObjects(labels) {
    const { stage, colors } = this;
    const { rows, columns } = labels ?? { rows: 1, columns: 1 };
    stage.canvas.resize(rows, columns);
    stage.ink.setAttribute("viewBox", `0 0 ${columns} ${rows}`);
    if (labels) stage.canvas.labels(labels.values, colors);
    else stage.canvas.clear();
    const outlines = numbers(labels).map((number) => ({
      path: outlinePath(only(/** @type {Labels} */ (labels), number), rows, columns),
      color: css(colors[number - 1]),
    }));
    stage.draw(outlines);
    const { encoding } = this;
    const seeds = labels?.seeds ?? [];
    const place = (/** @type {[number, number]} */ [row, column]) =>
      /** @type {Encoding} */ (encoding).placeOf({ row, column });
    stage.mark(seeds.map((seed, index) => ({ ...place(seed), color: css(colors[index]) })));
  }

  /** One line per object; of several also one for all of them. @param {Labels | undefined} labels */
  showScores(labels) {
    const mask = this.brush.painting.labels;
    const score = (/** @type {number} */ number) =>
      mask && labels ? jaccard(labels, mask, mask, number).toFixed(3) : "draw it, or open a file";
    const found = numbers(labels);
    /** @type {[number[] | null, ...string[]][]} */
    const lines = labels
      ? found.map((number) => [
          this.colors[number - 1],
          `Object ${number}`,
          percent(area(labels, number)),
          score(number),
        ])
      : [];
    if (labels && found.length > 1) lines.push([null, "All objects", percent(area(labels)), score(0)]);
    if (!labels) lines.push([null, this.asking || this.finding.newest.busy ? "Looking …" : "Not found", "", ""]);
    else if (!found.length) lines.push([null, "Nothing stands out", "0 %", score(0)]);
    if (mask) lines.push([null, "Your mask", percent(area(mask)), ""]);
    render(lines.map(scoreLine), this.find(".lab-scores tbody"));
    this.lab.speak(lines.map(([, ...words]) => words.filter(Boolean).join(", ")).join(". "));
  }

  /** @param {string} bestHead */
  explain(bestHead) {
    const { labels } = this.brush.painting;
    const figure = labels
      ? "The figure is the Jaccard similarity with your mask."
      : "The figure is the share of the picture.";
    this.find(".lab-how").textContent = `${METHODS[this.method][1]} ${figure}`;
    this.find(".lab-who").textContent =
      bestHead === "mean"
        ? "Best needs a mask to compare with: until you draw one, it is the mean."
        : `Best is head ${bestHead}.`;
  }
}

/** Labels over a small picture, and one figure: Jaccard with the drawn mask, or else the area; nothing before they are asked for.
 * @param {import("../../widgets/paint.js").PatchCanvas} canvas @param {HTMLElement} note
 * @param {Labels | undefined} labels @param {Labels | null} drawn @param {number[][]} colors
 */
function showTile(canvas, note, labels, drawn, colors) {
  note.textContent = !labels ? "" : drawn ? jaccard(labels, drawn).toFixed(2) : percent(area(labels));
  canvas.resize(labels?.rows ?? 1, labels?.columns ?? 1);
  if (labels) canvas.labels(labels.values, colors);
  else canvas.clear();
}

/** Numbers of the objects of labels. @param {Labels | undefined} labels */
function numbers(labels) {
  return Array.from({ length: labels ? countOf(labels) : 0 }, (_, index) => index + 1);
}

/** @param {[number[] | null, ...string[]]} line */
function scoreLine([color, name, ...cells]) {
  const swatch = color ? `--object: ${css(color)}` : "";
  return html`<tr><th scope="row" class=${color ? "lab-swatch" : ""} style=${swatch}>${name}</th>${cells.map((cell) => html`<td>${cell}</td>`)}</tr>`;
}
