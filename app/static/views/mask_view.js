// An image with objects that were clicked, drawn or found: `app.views.view`.
//
// The mask that attention keeps is computed in the browser. LOST, TokenCut, MaskCut and refined edges are computed by the
// server: the view emits "edited", the server reads `wanted`, and the prop `found` repeats its key.

import { attentionMaps, likelyPatch } from "../maths/attention.js";
import { css, percent } from "../maths/format.js";
import { area, best, countOf, jaccard, outlinePath, resized } from "../maths/labels.js";
import { Maps } from "../maths/maps.js";
import { fromRuns } from "../maths/painting.js";
import { Brush, Tools, paintingOf } from "./brush.js";
import { el } from "./dom.js";
import { Encoding } from "./encoding.js";
import { cocoFile, imageFile, save } from "./files.js";
import { rested } from "./newest.js";
import { COLORS } from "./palette.js";
import { Stage } from "./stage.js";
import { Tiles } from "./tiles.js";
import { View } from "./view.js";

const METHODS = {
  click: ["Click", "Click an object: the connected patches with similar keys are added. Alt-click subtracts; draw or erase to correct."], // prettier-ignore
  attention: ["Attention", "The patches with the largest attention of [CLS]."],
  lost: ["LOST", "Grown from the patch whose key is similar to the fewest other keys."],
  tokencut: ["TokenCut", "A normalized cut of the graph of similar keys."],
  maskcut: ["MaskCut", "TokenCut several times, each time without the objects found before."],
};
const SETTINGS = { method: "click", reach: 90, mass: 60, count: 3, refined: false };
const KEYS =
  "Move with the arrow keys and press Enter to add the object. C clicks, B draws and E erases; Enter then uses the brush. Control Z undoes.";

export class MaskView extends View {
  encoding = null;
  attention = []; // of [CLS], a map per head
  found = new Map(); // by question
  asking = ""; // question that the server has not answered
  head = "best"; // or "mean", the number of a head
  bestHead = "mean";
  suggested = null;
  stage = new Stage("Image with objects: click one, or draw", KEYS, {
    point: () => this.point(),
    leave: () => this.point(),
    press: (place, alt) => this.press(place, alt),
    key: (event) => this.tools.key(event),
  });
  brush = new Brush(this.stage, () => this.drawn());
  tools = new Tools(this.brush);
  methods = new Tiles("Method", (method) => this.set({ method }), "lab-methods");
  heads = new Tiles("Attention head", (head) => this.chooseHead(head), "lab-heads");
  scores = el("tbody");
  help = el("p", { class: "lab-soft" });
  ask = rested(() => this.search());

  /** @param {Mounted} mounted */
  constructor(mounted) {
    super(mounted, SETTINGS);
    Object.assign(this.stage.on, this.brush.events);
    this.element.classList.add("lab-masks");
    const titles = ["Object", "Share of the image", "Jaccard with your mask"];
    const header = el("tr", {}, ...titles.map((title) => el("th", { scope: "col" }, title)));
    const table = el("table", { class: "lab-scores" }, el("thead", {}, header), this.scores);
    this.watch("found", () => this.receive());
    const { stage, tools, help, methods, heads } = this;
    this.mount("value", stage.element, tools.element, table, help, methods.element, heads.element);
  }

  // ---- the image

  async load(signal) {
    const { value } = this.props;
    if (!value.token) return;
    const encoding = this.encoding?.value === value ? this.encoding : new Encoding(value, this.server);
    return { encoding, block: await encoding.arrays("attention", encoding.blocks - 1, signal) };
  }

  show({ encoding, block }) {
    if (this.encoding?.token !== encoding.token) this.open(encoding, block);
    this.brush.open(paintingOf(encoding));
    this.brush.outline();
    this.render();
    this.element.dataset.token = encoding.token; // tests wait for it
    this.announce(encoding.token, { token: encoding.token });
  }

  open(encoding, block) {
    const color = css(COLORS.objects[0]);
    this.ask.cancel();
    Object.assign(this, { encoding, asking: "", found: new Map(), attention: attentionMaps(block, 0) });
    if (Number(this.head) >= encoding.heads) this.head = "best";
    this.suggested = encoding.placeOf(encoding.pinned ?? likelyPatch(block, encoding));
    this.stage.show(encoding);
    this.brush.encoded(encoding, block, this.stage.photo);
    const methods = Object.entries(METHODS).map(([key, [label]]) => ({ key, label }));
    const heads = this.attention.map((_, head) => ({ key: String(head), label: `Head ${head}`, color }));
    this.methods.open(encoding, methods);
    this.heads.open(encoding, [{ key: "best", label: "Best", color }, { key: "mean", label: "Mean", color }, ...heads]);
  }

  // ---- clicks and strokes

  get method() {
    return this.settings.method in METHODS ? this.settings.method : "click";
  }

  /** Show what a click selects at the cursor, or a suggestion before the first click. */
  point() {
    const { stage, brush } = this;
    brush.ring();
    if (this.method !== "click") return;
    const place = stage.cursor ?? (brush.painting.empty ? this.suggested : null);
    const selects = brush.preview(place);
    if (!selects) stage.draw([], this.encoding);
    stage.mark(selects && !stage.cursor ? [{ ...place, color: "#fff", number: "" }] : []);
  }

  press(place, alt) {
    this.settings.method = "click";
    this.brush.press(place, alt);
  }

  drawn() {
    this.brush.outline();
    this.render();
  }

  /** Save the mask at the size of the image: "mask.png", "cutout.png" or "mask.json". @param {string} file */
  async save(file) {
    const { encoding, brush, stage } = this;
    const { labels } = brush.painting;
    if (!labels) return this.refuse("Nothing is marked yet: click the object first.");
    const { values } = resized(labels, { rows: encoding.height, columns: encoding.width });
    const name = `${encoding.name.replace(/\.[^.]*$/, "")}-${file}`;
    if (file === "mask.json") save(cocoFile(values, encoding), name);
    else save(await imageFile(values, encoding, file === "cutout.png" && stage.photo), name);
  }

  // ---- questions to the server

  /** The fields of a method that its result depends on. */
  fields(method = this.method) {
    return method === "maskcut" ? { method, count: this.settings.count } : { method };
  }

  get recipe() {
    const { mass, refined } = this.settings;
    const head = this.head === "best" ? this.bestHead : this.head;
    return { ...this.fields(), head, mass: mass / 100, refined };
  }

  /** The view as arguments of `app.objects.Recipe`, with token and name. */
  get request() {
    return this.encoding && { ...this.recipe, token: this.encoding.token, name: this.encoding.name };
  }

  /** The fields of what the server computes; null if the browser can compute it. */
  get needed() {
    if (this.method === "click") return null;
    if (this.settings.refined) return this.recipe;
    return this.method === "attention" ? null : this.fields();
  }

  /** The question to the server, with the key of its answer. */
  get wanted() {
    const { needed } = this;
    return this.encoding && needed && { ...needed, token: this.encoding.token, key: JSON.stringify(needed) };
  }

  search() {
    const { wanted } = this;
    if (!wanted || this.found.has(wanted.key) || this.asking === wanted.key) return;
    this.asking = wanted.key;
    this.emit("edited", {});
    this.render(false);
  }

  /** Take an answer of the server, unless it is about another image. */
  receive() {
    const { found } = this.props;
    if (!found || found.token !== this.encoding?.token) return;
    const { rows, columns, runs, seeds, key } = found;
    this.found.set(key, { rows, columns, seeds, values: fromRuns(runs, rows * columns) });
    if (this.asking === key) this.asking = "";
    this.render();
  }

  /** The server has refused: the next change asks again. */
  failed() {
    this.asking = "";
    this.render(false);
  }

  // ---- masks

  /** Return the kept patches of every head and of the mean. @returns {Map<string, Labels>} */
  get masks() {
    const { attention, encoding, settings } = this;
    const maps = new Maps(attention, { mass: settings.mass / 100 });
    const { rows, columns } = encoding;
    const mask = (key) => /** @type {const} */ ([key, { rows, columns, values: maps.kept(key) }]);
    const heads = attention.map((_, head) => mask(String(head)));
    const drawn = this.brush.painting.labels;
    this.bestHead = drawn ? best(new Map(heads), drawn) : "mean";
    return new Map([...heads, mask("mean"), ["best", mask(this.bestHead)[1]]]);
  }

  /** Return the labels of a method; undefined if they are not computed yet. @param {Map<string, Labels>} masks */
  labelsOf(method, masks) {
    if (method === "click") return this.brush.painting.labels;
    return method === "attention" ? masks.get(this.head) : this.found.get(JSON.stringify(this.fields(method)));
  }

  /** Return the labels on the stage. */
  labels(masks = this.masks) {
    if (this.method === "click") return undefined;
    const { needed } = this;
    return (needed && this.found.get(JSON.stringify(needed))) || this.labelsOf(this.method, masks);
  }

  // ---- drawing

  chooseHead(head) {
    this.head = head;
    this.render();
  }

  /** @param {boolean} search  whether to ask the server for what is missing */
  render(search = true) {
    if (!this.encoding) return;
    const { masks, brush, method, settings } = this;
    const labels = this.labels(masks);
    const drawn = brush.painting.labels;
    brush.reach = settings.reach / 100;
    brush.lights = method === "click";
    this.element.dataset.method = method;
    this.tools.apply();
    for (const [key, tile] of this.heads.tiles) paintTile(tile, masks.get(key), drawn);
    for (const [key, tile] of this.methods.tiles)
      paintTile(tile, key === method && labels ? labels : this.labelsOf(key, masks), drawn);
    this.methods.mark(method);
    this.heads.mark(this.head);
    this.heads.element.hidden = method !== "attention";
    brush.show();
    this.paint(labels);
    this.showScores(labels, drawn);
    if (search) this.ask();
  }

  /** Draw the labels on the stage, with their outlines and seeds. @param {Labels} labels */
  paint(labels) {
    const { stage, encoding } = this;
    const color = (number) => css(COLORS.objects[number - 1]);
    if (labels) stage.canvas.labels(labels, COLORS.objects);
    else stage.canvas.clear();
    const outlines = numbers(labels).map((number) => ({ path: outlinePath(labels, number), color: color(number) }));
    stage.draw(outlines, labels ?? encoding);
    const seeds = labels?.seeds ?? [];
    stage.mark(seeds.map(([row, column], at) => ({ ...encoding.placeOf({ row, column }), color: color(at + 1) })));
    this.point();
  }

  /** Write one line per object, and for several objects one for all. @param {Labels} labels @param {Labels} drawn */
  showScores(labels, drawn) {
    const found = numbers(labels);
    const line = (name, number, color) => {
      const score = drawn ? jaccard(labels, drawn, drawn, number).toFixed(3) : "draw a mask";
      return [name, percent(area(labels, number)), score, color];
    };
    const lines = found.map((number) => line(`Object ${number}`, number, COLORS.objects[number - 1]));
    if (found.length > 1) lines.push(line("All objects", 0));
    if (this.method === "click" && !drawn) lines.push(["Click an object", "", ""]);
    else if (this.method !== "click" && !labels) lines.push([this.asking ? "Computing …" : "Not found", "", ""]);
    else if (labels && !found.length) lines.push(line("No object found", 0));
    if (drawn) lines.push(["Your mask", percent(area(drawn)), ""]);
    this.scores.replaceChildren(...lines.map((cells) => scoreLine(cells)));
    this.spoken.textContent = lines.map((words) => words.slice(0, 3).filter(Boolean).join(", ")).join(". ");
    const numbersAre = drawn ? "Jaccard similarity with your mask" : "share of the image";
    const attention =
      this.method === "attention" ? ` Best: ${drawn ? `head ${this.bestHead}` : "needs your mask"}.` : "";
    this.help.textContent = `${METHODS[this.method][1]} Numbers: ${numbersAre}.${attention}`;
  }
}

/** @param {any[]} cells */
function scoreLine([name, share, score, color]) {
  const swatch = color ? { class: "lab-swatch", style: `--pin: ${css(color)}` } : {};
  return el("tr", {}, el("th", { scope: "row", ...swatch }, name), el("td", {}, share), el("td", {}, score));
}

/** Draw labels on a tile, with their similarity to the mask by hand, or their area. */
function paintTile({ canvas, note }, labels, drawn) {
  note.textContent = !labels ? "" : drawn ? jaccard(labels, drawn).toFixed(2) : percent(area(labels));
  if (labels) canvas.labels(labels, COLORS.objects);
  else canvas.clear();
}

/** List the numbers of the objects. @param {Labels} labels */
function numbers(labels) {
  return Array.from({ length: labels ? countOf(labels) : 0 }, (_, index) => index + 1);
}
