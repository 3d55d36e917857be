// An image with objects that were clicked, drawn or found: `app.views.view`.
//
// The mask that attention keeps is computed in the browser. Other methods and refined edges are computed by the
// server: the view emits "edited", the server reads `searchRequest`, and the prop `found` repeats its key.

import { attentionMaps, likelyPatch } from "../maths/attention.js";
import { css, percent } from "../maths/format.js";
import { area, countOf, jaccard, outlinePath, resized } from "../maths/labels.js";
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
const SETTINGS = { method: "click", mass: 60, count: 3, refined: false };
const LONG_SIDE = 1024; // cells of a mask
const KEYS =
  "Move with the arrow keys and press Enter to add the object. C adds, X subtracts, B draws and E erases; Enter then uses the tool. Control Z undoes.";

export class MaskView extends Editor {
  attention = []; // of [CLS], a map per head; its mask is that of their mean
  found = new Map(); // by question
  pendingKey = ""; // key of the request that is not answered yet
  suggested = null;
  methods = new Tiles("Method", (method) => this.set({ method }), "lab-methods");
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
    const { stage, help, methods, table } = this;
    this.mount("value", stage.cell, this.asideOf(methods.element, help, table));
  }

  open(encoding, block) {
    super.open(encoding, block);
    this.searchSoon.cancel();
    Object.assign(this, { pendingKey: "", found: new Map(), attention: attentionMaps(block, 0) });
    if (!this.choices.some(({ key }) => key === this.settings.method)) this.settings.method = "click"; // of an address
    this.suggested = encoding.placeOf(encoding.pinned ?? likelyPatch(block, encoding));
    this.take(encoding.source, () => new Painting(fitted(encoding, LONG_SIDE)));
    this.methods.open(
      encoding,
      this.choices.map(({ key, label }) => ({ key, label })),
    );
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

  /** The view as arguments of a download. */
  get request() {
    const { encoding, settings } = this;
    return encoding && { ...settings, mass: settings.mass / 100, token: encoding.token, name: encoding.name };
  }

  /** Return the fields that the labels of a method depend on; null if the browser computes them. */
  question(method, refined = false) {
    const { count, mass } = this.settings;
    if (method === "click" || (method === "attention" && !refined)) return null;
    const { needs } = this.choice(method);
    return { method, refined, ...(needs.includes("mass") && { mass: mass / 100 }), ...(needs.includes("count") && { count }) }; // prettier-ignore
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
    const { rows, columns, runs, key } = found;
    this.found.set(key, { rows, columns, values: fromRuns(runs, rows * columns) });
    if (this.pendingKey === key) this.pendingKey = "";
    this.render();
  }

  /** The server has refused: the next change sends a new request. */
  failed() {
    this.pendingKey = "";
    this.render(false);
  }

  /** Return the labels of a method; undefined if they are not computed yet. @returns {Labels} */
  labelsOf(method, refined = false) {
    if (method === "click") return this.painting.labels;
    const found = this.found.get(JSON.stringify(this.question(method, refined)));
    if (found || method !== "attention") return found ?? (refined ? this.labelsOf(method) : undefined);
    const { attention, encoding, settings } = this;
    const { rows, columns } = encoding;
    return { rows, columns, values: new Maps(attention, { mass: settings.mass / 100 }).kept("mean") };
  }

  /** Return the labels on the stage; undefined for the mask by hand. */
  labels() {
    const { method, refined } = this.settings;
    return method === "click" ? undefined : this.labelsOf(method, refined);
  }

  /** @param {boolean} search  request missing masks from the server */
  render(search = true) {
    if (!this.encoding) return;
    const { method } = this.settings;
    const labels = this.labels();
    const drawn = this.painting.labels;
    this.lights = method === "click";
    this.element.dataset.method = method;
    this.element.dataset.needs = this.choice(method).needs.join(" ");
    for (const [key, tile] of this.methods.tiles)
      tile.canvas.labels(key === method && labels ? labels : this.labelsOf(key), COLORS.objects);
    this.methods.mark(method);
    this.showMask();
    this.paint(labels);
    this.showScores(labels, drawn);
    if (this.props.address) write({ method }, this.start);
    if (search) this.searchSoon();
  }

  /** Draw the labels on the stage, with their outlines. @param {Labels} labels */
  paint(labels) {
    const { stage } = this;
    const color = (number) => css(COLORS.objects[number - 1]);
    stage.canvas.labels(labels, COLORS.objects);
    const outlines = numbers(labels).map((number) => ({ path: outlinePath(labels, number), color: color(number) }));
    stage.draw(outlines, labels);
    stage.mark([]);
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
    const row = (/** @type {any[]} */ [name, share, score, color]) => {
      const swatch = color ? { class: "lab-swatch", style: `--pin: ${css(color)}` } : {};
      return el("tr", {}, el("th", { scope: "row", ...swatch }, name), el("td", {}, share), el("td", {}, score));
    };
    this.scores.replaceChildren(...lines.map(row));
    this.spoken.textContent = lines.map((cells) => cells.slice(0, 3).filter(Boolean).join(", ")).join(". ");
    const hand = drawn ? `Your mask: ${percent(area(drawn))} of the image` : "Click the object";
    const objects = labels ? `${found.length} ${found.length === 1 ? "object" : "objects"}` : lines[0]?.[0];
    this.status.textContent = method === "click" ? hand : `${this.choice(method).label}: ${objects}`;
    this.help.textContent = this.choice(method).help;
  }
}

function numbers(labels) {
  return Array.from({ length: labels ? countOf(labels) : 0 }, (_, index) => index + 1);
}
