// The tab Compare: one photograph seen by two models, one cursor, one drawn mask; all numbers are computed here.

import { find, controls } from "../../dom.js";
import { percent } from "../../maths/format.js";
import { area, best, jaccard } from "../../maths/labels.js";
import { displayRange, within } from "../../maths/levels.js";
import { joined } from "../../maths/maps.js";
import { keepDrawn } from "../../server.js";
import { Tab } from "../../tab.js";
import { render } from "../../vendor/lit-html.js";
import { Brush } from "../../widgets/brush.js";
import { drawingKeys, drawingTools } from "../../widgets/drawing.js";
import { modelOptions } from "../../widgets/header.js";
import { Viewer } from "../../widgets/viewer.js";

const MASK_COLOR = [86, 180, 233]; // of either side: colours tell heads apart, not models
const WHITE = [[255, 255, 255]];
const LONGEST = 1024; // cells of the long side at which two masks are compared

export default class Comparison extends Tab {
  /** @param {HTMLElement} root @param {Lab} lab */
  constructor(root, lab) {
    super(root, lab);
    this.form = this.find(".lab-tools");
    this.tools = controls(this.form);
    /** @type {Place | null} */
    this.place = null; // that is asked about; null: [CLS]
    this.sides = this.findAll(".compare-side").map((element) => new Side(element, this));
    this.listen();
  }

  listen() {
    const { lab, tools } = this;
    drawingTools(
      this.form,
      this.sides.map(({ brush }) => brush),
      this.asker,
    );
    this.form.addEventListener("input", () => {
      lab.note({ mass: Number(tools.mass.value), layer: tools.layer.value });
      if (tools.quantity.value !== this.quantity) lab.change({ quantity: tools.quantity.value });
      else this.render();
    });
    const refresh = () => lab.refreshFacts().then(() => this.listModels());
    this.onChoose("#other", (other) => lab.change({ other }), refresh);
    this.onPress(".compare-paper", () => this.asInThePaper());
    this.onDownload(() => this.download());
  }

  /** Likeness or attention; whatever else Explore was asked for has no masks to compare. */
  get quantity() {
    return this.lab.state.quantity === "likeness" ? "likeness" : "attention";
  }

  listModels() {
    render(modelOptions(this.lab, this.lab.state.other), this.find("#other"));
  }

  // ---- what the lab says

  async look() {
    const { lab } = this;
    const { question } = lab;
    const { other } = lab.state;
    this.listModels();
    const brought = await this.asker.ask(
      async (listening) => {
        const left = await lab.open(listening);
        const right = await lab.encode({ ...question, photo: left.photo, model: other }, listening);
        const blocks = await Promise.all([left, right].map((one) => one.block(undefined, listening.signal)));
        return { encodings: [left, right], blocks };
      },
      () => this.fallBack(question),
    );
    if (!brought) return;
    const { encodings, blocks } = brought;
    const again = this.sides[0].viewer.encoding?.photo === encodings[0].photo;
    if (!again) this.place = null;
    const painting = lab.drawings.of(encodings[0]); // Segment may have drawn on it
    this.sides.forEach((side, index) => side.open(encodings[index], blocks[index], painting, this.quantity));
    this.tools.layer.value = lab.state.layer;
    this.tools.quantity.value = this.quantity;
    this.tools.mass.value = String(lab.state.mass);
    this.render();
    this.root.dataset.token = encodings.map((/** @type {Encoding} */ { token }) => token).join(" "); // says that both are on the screen
  }

  /** Each list goes back to the model that is seen. @param {Question} refused */
  fallBack(refused) {
    const seen = this.sides[1].viewer.encoding;
    this.lab.note({ other: seen?.model ?? this.lab.start.other });
    this.listModels();
    this.lab.giveWay(refused);
  }

  // ---- what both sides share

  /** @param {Place | null} place */
  point(place) {
    if (place?.x === this.place?.x && place?.y === this.place?.y) return;
    this.place = place;
    this.render();
  }

  /** One painting lies over both pictures. @param {Place} from @param {Place} to @param {Brush} brush */
  stroke(from, to, brush) {
    brush.stroke(from, to);
    for (const side of this.sides) if (side.brush !== brush) side.brush.show();
  }

  /** A stroke has ended, or the mask was changed otherwise. */
  drawn() {
    const { encoding } = this.sides[0].viewer;
    if (!encoding) return;
    for (const { brush } of this.sides) {
      brush.show();
      brush.outline();
    }
    this.lab.drawings.keep(encoding.photo, this.sides[0].brush.painting);
    this.render();
  }

  /** The best head of both models by the drawn mask, each with 60 % of what [CLS] attends to. */
  asInThePaper() {
    this.place = null;
    this.tools.layer.value = "mask";
    this.tools.mass.value = "60";
    this.lab.note({ mass: 60, layer: "mask" });
    for (const side of this.sides) side.chosen = "best";
    if (this.quantity === "attention") this.render();
    else this.lab.change({ quantity: "attention" });
  }

  async download() {
    const [left, right] = this.sides;
    const { width, height, labels } = left.brush.painting;
    const [one, other] = [left, right].map(({ viewer }) => viewer.grid);
    const asked = {
      left: one.token,
      right: other.token,
      left_head: left.head,
      right_head: right.head,
      mass: this.mass,
      name: one.name,
    };
    const drawn = labels && { size: [height, width], runs: left.brush.painting.runs() };
    await keepDrawn("api/compare/figure.png", { ...asked, drawn });
  }

  get mass() {
    return Number(this.tools.mass.value) / 100;
  }

  get drawing() {
    return this.tools.tool.value !== "point";
  }

  /** On the object, where likeness is shown and no place is asked: the left model's. */
  get likelyPlace() {
    const { viewer } = this.sides[0];
    return viewer.likely && viewer.grid.placeOf(viewer.likely);
  }

  render() {
    const [left, right] = this.sides;
    if (!left.viewer.encoding || !right.viewer.encoding) return;
    this.label();
    const { painting } = left.brush;
    this.find(".lab-undo").disabled = !painting.past.length;
    const { layer } = this.tools;
    const place = this.place ?? this.likelyPlace;
    for (const side of this.sides) side.ask(place, { mass: this.mass, layer: layer.value });
    const range = displayRange(joined(this.sides.map((side) => side.map)), "median", false);
    for (const side of this.sides) {
      side.render(range); // one scale: what is brighter is more
      side.viewer.stage.cross(side.viewer.stage.cursor ? null : this.place);
    }
    const agreement = jaccard(left.mask, right.mask, commonSize(left.viewer.encoding));
    const hint = painting.empty ? " Draw the object, and each model's best head is chosen by it." : "";
    const words = `Jaccard similarity of the two masks: ${agreement.toFixed(3)}.`;
    this.find(".compare-agreement").textContent = words + hint;
    this.lab.speak(`${this.sides.map(({ words: told }) => told).join(". ")}. ${words}`);
  }
}

/** A gallery with one more tile: the head that agrees best with what is drawn. */
class SideViewer extends Viewer {
  bestHead = "mean";
  /** @type {Labels | null} */
  drawn = null;

  /** @param {Labels | null} drawn @param {Maps} maps */
  seek(drawn, maps) {
    this.drawn = drawn;
    const masks = new Map(maps.heads.map((_, head) => [String(head), this.masked(maps, String(head))]));
    this.bestHead = drawn && this.asked.heads ? best(masks, drawn) : "mean";
  }

  /** @param {string} key */
  resolve(key) {
    return key === "best" ? this.bestHead : key;
  }

  colorOf() {
    return MASK_COLOR;
  }

  /** @param {string} key */
  note(key) {
    const mask = this.masked(/** @type {Maps} */ (this.maps), this.resolve(key));
    return this.drawn ? jaccard(mask, this.drawn).toFixed(2) : percent(area(mask));
  }

  /** @param {Maps} maps @param {string} key @returns {Labels} */
  masked(maps, key) {
    const { rows, columns } = this.grid;
    return { rows, columns, values: maps.kept(key) };
  }
}

/** One model's view of the photograph. */
class Side {
  /** @param {HTMLElement} element @param {Comparison} tab */
  constructor(element, tab) {
    this.find = (/** @type {string} */ selector) => find(element, selector);
    this.tab = tab;
    this.chosen = "best"; // or "mean", the number of a head
    this.words = "";
    /** @type {Maps | null} */
    this.maps = null;
    const { lab } = tab;
    this.viewer = new SideViewer(
      element,
      lab.facts.colors,
      {
        drawn: () => this.describe(),
        choose: (key) => {
          this.chosen = key;
          tab.render();
        },
        point: (patch) => tab.point(patch && this.viewer.grid.placeOf(patch)),
        press: (patch) => tab.point(this.viewer.grid.placeOf(patch)),
      },
      {},
    );
    const { stage } = this.viewer;
    /** @type {Brush} */
    this.brush = new Brush(stage, WHITE, () => tab.drawn());
    const { point, leave } = stage.on;
    Object.assign(stage.on, {
      point: (/** @type {Place} */ place) => (tab.drawing ? this.brush.ring() : point?.(place)),
      leave: () => {
        this.brush.ring(false);
        leave?.();
      },
      stroke: (/** @type {Place} */ from, /** @type {Place} */ to) => tab.stroke(from, to, this.brush),
      lift: () => tab.drawn(),
      rest: () => tab.point(null),
      look: (/** @type {View} */ view) => {
        for (const side of tab.sides) if (side !== this) side.viewer.stage.look(view);
      },
      ...drawingKeys(() => this.brush),
    });
  }

  /** @param {Encoding} encoding @param {any} block @param {Painting} painting @param {string} quantity */
  open(encoding, block, painting, quantity) {
    const heads = Array.from({ length: encoding.heads }, (_, head) => String(head));
    if (!["best", "mean", ...heads].includes(this.chosen)) this.chosen = "best";
    const shows = [
      { key: "best", label: "Best" },
      { key: "mean", label: "Mean" },
      ...heads.map((key) => ({ key, label: `Head ${key}` })),
    ];
    this.viewer.open(encoding, block, quantity, shows);
    this.find(".lab-tiles").hidden = !this.viewer.asked.heads;
    this.brush.open(painting);
    this.brush.outline();
    const title = this.find("h2");
    if (!title.querySelector("select")) title.textContent = encoding.model;
    this.find(".lab-banner").hidden = !encoding.random;
  }

  /** Compute what is asked of a place. @param {Place | null} place @param {{ mass: number, layer: string }} settings */
  ask(place, settings) {
    const { viewer } = this;
    viewer.hovered = null;
    const patch = place && viewer.grid.patchAt(place);
    Object.assign(viewer.settings, settings, { patch });
    this.maps = viewer.mapsOf(patch);
    viewer.seek(this.brush.painting.labels, this.maps);
  }

  /** The map that is shown. */
  get map() {
    return /** @type {Maps} */ (this.maps).map(this.head);
  }

  /** Draw everything. @param {[number, number]} range  of values that both sides show */
  render(range) {
    this.viewer.set({ show: this.chosen, range });
  }

  /** What is chosen stands for. */
  get head() {
    return this.viewer.resolve(this.chosen);
  }

  /** The mask that is shown. */
  get mask() {
    return this.viewer.masked(/** @type {Maps} */ (this.viewer.maps), this.head);
  }

  describe() {
    const { viewer, tab, mask } = this;
    const { rows, columns } = viewer.grid;
    const { patch } = viewer;
    const { labels } = this.brush.painting;
    const { heads } = viewer.asked;
    const head = !heads ? "All heads" : this.head === "mean" ? "Mean of the heads" : `Head ${this.head}`;
    const of = heads ? "the attention" : "the likeness";
    const score = labels ? ` · Jaccard with your mask ${jaccard(mask, labels).toFixed(3)}` : "";
    this.find(".lab-where").textContent =
      (patch ? `Row ${patch.row}, column ${patch.column}` : "[CLS], the whole picture") +
      ` of ${rows} × ${columns} patches`;
    this.words = `${head}: ${percent(tab.mass)} of ${of} on ${percent(area(mask))} of the picture${score}`;
    this.find(".lab-what").textContent = this.words;
  }
}

/** Rows and columns at which masks of several grids are compared: the photograph's own, up to a limit. @param {Encoding} encoding */
function commonSize({ width, height }) {
  const size = within({ width, height }, LONGEST / Math.max(width, height));
  return { rows: size.height, columns: size.width };
}
