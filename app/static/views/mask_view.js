// An image with objects that were clicked, drawn or found: `app.views.view`.
//
// The mask that attention keeps is computed in the browser. Other methods and refined edges are computed by the
// server: the view emits "edited", the server reads `searchRequest`, and the prop `found` repeats its key.

import { attentionMaps, likelyPatch } from "../maths/attention.js";
import { css, percent } from "../maths/format.js";
import { area, best, countOf, jaccard, outlinePath, resized } from "../maths/labels.js";
import { fitted } from "../maths/levels.js";
import { Maps } from "../maths/maps.js";
import { Painting, fromRuns } from "../maths/painting.js";
import { write } from "./address.js";
import { el } from "./dom.js";
import { Editor } from "./editor.js";
import { maskFormats, section, shownSection } from "./export.js";
import { cutoutFile } from "./files.js";
import { rested } from "./newest.js";
import { COLORS } from "./palette.js";
import { Tiles } from "./tiles.js";

const CLICK = {
  key: "click",
  label: "Click",
  help: "Click an object: the connected patches with similar keys are added. − Click subtracts; draw or erase to correct.",
  needs: [],
};
const SETTINGS = { method: "click", head: "best", mass: 60, count: 3, refined: false }; // head: or "mean", a number
const LONG_SIDE = 1024; // cells of a mask
const KEYS =
  "Move with the arrow keys and press Enter to add the object. C adds, X subtracts, B draws and E erases; Enter then uses the tool. Control Z undoes.";

export class MaskView extends Editor {
  attention = []; // of [CLS], a map per head
  found = new Map(); // by question
  pendingKey = ""; // key of the request that is not answered yet
  bestHead = "mean";
  suggested = null;
  methods = new Tiles("Method", (method) => this.set({ method }), "lab-methods");
  heads = new Tiles("Attention head", (head) => this.set({ head }), "lab-heads");
  scores = el("tbody");
  help = el("p", { class: "lab-soft" });
  searchSoon = rested(() => this.search());

  constructor(mounted) {
    super(mounted, SETTINGS, ["Image with objects: click one, or draw", KEYS]);
    this.element.classList.add("lab-masks");
    const titles = ["Object", "Share", "Jaccard"];
    const header = el("tr", {}, ...titles.map((title) => el("th", { scope: "col" }, title)));
    this.table = el("table", { class: "lab-scores" }, el("thead", {}, header), this.scores);
    this.watch("found", () => this.receive());
    const { stage, help, methods, heads, table } = this;
    this.mount("value", stage.cell, heads.element, this.asideOf(methods.element, help, table));
  }

  open(encoding, block) {
    const color = css(COLORS.objects[0]);
    super.open(encoding, block);
    this.searchSoon.cancel();
    Object.assign(this, { pendingKey: "", found: new Map(), attention: attentionMaps(block, 0) });
    if (Number(this.settings.head) >= encoding.heads) this.settings.head = "best";
    if (!this.choices.some(({ key }) => key === this.settings.method)) this.settings.method = "click"; // of an address
    this.suggested = encoding.placeOf(encoding.pinned ?? likelyPatch(block, encoding));
    this.take(encoding.source, () => new Painting(fitted(encoding, LONG_SIDE)));
    const heads = this.attention.map((_, head) => ({ key: String(head), label: `Head ${head}`, color }));
    this.methods.open(
      encoding,
      this.choices.map(({ key, label }) => ({ key, label })),
    );
    this.heads.open(encoding, [{ key: "best", label: "Best", color }, { key: "mean", label: "Mean", color }, ...heads]);
    this.render();
  }

  /** Show what a click selects, or a suggestion before the first click. */
  point(place = this.stage.cursor) {
    if (this.settings.method !== "click") return void this.showBrush();
    const patches = super.point(place ?? (this.painting.empty ? this.suggested : null));
    this.stage.mark(patches && !place ? [{ ...this.suggested, color: "#fff", number: "" }] : []);
  }

  press(place, subtract) {
    this.settings.method = "click";
    super.press(place, subtract);
  }

  changed() {
    this.render();
  }

  /** The mask by hand, or the objects of a method, which the server writes. */
  sections() {
    const { encoding, painting, stage, settings } = this;
    const shown = shownSection(stage.element);
    const ask = (file) => () => this.ask({ file });
    if (settings.method !== "click")
      return [
        shown,
        section("Objects", [
          ["Labels PNG", "labels.png", ask("labels.png")],
          ["COCO", "masks.json", ask("masks.json")],
        ]),
      ];
    if (painting.empty) return [shown];
    const inside = () => resized(painting.labels, { rows: encoding.height, columns: encoding.width }).values;
    const cutout = () => cutoutFile(inside(), encoding, stage.image);
    const formats = maskFormats(() => painting.labels, encoding);
    return [shown, section("Mask", [...formats, ["Cut-out PNG", "cutout.png", cutout]])];
  }

  /** Clicking, and the methods of `app.handlers.objects.method_choices`. */
  get choices() {
    return [CLICK, ...(this.props.methods ?? [])];
  }

  /** @param {string} method */
  choice(method) {
    return this.choices.find(({ key }) => key === method);
  }

  /** The settings as fields of `app.handlers.objects.ObjectSettings`. */
  get objectSettings() {
    const { method, head, mass, count, refined } = this.settings;
    return { method, count, head: head === "best" ? this.bestHead : head, mass: mass / 100, refined };
  }

  /** The view as arguments of a download. */
  get request() {
    return this.encoding && { ...this.objectSettings, token: this.encoding.token, name: this.encoding.name };
  }

  /** Return the fields that the labels of a method depend on; null if the browser computes them. */
  question(method, refined = false) {
    const { count, head, mass, ...others } = this.objectSettings;
    if (method === "click" || (method === "attention" && !refined)) return null;
    const { needs } = this.choice(method);
    const settings = Object.entries({ attention: { head }, mass: { mass }, count: { count } });
    const needed = Object.assign({}, ...settings.map(([need, value]) => needs.includes(need) && value));
    return { ...(refined && others), method, ...needed };
  }

  /** The question to the server, with the key of its answer. */
  get searchRequest() {
    const { method, refined } = this.settings;
    const question = this.question(method, refined);
    return this.encoding && question && { ...question, token: this.encoding.token, key: JSON.stringify(question) };
  }

  search() {
    const { searchRequest } = this;
    if (!searchRequest || this.found.has(searchRequest.key) || this.pendingKey === searchRequest.key) return;
    this.pendingKey = searchRequest.key;
    this.emit("edited", {});
    this.render(false);
  }

  /** Take an answer of the server, unless it is about another image. */
  receive() {
    const { found } = this.props;
    if (!found || found.token !== this.encoding?.token) return;
    const { rows, columns, runs, seeds, key } = found;
    this.found.set(key, { rows, columns, seeds, values: fromRuns(runs, rows * columns) });
    if (this.pendingKey === key) this.pendingKey = "";
    this.render();
  }

  /** The server has refused: the next change sends a new request. */
  failed() {
    this.pendingKey = "";
    this.render(false);
  }

  /** The kept patches of every head and of the mean. @returns {Map<string, Labels>} */
  get masks() {
    const { attention, encoding, settings } = this;
    const maps = new Maps(attention, { mass: settings.mass / 100 });
    const { rows, columns } = encoding;
    const mask = (key) => /** @type {const} */ ([key, { rows, columns, values: maps.kept(key) }]);
    const heads = attention.map((_, head) => mask(String(head)));
    const drawn = this.painting.labels;
    this.bestHead = drawn ? best(new Map(heads), drawn) : "mean";
    return new Map([...heads, mask("mean"), ["best", mask(this.bestHead)[1]]]);
  }

  /** Return the labels of a method; undefined if they are not computed yet. @param {Map<string, Labels>} masks */
  labelsOf(method, masks, refined = false) {
    if (method === "click") return this.painting.labels;
    const found = this.found.get(JSON.stringify(this.question(method, refined)));
    if (found || !refined) return found ?? (method === "attention" ? masks.get(this.settings.head) : undefined);
    return this.labelsOf(method, masks);
  }

  /** Return the labels on the stage; undefined for the mask by hand. */
  labels(masks = this.masks) {
    const { method, refined } = this.settings;
    return method === "click" ? undefined : this.labelsOf(method, masks, refined);
  }

  /** @param {boolean} search  request missing masks from the server */
  render(search = true) {
    if (!this.encoding) return;
    const { masks, settings } = this;
    const { method } = settings;
    const labels = this.labels(masks);
    const drawn = this.painting.labels;
    this.lights = method === "click";
    this.element.dataset.method = method;
    this.element.dataset.needs = this.choice(method).needs.join(" ");
    for (const [key, tile] of this.heads.tiles) tile.canvas.labels(masks.get(key), COLORS.objects);
    for (const [key, tile] of this.methods.tiles)
      tile.canvas.labels(key === method && labels ? labels : this.labelsOf(key, masks), COLORS.objects);
    this.methods.mark(method);
    this.heads.mark(settings.head);
    this.heads.element.hidden = !this.choice(method).needs.includes("attention");
    this.showMask();
    this.paint(labels);
    this.showScores(labels, drawn);
    if (this.props.address) write({ method }, this.start);
    if (search) this.searchSoon();
  }

  /** Draw the labels on the stage, with their outlines and seeds. @param {Labels} labels */
  paint(labels) {
    const { stage, encoding } = this;
    const color = (number) => css(COLORS.objects[number - 1]);
    stage.canvas.labels(labels, COLORS.objects);
    const outlines = numbers(labels).map((number) => ({ path: outlinePath(labels, number), color: color(number) }));
    stage.draw(outlines, labels);
    const seeds = labels?.seeds ?? [];
    stage.mark(seeds.map(([row, column], at) => ({ ...encoding.placeOf({ row, column }), color: color(at + 1) })));
    this.apply();
  }

  /** Write one line per object, and for several objects one for all. @param {Labels} labels @param {Labels} drawn */
  showScores(labels, drawn) {
    const { method } = this.settings;
    const found = numbers(labels);
    const line = (name, number) => {
      const score = drawn ? jaccard(labels, drawn, drawn, number).toFixed(3) : "draw a mask";
      return [name, percent(area(labels, number)), score, COLORS.objects[number - 1]];
    };
    const lines = found.map((number) => line(`Object ${number}`, number));
    if (found.length > 1) lines.push(line("All objects", 0));
    if (method !== "click" && !labels) lines.push([this.pendingKey ? "Computing …" : "Not found", "", ""]);
    else if (labels && !found.length) lines.push(line("No object found", 0));
    if (drawn) lines.push(["Your mask", percent(area(drawn)), ""]);
    this.table.hidden = !lines.length;
    this.scores.replaceChildren(...lines.map((cells) => scoreLine(cells)));
    this.spoken.textContent = lines.map((cells) => cells.slice(0, 3).filter(Boolean).join(", ")).join(". ");
    const head = drawn ? `head ${this.bestHead}` : "needs your mask";
    const best = method === "attention" ? ` Best: ${head}.` : "";
    const hand = drawn ? `Your mask: ${percent(area(drawn))} of the image` : "Click the object";
    const objects = labels ? `${found.length} ${found.length === 1 ? "object" : "objects"}` : lines[0]?.[0];
    this.status.textContent = method === "click" ? hand : `${this.choice(method).label}: ${objects}`;
    this.help.textContent = `${this.choice(method).help}${best}`;
  }
}

/** @param {any[]} cells */
function scoreLine([name, share, score, color]) {
  const swatch = color ? { class: "lab-swatch", style: `--pin: ${css(color)}` } : {};
  return el("tr", {}, el("th", { scope: "row", ...swatch }, name), el("td", {}, share), el("td", {}, score));
}

function numbers(labels) {
  return Array.from({ length: labels ? countOf(labels) : 0 }, (_, index) => index + 1);
}
