// An image with objects that were clicked, drawn or found: the view behind `app.views.mask_view`.
//
// The mask that attention keeps follows from queries and keys here. LOST, TokenCut, MaskCut and refined edges are
// computed by the server: the view emits "edited" when `wanted` is missing, and the prop `found` brings the answer, which
// repeats the question. A mask by hand scores all of them.

import { attentionMaps, keepMass, likelyPatch, meanMap } from "../maths/attention.js";
import { css, percent } from "../maths/format.js";
import { area, best, countOf, jaccard, only, outlinePath, resized } from "../maths/labels.js";
import { fromRuns } from "../maths/painting.js";
import { Brush, drawingKeys, drawingTools, drawings, saveBlob } from "./brush.js";
import { Clicks } from "./clicks.js";
import { el, find, style } from "./dom.js";
import { Encoding, Refusal } from "./encoding.js";
import { Newest, rested } from "./newest.js";
import { COLORS } from "./palette.js";
import { Stage } from "./stage.js";
import { Tiles } from "./tiles.js";

const METHODS = /** @type {Record<string, [string, string]>} */ ({
  click: [
    "Click",
    "Click an object: the connected patches with similar keys are added. Alt-click subtracts; the brush corrects.",
  ],
  attention: ["Attention", "The patches with the largest attention of [CLS]."],
  lost: ["LOST", "Grown from the patch whose key is similar to the fewest other keys."],
  tokencut: ["TokenCut", "The graph of similar keys, cut into two parts."],
  maskcut: ["MaskCut", "One object is cut out and set aside, then the next."],
});
const CLS = 0; // its token
const REST = 150; // milliseconds without change before the server is asked
const KEYS =
  "Move with the arrow keys and press Enter to take the object there. With Draw or Erase, Enter uses the brush. Control Z undoes.";

export class MaskView {
  /** @param {Mounted} mounted */
  constructor({ element, props, watch, emit, server = null }) {
    this.element = element;
    this.props = props;
    this.emit = emit;
    this.server = server;
    for (const sheet of ["views.css", "masks.css"]) style(element, new URL(sheet, import.meta.url).href);
    const { method = "click", reach = 90, mass = 60, count = 3, refined = false } = props;
    this.settings = { method, reach, mass, count, refined };
    /** @type {Encoding | null} */
    this.encoding = null;
    /** @type {Map<string, Float32Array>} */
    this.maps = new Map();
    /** @type {Map<string, Labels>} */
    this.found = new Map(); // by question
    this.asking = ""; // the question under way
    this.head = "best"; // or "mean", the number of a head
    this.chosenHead = "mean"; // what `head` stands for
    this.newest = new Newest();
    this.clicks = new Clicks();
    this.colors = COLORS.objects;
    element.classList.add("lab-masks");
    element.replaceChildren(...parts());
    /** @type {Stage} */
    this.stage = new Stage(find(element, ".lab-stage"), {
      point: () => this.point(),
      leave: () => this.point(),
      press: (place, other) => this.press(place, other),
      stroke: (from, to) => this.brush.stroke(from, to),
      lift: () => this.drawn(),
      ...drawingKeys(() => this.brush),
    });
    /** @type {Brush} */
    this.brush = new Brush(this.stage, () => this.drawn());
    this.tools = drawingTools("Click", [this.brush], { away: true, refused: (sentence) => this.refuse(sentence) });
    this.stage.element.after(this.tools.form);
    this.methods = new Tiles(find(element, ".lab-methods"), (method) => this.set({ method }));
    this.heads = new Tiles(find(element, ".lab-heads"), (one) => {
      this.head = one;
      this.render();
    });
    this.ask = rested(() => this.search(), REST);
    this.waiting = false;
    watch("value", () => this.look());
    watch("found", () => this.take());
    new ResizeObserver(() => this.waiting && this.look()).observe(element);
    this.look();
  }

  /** Change settings. @param {Partial<MaskView["settings"]>} settings */
  set(settings) {
    Object.assign(this.settings, settings);
    this.render();
  }

  get visible() {
    return this.element.getClientRects().length > 0;
  }

  // ---- an image

  async look() {
    const { value } = this.props;
    this.waiting = !this.visible;
    if (this.waiting || !value?.token) return;
    const encoding = this.encoding && this.encoding.value === value ? this.encoding : new Encoding(value, this.server);
    try {
      const block = await this.newest.run((signal) => encoding.arrays("attention", encoding.blocks - 1, signal));
      if (!block) return;
      const anew = this.encoding?.token !== encoding.token;
      if (anew) this.open(encoding, block);
      this.brush.open(drawings.of(encoding)); // Compare may have drawn on it
      this.brush.outline();
      find(this.element, ".lab-problem").hidden = true;
      this.render();
      this.element.dataset.token = encoding.token; // says what is on the screen
      if (anew) this.emit("shown", { token: encoding.token });
    } catch (error) {
      if (!(error instanceof Refusal)) throw error;
      this.refuse(error.message);
    }
  }

  /** @param {string} sentence */
  refuse(sentence) {
    Object.assign(find(this.element, ".lab-problem"), { textContent: sentence, hidden: false });
  }

  /** @param {Encoding} encoding @param {any} block */
  open(encoding, block) {
    const heads = attentionMaps(block, CLS);
    const color = css(this.colors[0]);
    const tile = (/** @type {string} */ key, /** @type {string} */ label) => ({ key, label, color });
    const keys = heads.map((_, head) => String(head));
    this.ask.cancel();
    this.asking = "";
    this.encoding = encoding;
    this.found = new Map();
    this.maps = new Map([
      ["mean", meanMap(heads)],
      ...heads.map((map, head) => /** @type {const} */ ([keys[head], map])),
    ]);
    if (!["best", "mean", ...keys].includes(this.head)) this.head = "best";
    this.stage.show(encoding);
    this.clicks.open(encoding, block, () => this.stage.photo);
    this.suggested = encoding.placeOf(encoding.pinned ?? likelyPatch(block, encoding));
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

  // ---- clicks and strokes

  get method() {
    const { method } = this.settings;
    return method in METHODS ? method : "click";
  }

  /** Show what a click would take at the cursor; before the first one, what is suggested. */
  point() {
    const { stage, brush, clicks } = this;
    brush.ring(stage.paints);
    if (this.method !== "click") return;
    const place = stage.cursor ?? (brush.painting.empty ? this.suggested : null);
    const kept = place && !stage.paints ? clicks.proposed(place) : null;
    const { rows, columns } = kept ?? { rows: 1, columns: 1 };
    stage.ink.setAttribute("viewBox", `0 0 ${columns} ${rows}`);
    stage.draw(kept ? [{ path: outlinePath(kept.values, rows, columns), color: "#fff" }] : []);
    stage.mark(kept && !stage.cursor && place ? [{ ...place, color: "#fff", number: "" }] : []);
  }

  /** @param {Place} place @param {boolean} other */
  press(place, other) {
    const kept = this.clicks.proposed(place);
    if (!kept) return;
    const away = other !== this.tools.takesAway();
    const { painting } = this.brush;
    painting.remember();
    painting.take(this.clicks.refined(kept), away ? 0 : painting.active);
    this.settings.method = "click";
    this.brush.show();
    this.drawn();
  }

  /** A stroke has ended, or the mask was changed otherwise. */
  drawn() {
    if (!this.encoding) return;
    drawings.keep(this.encoding);
    this.brush.outline();
    this.render();
  }

  /** Save the mask at the size of the image: "mask.png", "cutout.png" or "mask.json". @param {string} file */
  async save(file) {
    const { encoding } = this;
    const { labels } = this.brush.painting;
    if (!encoding || !labels) return this.refuse("Nothing is marked yet: click the object first.");
    const content =
      file === "mask.json"
        ? cocoFile(labels, encoding)
        : await pictureFile(labels, encoding, file === "cutout.png" && this.stage.photo);
    saveBlob(content, `${encoding.name.replace(/\.[^.]*$/, "")}-${file}`);
  }

  // ---- what the server computes

  /** A method with nothing but what its result depends on. */
  get plain() {
    const { method } = this;
    return method === "maskcut" ? { method, count: this.settings.count } : { method };
  }

  /** What is on the stage: arguments of `app.objects.Recipe`, with token and name. */
  get request() {
    const { mass, refined } = this.settings;
    const { encoding } = this;
    return encoding && { ...this.recipe, mass: mass / 100, refined, token: encoding.token, name: encoding.name };
  }

  get recipe() {
    const { mass, refined } = this.settings;
    return { ...this.plain, head: this.chosenHead, mass: mass / 100, refined };
  }

  /** What the server has to find; null where all follows from attention. */
  get needed() {
    if (this.method === "click") return null;
    if (this.settings.refined) return this.recipe;
    return this.method === "attention" ? null : this.plain;
  }

  /** The question to the server: `needed`, the image and the key of the answer. */
  get wanted() {
    const key = JSON.stringify(this.needed);
    return this.encoding && this.needed && { ...this.needed, token: this.encoding.token, key };
  }

  search() {
    const { wanted } = this;
    if (!wanted || this.found.has(wanted.key) || this.asking === wanted.key) return;
    this.asking = wanted.key;
    this.emit("edited", {});
    this.render(false);
  }

  /** Take an answer; one about another image is dropped. */
  take() {
    const { found } = this.props;
    if (!found || found.token !== this.encoding?.token) return;
    const { rows, columns, runs, seeds, key } = found;
    this.found.set(key, { rows, columns, seeds, values: fromRuns(runs, rows * columns) });
    if (this.asking === key) this.asking = "";
    this.render();
  }

  /** The server refused: it is asked again when the method is chosen again. */
  failed() {
    this.asking = "";
    this.render(false);
  }

  // ---- numbers

  /** The kept patches of the mean and of every head. @returns {Map<string, Labels>} */
  masks() {
    const { rows, columns } = /** @type {Encoding} */ (this.encoding);
    const mass = this.settings.mass / 100;
    return new Map([...this.maps].map(([key, map]) => [key, { rows, columns, values: keepMass(map, mass) }]));
  }

  /** The head whose mask agrees best with the mask by hand. @param {Map<string, Labels>} masks */
  bestHead(masks) {
    const { labels } = this.brush.painting;
    return labels ? best(new Map([...masks].filter(([key]) => key !== "mean")), labels) : "mean";
  }

  /** Masks of every head, and labels of the stage; undefined while they are under way. */
  view() {
    const masks = this.masks();
    const bestHead = this.bestHead(masks);
    this.chosenHead = this.head === "best" ? bestHead : this.head;
    masks.set("best", /** @type {Labels} */ (masks.get(bestHead)));
    if (this.method === "click") return { masks, bestHead, labels: undefined };
    const plain = this.method === "attention" ? masks.get(this.head) : this.found.get(JSON.stringify(this.plain));
    const { needed } = this;
    const labels = (needed && this.found.get(JSON.stringify(needed))) || plain;
    return { masks, bestHead, labels };
  }

  // ---- what is seen

  /** @param {boolean} search  whether what is missing is asked for */
  render(search = true) {
    if (!this.encoding) return;
    const view = this.view();
    const { labels } = this.brush.painting;
    this.clicks.reach = this.settings.reach / 100;
    this.element.dataset.method = this.method;
    find(this.element, ".lab-undo").disabled = !this.brush.painting.past.length;
    for (const [key, { canvas, note }] of this.heads.tiles)
      showTile(canvas, note, view.masks.get(key), labels, this.colors);
    for (const [key, { canvas, note }] of this.methods.tiles) {
      const shown = key === this.method && key !== "click" ? view.labels : this.foundBy(key, view.masks);
      showTile(canvas, note, shown, labels, this.colors);
    }
    this.methods.choose(this.method);
    this.heads.choose(this.head);
    this.brush.lights = this.method === "click";
    this.brush.show();
    this.showObjects(view.labels);
    this.showScores(view.labels);
    this.explain(view.bestHead);
    if (search) this.ask();
  }

  /** What another method found before. @param {string} method @param {Map<string, Labels>} masks */
  foundBy(method, masks) {
    if (method === "click") return this.brush.painting.labels ?? undefined;
    if (method === "attention") return masks.get(this.head);
    const { count } = this.settings;
    return this.found.get(JSON.stringify(method === "maskcut" ? { method, count } : { method }));
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
    const encoding = /** @type {Encoding} */ (this.encoding);
    const seeds = labels?.seeds ?? [];
    stage.mark(
      seeds.map(([row, column], index) => ({ ...encoding.placeOf({ row, column }), color: css(colors[index]) })),
    );
    this.point();
  }

  /** One line per object; of several also one for all of them. @param {Labels | undefined} labels */
  showScores(labels) {
    const mask = this.brush.painting.labels;
    const score = (/** @type {number} */ number) =>
      mask && labels ? jaccard(labels, mask, mask, number).toFixed(3) : "draw a mask or open one";
    const found = numbers(labels);
    /** @type {[number[] | null, ...string[]][]} */
    const lines = found.map((number) => [
      this.colors[number - 1],
      `Object ${number}`,
      percent(area(/** @type {Labels} */ (labels), number)),
      score(number),
    ]);
    if (labels && found.length > 1) lines.push([null, "All objects", percent(area(labels)), score(0)]);
    if (this.method === "click" && !mask) lines.push([null, "Click an object", "", ""]);
    else if (this.method !== "click" && !labels) lines.push([null, this.asking ? "Computing …" : "Not found", "", ""]);
    else if (labels && !found.length) lines.push([null, "No object found", "0 %", score(0)]);
    if (mask) lines.push([null, "Your mask", percent(area(mask)), ""]);
    find(this.element, ".lab-scores tbody").replaceChildren(...lines.map(scoreLine));
    find(this.element, ".lab-spoken").textContent = lines
      .map(([, ...words]) => words.filter(Boolean).join(", "))
      .join(". ");
  }

  /** @param {string} bestHead */
  explain(bestHead) {
    const drawn = !this.brush.painting.empty;
    const number = drawn ? "Numbers: Jaccard similarity with your mask." : "Numbers: share of the image.";
    find(this.element, ".lab-how").textContent = `${METHODS[this.method][1]} ${number}`;
    find(this.element, ".lab-who").textContent =
      bestHead === "mean"
        ? "Best needs a mask of yours; until then it is the mean of the heads."
        : `Best: the head with the highest Jaccard similarity, head ${bestHead}.`;
  }
}

/** The elements of the view, from top to bottom. */
function parts() {
  const stage = {
    class: "lab-stage",
    tabindex: 0,
    role: "application",
    "aria-label": "Image with objects: click one, or draw",
    "aria-description": KEYS,
  };
  const head = (/** @type {string} */ title) => el("th", { scope: "col" }, title);
  return [
    el("p", { class: "lab-problem", role: "alert", hidden: true }),
    el("div", stage),
    el(
      "table",
      { class: "lab-scores" },
      el("thead", {}, el("tr", {}, head("Object"), head("Share of the image"), head("Jaccard with your mask"))),
      el("tbody"),
    ),
    el("p", { class: "lab-how" }),
    el("div", { class: "lab-tiles lab-methods", role: "radiogroup", "aria-label": "Method" }),
    el("p", { class: "lab-who" }),
    el("div", { class: "lab-tiles lab-heads", role: "radiogroup", "aria-label": "Attention head" }),
    el("p", { class: "lab-spoken", "aria-live": "polite" }),
  ];
}

/** Labels over a small image, and one number: Jaccard similarity with the mask by hand, or else the area.
 * @param {PatchCanvas} canvas @param {HTMLElement} note
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
  const swatch = color ? { class: "lab-swatch", style: `--object: ${css(color)}` } : {};
  return el("tr", {}, el("th", { scope: "row", ...swatch }, name), ...cells.map((cell) => el("td", {}, cell)));
}

/** COCO run lengths of a mask at the size of the image, column by column. @param {Labels} labels @param {Encoding} encoding */
function cocoFile(labels, { width, height }) {
  const { values } = resized(labels, { rows: height, columns: width });
  const counts = [0];
  for (let column = 0, before = 0; column < width; column++) {
    for (let row = 0; row < height; row++) {
      const inside = values[row * width + column] ? 1 : 0;
      if (inside !== before) counts.push(0);
      counts[counts.length - 1]++;
      before = inside;
    }
  }
  return new Blob([JSON.stringify({ size: [height, width], counts })], { type: "application/json" });
}

/** The mask in black and white, or the inside of an image. @param {Labels} labels @param {Encoding} encoding @param {CanvasImageSource | false} photo */
function pictureFile(labels, { width, height }, photo) {
  const canvas = new OffscreenCanvas(width, height);
  const context = /** @type {OffscreenCanvasRenderingContext2D} */ (canvas.getContext("2d"));
  if (photo) context.drawImage(photo, 0, 0, width, height);
  const image = context.getImageData(0, 0, width, height);
  resized(labels, { rows: height, columns: width }).values.forEach((inside, pixel) => {
    if (!photo) image.data.fill(inside ? 255 : 0, 4 * pixel, 4 * pixel + 3);
    image.data[4 * pixel + 3] = photo && !inside ? 0 : 255;
  });
  context.putImageData(image, 0, 0);
  return canvas.convertToBlob({ type: "image/png" });
}
