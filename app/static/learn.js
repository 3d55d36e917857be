// The tab Learn: eight steps, each of which sets the stage, says what to try, and ends with a question.
//
// The words stand in learn.html. An <output data-live="…"> there is filled with what is true of the picture shown.

import { Alert } from "./alert.js";
import { LineChart, figure } from "./chart.js";
import { Refusal } from "./encoding.js";
import { percent } from "./format.js";
import { Questions, Viewer } from "./viewer.js";

const EXAMPLE = "cat";
const TRAINED = "embedded";
const RANDOM = "random:embedded";
const PAPER = "https://arxiv.org/pdf/2104.14294v2"; // whose sections can be linked to, as #subsection.3.2

/** How each step sets the stage; `tiles` offers the heads, `controls` names what else can be moved. */
const STEPS = {
  patches: { title: "Patches", settings: { maps: false } },
  heads: { title: "Heads", settings: { show: "heads" }, tiles: true },
  patch: { title: "A patch", settings: { show: "mean" }, tiles: true, asks: true },
  mask: { title: "Masks", settings: { layer: "mask" }, narrowest: true, tiles: true, controls: ["mass"] },
  supervised: { title: "Labels", settings: { layer: "mask" }, narrowest: true, tiles: true },
  blocks: { title: "Blocks", settings: { show: "mean" }, tiles: true, controls: ["block"] },
  random: { title: "Random", settings: { show: "mean" }, tiles: true, controls: ["model"] },
  teacher: { title: "Teacher", curves: true },
};
const ORDER = Object.keys(STEPS);
const PLAIN = { show: "mean", layer: "heat", mass: 0.6, maps: true, patch: null };

/** Start the tab inside its component; called once, by the line of script that Gradio runs. */
export function mount({ element, props, watch, send }) {
  const tour = new Tour(element.querySelector(".tour"), props.facts, send.look);
  watch("value", () => tour.questions.answered(props.value));
  tour.go(ORDER[0]);
}

class Tour {
  constructor(root, facts, look) {
    this.root = root;
    this.find = (selector) => root.querySelector(selector);
    this.alert = new Alert(this.find(".lab-alert"));
    this.questions = new Questions(look);
    this.viewer = new Viewer(root, facts, (view) => this.describe(view));
    this.encoded = new Map(); // model -> the server's answer
    this.areas = new Map(); // model -> share of the picture that holds 60 % of the mean map
    this.turn = 0; // counts changes, so that a late answer to an earlier one is dropped
    this.listSteps();
    this.listen();
    root.tour = this; // for the browser's console, and for tests
  }

  listSteps() {
    ORDER.forEach((key, index) => {
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = index + 1;
      button.setAttribute("aria-label", `Step ${index + 1}: ${STEPS[key].title}`);
      button.title = STEPS[key].title;
      button.addEventListener("click", () => this.go(key));
      const item = document.createElement("li");
      item.append(button);
      this.find(".tour-steps ol").append(item);
    });
    for (const link of this.root.querySelectorAll("[data-section]")) {
      Object.assign(link, { href: `${PAPER}#${link.dataset.section}`, target: "_blank", rel: "noopener noreferrer" });
    }
  }

  listen() {
    this.find(".tour-back").addEventListener("click", () => this.turnTo(-1));
    this.find(".tour-next").addEventListener("click", () => this.turnTo(1));
    const { mass, block } = this.inputs;
    mass.addEventListener("input", () => {
      mass.nextElementSibling.value = `${mass.value} %`;
      this.viewer.set({ mass: Number(mass.value) / 100 });
    });
    block.addEventListener("input", () => this.alert.afresh(() => this.showBlock()));
    for (const choice of this.root.querySelectorAll("[name=tour-model]")) {
      choice.addEventListener("change", () => this.alert.afresh(() => this.showModel(choice.value)));
    }
  }

  get inputs() {
    return { mass: this.find("[name=mass]"), block: this.find("[name=block]") };
  }

  turnTo(by) {
    const next = ORDER[ORDER.indexOf(this.step) + by];
    if (!next) return;
    this.go(next);
    this.find(`article[data-step=${next}] h2`).focus({ preventScroll: true });
    this.find(".tour-text").scrollIntoView({ block: "nearest" });
  }

  /** Open a step: its words, its controls, and the stage as it wants it. */
  async go(key) {
    this.step = key;
    const step = STEPS[key];
    for (const article of this.root.querySelectorAll("article")) {
      article.hidden = article.dataset.step !== key;
      for (const answer of article.querySelectorAll("details")) answer.open = false;
      article.querySelector("h2").tabIndex = -1;
    }
    this.root.querySelectorAll(".tour-steps button").forEach((button, index) => {
      if (ORDER[index] === key) button.setAttribute("aria-current", "step");
      else button.removeAttribute("aria-current");
    });
    this.find(".tour-back").disabled = key === ORDER[0];
    this.find(".tour-next").disabled = key === ORDER.at(-1);
    for (const control of this.root.querySelectorAll("[data-control]")) {
      control.hidden = !step.controls?.includes(control.dataset.control);
    }
    this.find(".tour-stage").hidden = Boolean(step.curves);
    this.find(".tour-curves").hidden = !step.curves;
    this.find(".lab-tiles").hidden = !step.tiles;
    await this.alert.afresh(() => (step.curves ? this.showCurves() : this.showStep(step)));
    if (this.step === key) this.root.dataset.step = key; // says that the step is on the screen
  }

  // ---- the stage

  async showStep(step) {
    const turn = ++this.turn;
    if (step.controls?.includes("model")) await this.measureArea(RANDOM);
    await this.measureArea(TRAINED);
    if (turn !== this.turn) return;
    await this.open(TRAINED);
    const { viewer } = this;
    const settings = { ...PLAIN, ...step.settings };
    if (step.narrowest) settings.show = this.byEntropy()[0];
    if (step.asks) settings.patch = { row: viewer.encoding.rows >> 1, column: viewer.encoding.columns >> 1 };
    viewer.set(settings);
    this.resetControls();
    await this.tellLive(step);
  }

  resetControls() {
    const { mass, block } = this.inputs;
    const { blocks } = this.viewer.encoding;
    mass.value = 60;
    mass.nextElementSibling.value = "60 %";
    block.max = block.value = blocks;
    block.nextElementSibling.value = `${blocks} of ${blocks}`;
    this.find(`[name=tour-model][value="${TRAINED}"]`).checked = true;
  }

  async showBlock() {
    const { block } = this.inputs;
    block.nextElementSibling.value = `${block.value} of ${block.max}`;
    await this.viewer.openBlock(Number(block.value) - 1);
  }

  async showModel(model) {
    const turn = ++this.turn;
    await this.measureArea(model);
    if (turn === this.turn) await this.open(model);
  }

  /** Put a model's view of the picture on the stage; asks the server only once for each. Throws a Refusal. */
  async open(model) {
    if (!this.encoded.has(model)) {
      const value = await this.questions.ask({ model, example: EXAMPLE });
      if (value.error) throw new Refusal(value.error);
      this.encoded.set(model, value);
    }
    try {
      await this.viewer.open(this.encoded.get(model));
    } catch (error) {
      this.encoded.delete(model); // forgotten by the server: the next visit asks again
      throw error;
    }
  }

  /** How concentrated a model's mean map is, to be told beside another's. Throws a Refusal. */
  async measureArea(model) {
    if (this.areas.has(model)) return;
    await this.open(model);
    this.viewer.set(PLAIN);
    this.areas.set(model, this.viewer.measure(this.viewer.view(null), "mean").area);
  }

  describe(view) {
    const { patch } = view;
    const { maps } = this.viewer.settings;
    const who = patch ? `Patch row ${patch.row}, column ${patch.column}` : "[CLS]";
    const { area, mass, entropy } = this.viewer.measure(view);
    const what = `${percent(mass)} of the attention on ${percent(area)} of the picture, entropy ${entropy.toFixed(2)} nats`;
    this.find(".tour-seen").textContent = maps ? `${who}: ${what}` : patch ? who : "Point at a patch";
    this.tell({ area: `${percent(area)} of the picture` });
  }

  // ---- figures in the answers

  async tellLive(step) {
    const { viewer } = this;
    const { rows, columns, prefix, blocks } = viewer.encoding;
    const patches = rows * columns;
    const heads = this.byEntropy();
    const named = (head) => `head ${head} with ${this.entropyOf(head).toFixed(2)} of ${Math.log(patches).toFixed(2)} nats`;
    this.tell({
      grid: `${columns} × ${rows} = ${patches.toLocaleString("en")}`,
      tokens: (patches + prefix).toLocaleString("en"),
      tokensFiner: (4 * patches + prefix).toLocaleString("en"),
      narrowest: named(heads[0]),
      widest: named(heads.at(-1)),
      mutual: step.asks ? this.mutual(viewer.settings.patch) : "",
      trainedArea: this.areas.has(TRAINED) ? percent(this.areas.get(TRAINED)) : "–",
      randomArea: this.areas.has(RANDOM) ? percent(this.areas.get(RANDOM)) : "–",
    });
    if (!step.controls?.includes("block")) return;
    this.tell({ lastEntropy: `${this.meanEntropy().toFixed(2)} nats` });
    await viewer.openBlock(0);
    this.tell({ firstEntropy: `${this.meanEntropy().toFixed(2)} nats` });
    await viewer.openBlock(blocks - 1);
  }

  entropyOf(head) {
    return this.viewer.measure(this.viewer.view(null), String(head)).entropy;
  }

  /** Numbers of the heads, the most concentrated [CLS] attention first. */
  byEntropy() {
    const view = this.viewer.view(null);
    const entropies = view.heads.map((_, head) => [String(head), this.viewer.measure(view, String(head)).entropy]);
    return entropies.sort((one, other) => one[1] - other[1]).map(([head]) => head);
  }

  meanEntropy() {
    const { heads } = this.viewer.encoding;
    return Array.from({ length: heads }, (_, head) => this.entropyOf(head)).reduce((sum, value) => sum + value) / heads;
  }

  /** What a patch gives to the patch it looks at most, and gets back. */
  mutual(patch) {
    const { columns } = this.viewer.encoding;
    const own = patch.row * columns + patch.column;
    const given = this.viewer.view(patch).maps.get("mean");
    const most = given.reduce((best, share, other) => (other !== own && share > given[best] ? other : best), own ? 0 : 1);
    const partner = { row: Math.floor(most / columns), column: most % columns };
    const back = this.viewer.view(partner).maps.get("mean")[own];
    const place = ({ row, column }) => `row ${row}, column ${column}`;
    return `The patch at ${place(patch)} gives ${percent(given[most])} of its attention, as a mean over the heads, to the one at ${place(partner)}, and gets ${percent(back)} back.`;
  }

  tell(words) {
    for (const [name, text] of Object.entries(words)) {
      for (const place of this.root.querySelectorAll(`[data-live=${name}]`)) place.value = text;
    }
  }

  // ---- the curves of the last step

  async showCurves() {
    this.turn++;
    if (this.chart) return;
    const answer = await fetch(`lab/runs/${TRAINED}`).catch(() => null);
    if (!answer?.ok) throw new Refusal("The log of the embedded model cannot be had: is the server still running?");
    const { curves, phases, steps } = await answer.json();
    this.chart = new LineChart(
      this.find(".tour-curves"),
      {
        title: "Training of this page’s model", unit: "nats",
        curves: [
          { key: "teacher_entropy", label: "Entropy of the teacher" },
          { key: "kl", label: "KL, teacher to student" },
          { key: "ln_k", label: "ln K", dashed: true },
        ],
      },
      (step) => this.chart.point(step),
    );
    const marks = phases.slice(1).map(({ name, start }) => ({ step: start, label: `phase ${name}` }));
    this.chart.draw(curves, { marks, span: [curves.kl.steps[0] ?? 0, Math.max(0, steps - 1)] });
    const last = (name) => figure(curves[name].values.at(-1));
    this.tell({ kl: last("kl"), entropy: last("teacher_entropy"), lnK: last("ln_k") });
  }
}
