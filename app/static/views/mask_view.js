// An image with objects that were clicked, drawn or found, or with strokes of several classes: `app.views.view`.
//
// The mask that attention keeps is computed in the browser. Other methods, refined edges and the classes of strokes are
// computed by the server: the view emits "edited", the server reads `searchRequest`, and the prop `found` repeats its key.

import { attentionMaps, likelyPatch } from "../maths/attention.js";
import { css, percent } from "../maths/format.js";
import { area, countOf, jaccard, outlinePath, resized } from "../maths/labels.js";
import { fitted } from "../maths/levels.js";
import { Maps } from "../maths/maps.js";
import { Painting, fromRuns } from "../maths/painting.js";
import { write } from "./address.js";
import { el } from "./dom.js";
import { Editor } from "./editor.js";
import { Refusal, fetchBytes } from "./encoding.js";
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
const SCRIBBLES = {
  key: "scribbles",
  label: "Scribbles",
  help: "Draw a few strokes on the background and on each class. After every stroke a k-NN head on the patch features segments this image; the same head applies to all your images.",
  needs: [],
};
const SETTINGS = { method: "click", mass: 60, count: 3, refined: false };
const LONG_SIDE = 1024; // cells of a mask
const STROKES_SIDE = 512; // cells of the strokes
const KEYS =
  "Move with the arrow keys and press Enter to add the object. C adds, X subtracts, B draws and E erases; Enter then uses the tool. Control Z undoes.";

export class MaskView extends Editor {
  attention = []; // of [CLS], a map per head; its mask is that of their mean
  found = new Map(); // by question
  pendingKey = ""; // key of the request that is not answered yet
  suggested = null;
  strokes = 0; // number of the last one
  segmented = ""; // key of the last answer about strokes
  methods = new Tiles("Method", (method) => this.set({ method }), "lab-methods");
  scores = el("tbody");
  help = el("p", { class: "lab-soft" });
  searchSoon = rested(() => this.search());

  constructor(mounted) {
    super(mounted, SETTINGS, ["Image with objects: click one, or draw", KEYS]);
    this.element.classList.add("lab-masks");
    const titles = ["Object", "Share", "Jaccard"];
    const header = el("tr", {}, ...titles.map((title) => el("th", { scope: "col" }, title)));
    this.table = el("table", { class: "lab-scores", hidden: true }, el("thead", {}, header), this.scores);
    this.watch("found", () => this.receive());
    this.startTool(); // of the method in the address
    const { stage, help, methods, table, chips } = this;
    this.mount("value", stage.cell, this.asideOf(methods.element, chips, help, table));
  }

  get scribbles() {
    return this.settings.method === "scribbles";
  }

  set(change) {
    const { scribbles } = this;
    Object.assign(this.settings, change);
    if (!this.encoding) return;
    if (this.scribbles !== scribbles) {
      this.startTool();
      this.takePainting();
    }
    this.render();
  }

  startTool() {
    this.tools.querySelector(`[value=${this.scribbles ? "draw" : "click"}]`)["checked"] = true;
  }

  /** Take the mask by hand, or the strokes. */
  takePainting() {
    const { encoding, scribbles } = this;
    Object.assign(this, { colors: [[255, 255, 255], ...(scribbles ? COLORS.objects : [])], digits: scribbles ? 1 : 0 });
    const strokes = () => new Painting(fitted(encoding, STROKES_SIDE), this.colors.length, [1, 2]);
    if (!scribbles) return this.take(encoding.source, () => new Painting(fitted(encoding, LONG_SIDE)));
    this.take(`strokes ${encoding.token}`, () => Object.assign(strokes(), { encoding }));
    this.listObjects();
  }

  /** Clicking, and the methods of `app.handlers.objects.method_choices`. */
  get choices() {
    return [CLICK, SCRIBBLES, ...(this.props.methods ?? [])];
  }

  /** @param {string} method */
  choice(method) {
    return this.choices.find(({ key }) => key === method);
  }

  /** Return the fields that the labels of a method depend on; null if the browser computes them. */
  question(method, refined = false) {
    const { count, mass } = this.settings;
    if (["click", "scribbles"].includes(method) || (method === "attention" && !refined)) return null;
    const { needs } = this.choice(method);
    return { method, refined, ...(needs.includes("mass") && { mass: mass / 100 }), ...(needs.includes("count") && { count }) }; // prettier-ignore
  }

  /** The question to the server, with the key of its answer. */
  get searchRequest() {
    const { method, refined } = this.settings;
    if (this.scribbles) return this.encoding && this.strokesRequest;
    const question = this.question(method, refined);
    return this.encoding && question && { ...question, token: this.encoding.token, key: JSON.stringify(question) };
  }

  /** Strokes as `app.handlers.scribbles.ScribbleRequest`, the image on the stage first; null without two classes. */
  get strokesRequest() {
    const { painting, encoding } = this;
    const { model, size } = encoding.value;
    const usable = ({ empty, encoding: other }) => !empty && other?.value.model === model && other.value.size === size;
    const others = [...this.paintings.values()].filter((other) => other !== painting && usable(other));
    const images = [painting, ...others];
    const classes = new Set(images.flatMap(({ values }) => [...new Set(values)]));
    classes.delete(0);
    if (classes.size < 2) return null;
    const strokes = (image) => ({
      ...{ token: image.encoding.token, name: image.encoding.name, rows: image.height, columns: image.width },
      runs: image.empty ? [] : image.runs(),
    });
    return { key: `${encoding.token} ${this.strokes}`, images: images.map(strokes) };
  }

  /** The view as arguments of a download. */
  get request() {
    const { encoding, settings } = this;
    if (this.scribbles) return this.strokesRequest;
    return encoding && { ...settings, mass: settings.mass / 100, token: encoding.token, name: encoding.name };
  }

  /** Return the labels of a method; undefined if they are not computed yet. @returns {Labels} */
  labelsOf(method, refined = false) {
    if (method === "scribbles") return this.found.get(this.segmented);
    if (method === "click") return this.scribbles ? undefined : this.painting.labels;
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

  /** The mask by hand, or the objects of a method, which the server writes. */
  sections() {
    const { encoding, painting, stage, settings } = this;
    const shown = shownSection(stage.element);
    /** @returns {Format} */
    const ask = (title, file, own = async () => []) => [title, file, async () => this.ask({ file, own: await own() })];
    if (this.scribbles) {
      const masks = ask("PNG, several as ZIP", "masks.zip", () => window["viewOf"]("images").names());
      const head = ask("safetensors", "head.safetensors");
      return [shown, section("Masks of all your images", [masks]), section("Head for the command line", [head])];
    }
    if (settings.method !== "click")
      return [shown, section("Objects", [ask("Labels PNG", "labels.png"), ask("COCO", "masks.json")])];
    if (painting.empty) return [shown];
    const inside = () => resized(painting.labels, { rows: encoding.height, columns: encoding.width }).values;
    const cutout = () => cutoutFile(inside(), encoding, stage.image);
    const formats = maskFormats(() => painting.labels, encoding);
    return [shown, section("Mask", [...formats, ["Cut-out PNG", "cutout.png", cutout]])];
  }

  open(encoding, block) {
    super.open(encoding, block);
    this.searchSoon.cancel();
    Object.assign(this, { pendingKey: "", segmented: "", found: new Map(), attention: attentionMaps(block, 0) });
    if (!this.choices.some(({ key }) => key === this.settings.method)) this.settings.method = "click"; // of an address
    this.suggested = encoding.placeOf(encoding.pinned ?? likelyPatch(block, encoding));
    this.takePainting();
    const methods = this.choices.map(({ key, label }) => ({ key, label }));
    this.methods.open(encoding, methods);
    this.render();
  }

  /** @param {boolean} search  request missing masks from the server */
  render(search = true) {
    if (!this.encoding) return;
    const { method, refined } = this.settings;
    const labels = this.labels();
    const drawn = this.scribbles ? null : this.painting.labels;
    this.chips.hidden = !this.scribbles;
    this.lights = method === "click";
    this.element.dataset.method = method;
    this.element.dataset.needs = this.choice(method).needs.join(" ");
    for (const [key, tile] of this.methods.tiles)
      tile.canvas.labels(this.labelsOf(key, refined && key === method), COLORS.objects);
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
    const [one, none] = this.scribbles ? ["Class", "Background only"] : ["Object", "No object found"];
    const line = (name, number) => {
      const score = drawn ? jaccard(labels, drawn, drawn, number).toFixed(3) : this.scribbles ? "" : "draw a mask";
      return [name, percent(area(labels, number)), score, COLORS.objects[number - 1]];
    };
    const lines = found.map((number) => line(`${one} ${number}`, number));
    if (found.length > 1 && !this.scribbles) lines.push(line("All objects", 0));
    if (this.scribbles && !labels) lines.push(["Draw on the background and on each class", "", ""]);
    else if (method !== "click" && !labels) lines.push([this.pendingKey ? "Computing …" : "Not found", "", ""]);
    else if (labels && !found.length) lines.push(line(none, 0));
    if (drawn) lines.push(["Your mask", percent(area(drawn)), ""]);
    this.table.hidden = !lines.some(([, share]) => share);
    const row = (/** @type {any[]} */ [name, share, score, color]) => {
      const swatch = color ? { class: "lab-swatch", style: `--pin: ${css(color)}` } : {};
      return el("tr", {}, el("th", { scope: "row", ...swatch }, name), el("td", {}, share), el("td", {}, score));
    };
    this.scores.replaceChildren(...lines.map(row));
    this.spoken.textContent = lines.map((cells) => cells.slice(0, 3).filter(Boolean).join(", ")).join(". ");
    const hand = drawn ? `Your mask: ${percent(area(drawn))} of the image` : "Click the object";
    const objects = labels
      ? `${found.length} ${one.toLowerCase()}${found.length === 1 ? "" : one === "Class" ? "es" : "s"}`
      : lines[0]?.[0];
    this.status.textContent = method === "click" ? hand : `${this.choice(method).label}: ${objects}`;
    this.help.textContent = this.choice(method).help;
  }

  listObjects() {
    super.listObjects((number) => (number === 1 ? "Background" : `Class ${number - 1}`), undefined, "+ Class");
  }

  /** Show what a click selects, or a suggestion before the first click. */
  point(place = this.stage.cursor) {
    if (this.scribbles) return void super.point(place);
    if (this.settings.method !== "click") return void this.showBrush();
    const patches = super.point(place ?? (this.painting.empty ? this.suggested : null));
    this.stage.mark(patches && !place ? [{ ...this.suggested, color: "#fff", number: "" }] : []);
  }

  press(place, subtract) {
    if (!this.scribbles) this.settings.method = "click";
    super.press(place, subtract);
  }

  changed() {
    this.strokes += 1;
    if (this.scribbles && !this.strokesRequest) this.segmented = "";
    this.render();
  }

  async search() {
    const { searchRequest, encoding } = this;
    if (!searchRequest || this.found.has(searchRequest.key) || this.pendingKey === searchRequest.key) return;
    this.pendingKey = searchRequest.key;
    this.emit("edited", {});
    this.render(false);
    try {
      const image = encoding.token.split(".")[0]; // Gradio hides that no server is there
      await fetchBytes(`lab/thumbnails/${image}.jpg?${Date.now()}`); // never from the cache
    } catch (error) {
      if (!(error instanceof Refusal)) throw error;
      this.failed();
      this.refuse(error.message);
    }
  }

  /** Take an answer of the server, unless it is about another image. */
  receive() {
    const { found } = this.props;
    if (!found || found.token !== this.encoding?.token || this.found.has(found.key)) return;
    const { rows, columns, runs, key } = found;
    if (key.startsWith(found.token)) {
      if (key !== `${found.token} ${this.strokes}`) return; // there is a newer stroke
      this.found.delete(this.segmented);
      this.segmented = key;
    }
    this.found.set(key, { rows, columns, values: fromRuns(runs, rows * columns) });
    if (this.pendingKey === key) this.pendingKey = "";
    this.problem.hidden = true; // of a server that was lost
    this.render();
  }

  /** The server has refused: the next change sends a new request. */
  failed() {
    this.pendingKey = "";
    this.render(false);
  }
}

function numbers(labels) {
  return Array.from({ length: labels ? countOf(labels) : 0 }, (_, index) => index + 1);
}
