// The tab Segment: what attention keeps follows from queries and keys here; LOST, TokenCut, several objects and
// refined edges are asked of the server, for the way that is shown, once for each picture and setting.

import { controls } from "../../dom.js";
import { attentionMaps, keepMass, likelyPatch, meanMap } from "../../maths/attention.js";
import { css, fromBase64, percent } from "../../maths/format.js";
import { area, best, countOf, jaccard, only, outlinePath, resized } from "../../maths/labels.js";
import { rested } from "../../newest.js";
import { Refusal, keepBlob } from "../../server.js";
import { Tab } from "../../tab.js";
import { html, render } from "../../vendor/lit-html.js";
import { Brush } from "../../widgets/brush.js";
import { Clicks } from "../../widgets/clicks.js";
import { drawingKeys, drawingTools } from "../../widgets/drawing.js";
import { Stage } from "../../widgets/stage.js";
import { Tiles } from "../../widgets/tiles.js";

const METHODS = /** @type {Record<string, [string, string]>} */ ({
  click: [
    "Click",
    "Click the object: all that is like this place and hangs together with it is taken. Alt-click takes away, the brush mends.",
  ],
  attention: ["Attention", "The patches that hold most of what [CLS] attends to."],
  lost: ["LOST", "Grown from the patch whose key resembles the fewest others."],
  tokencut: ["TokenCut", "The graph of similar keys, cut in two where it is thinnest."],
  maskcut: ["MaskCut", "Cut, set the object aside, cut what is left."],
});
const CLS = 0; // its token
const WHITE = [[255, 255, 255]]; // of what is drawn by hand
const REST = 150; // milliseconds without change before the server is asked

export default class Segmenter extends Tab {
  /** @param {HTMLElement} root @param {Lab} lab */
  constructor(root, lab) {
    super(root, lab);
    this.finding = lab.asker("segment");
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
      point: () => this.point(),
      leave: () => this.point(),
      press: (place, other) => this.press(place, other),
      stroke: (from, to) => this.brush.stroke(from, to),
      lift: () => this.drawn(),
      ...drawingKeys(() => this.brush),
    });
    /** @type {Brush} */
    this.brush = new Brush(this.stage, WHITE, () => this.drawn());
    this.clicks = new Clicks();
    this.methods = new Tiles(this.find(".lab-methods"), (method) => lab.change({ method }));
    this.heads = new Tiles(this.find(".lab-heads .lab-tiles"), (head) => this.choose(head));
    this.ask = rested(() => this.search(), REST);
    this.listen();
  }

  listen() {
    this.find(".lab-settings").addEventListener("input", () => {
      this.lab.note({ mass: Number(this.settings.mass.value) });
      this.render();
    });
    drawingTools(this.find(".lab-tools"), [this.brush], this.asker);
    this.onPress("[data-drawn]", ({ dataset }) => this.asker.attempt(() => this.keepDrawn(dataset.drawn ?? "")));
    this.onDownload(async (file) => this.encoding?.keep(file, this.recipe));
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
    if (this.encoding !== encoding) {
      this.open(encoding, attentionMaps(block, CLS));
      this.clicks.open(encoding, block, () => this.stage.photo);
      this.suggested = encoding.placeOf(encoding.pinned ?? likelyPatch(block, encoding));
    }
    this.brush.open(lab.drawings.of(encoding)); // Compare may have drawn on it
    this.brush.outline();
    this.settings.mass.value = String(lab.state.mass);
    this.render();
    this.root.dataset.token = encoding.token; // says that the picture is on the screen
  }

  leave() {
    super.leave();
    this.stopSearching();
  }

  stopSearching() {
    this.ask.cancel();
    this.finding.stop();
    this.asking = "";
  }

  /** @param {Encoding} encoding @param {Float32Array[]} heads  where [CLS] looks */
  open(encoding, heads) {
    const color = css(this.colors[0]);
    const tile = (/** @type {string} */ key, /** @type {string} */ label) => ({ key, label, color });
    const keys = heads.map((_, head) => String(head));
    this.stopSearching();
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
    return method in METHODS ? method : "click";
  }

  /** What a click would take where the cursor is; before the first one, what is suggested. */
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
    if (this.method !== "click") this.lab.change({ method: "click" });
    const away = other !== controls(this.find(".lab-tools")).away.checked;
    const { painting } = this.brush;
    painting.remember();
    painting.take(this.clicks.refined(kept), away ? 0 : painting.active);
    this.brush.show();
    this.drawn();
  }

  /** The clicked or drawn mask as a file, at the photograph's own size. @param {string} file */
  async keepDrawn(file) {
    const { encoding, brush } = this;
    const { labels } = brush.painting;
    if (!encoding || !labels) throw new Refusal("Nothing is marked yet: click the object first.");
    const content =
      file === "mask.json"
        ? cocoFile(labels, encoding)
        : await pictureFile(labels, encoding, file === "cutout.png" && this.stage.photo);
    keepBlob(content, `${encoding.name.replace(/\.[^.]*$/, "")}-${file}`);
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
    return method === "maskcut" ? { method, count: Number(this.settings.count.value) } : { method };
  }

  /** What the server is to find for the stage; null where all follows from attention. */
  get wanted() {
    if (this.method === "click") return null;
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
    if (this.method === "click") return { masks, bestHead, labels: undefined };
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
    this.brush.lights = this.method === "click";
    this.brush.show();
    this.heads.choose(this.head);
    this.showObjects(view.labels);
    this.showScores(view.labels);
    this.explain(view.bestHead);
    if (search) this.ask();
  }

  /** What a way that is not shown found before, if it did. @param {string} method @param {Map<string, Labels>} masks */
  foundBy(method, masks) {
    if (method === "click") return this.brush.painting.labels ?? undefined;
    if (method === "attention") return masks.get(this.head);
    const { count } = this.settings;
    return this.found.get(JSON.stringify(method === "maskcut" ? { method, count: Number(count.value) } : { method }));
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
    const byClick = this.method === "click";
    this.clicks.reach = Number(this.settings.reach.value) / 100;
    this.label();
    this.reveal(".lab-reach, [data-drawn]", byClick);
    this.reveal(".lab-refined, [data-download]", !byClick);
    this.reveal(".lab-heads, .lab-mass", this.method === "attention");
    this.reveal(".lab-count", this.method === "maskcut");
    for (const button of this.findAll("[data-drawn]")) button.disabled = this.brush.painting.empty;
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
    this.point();
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
    if (this.method === "click" && !mask) lines.push([null, "Click an object", "", ""]);
    else if (this.method !== "click" && !labels)
      lines.push([null, this.asking || this.finding.newest.busy ? "Looking …" : "Not found", "", ""]);
    else if (labels && !found.length) lines.push([null, "Nothing stands out", "0 %", score(0)]);
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
  const swatch = color ? `--object: ${css(color)}` : "";
  return html`<tr><th scope="row" class=${color ? "lab-swatch" : ""} style=${swatch}>${name}</th>${cells.map((cell) => html`<td>${cell}</td>`)}</tr>`;
}

/** COCO's run lengths of a mask at the photograph's own size, column by column. @param {Labels} labels @param {Encoding} encoding */
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

/** The mask in black and white, or what is inside of a photograph. @param {Labels} labels @param {Encoding} encoding @param {CanvasImageSource | false} photo */
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
