// The tab Learn: eight steps over the header's photograph, each of which sets the stage, says what to try, and ends
// with a question.
//
// The words stand in learn.html. An <output data-live="…"> there is filled with what is true of the picture shown.

import { attentionMaps, entropy, keepMass, keptShares, meanMap } from "../../maths/attention.js";
import { figure, percent } from "../../maths/format.js";
import { rested } from "../../newest.js";
import { askData } from "../../server.js";
import { Tab } from "../../tab.js";
import { html, render } from "../../vendor/lit-html.js";
import { LineChart } from "../../widgets/chart.js";
import { Viewer } from "../../widgets/viewer.js";

/**
 * @typedef {object} Step
 * @property {string} name
 * @property {string} title
 * @property {object} [settings]  of the stage
 * @property {boolean} [narrowest]  it shows the head with the least entropy
 * @property {boolean} [tiles]  it offers the heads
 * @property {boolean} [asks]  it asks the patch in the middle
 * @property {string[]} [controls]  what else can be moved
 * @property {boolean} [curves]  charts in the place of the picture
 */

const TRAINED = "embedded";
const RANDOM = "random:embedded";
const PAPER = "https://arxiv.org/pdf/2104.14294v2"; // whose sections can be linked to, as #subsection.3.2
const MASS = 0.6;
const REST = 150; // milliseconds after which a slider's block is fetched

/** @type {Step[]} */
const STEPS = [
  { name: "patches", title: "Patches", settings: { maps: false } },
  { name: "heads", title: "Heads", settings: { show: "heads" }, tiles: true },
  { name: "patch", title: "A patch", tiles: true, asks: true },
  { name: "mask", title: "Masks", settings: { layer: "mask" }, narrowest: true, tiles: true, controls: ["mass"] },
  { name: "supervised", title: "Labels", settings: { layer: "mask" }, narrowest: true, tiles: true },
  { name: "blocks", title: "Blocks", tiles: true, controls: ["block"] },
  { name: "random", title: "Random", tiles: true, controls: ["model"] },
  { name: "teacher", title: "Teacher", curves: true },
];
const PLAIN = { show: "mean", layer: "heat", mass: MASS, maps: true, patch: null };
const CURVES = {
  title: "Training of this page’s model",
  unit: "nats",
  curves: [
    { key: "teacher_entropy", label: "Entropy of the teacher" },
    { key: "kl", label: "KL, teacher to student" },
    { key: "ln_k", label: "ln K", dashed: true },
  ],
};

export default class Tour extends Tab {
  /** @param {HTMLElement} root @param {Lab} lab */
  constructor(root, lab) {
    super(root, lab);
    this.viewer = new Viewer(root, lab.facts.colors, { drawn: () => this.describe() });
    this.chart = new LineChart(this.find(".tour-curves"), CURVES, (step) => this.chart.point(step));
    this.seek = rested(() => this.bring(TRAINED, Number(this.inputs.block.value) - 1), REST);
    this.listen();
  }

  listen() {
    const { mass, block } = this.inputs;
    for (const link of this.findAll("[data-section]")) {
      Object.assign(link, { href: `${PAPER}#${link.dataset.section}`, target: "_blank", rel: "noopener noreferrer" });
    }
    this.onPress(".tour-back", () => this.turn(-1));
    this.onPress(".tour-next", () => this.turn(1));
    mass.addEventListener("input", () => this.viewer.set({ mass: Number(mass.value) / 100 }));
    block.addEventListener("input", () => this.seek());
    for (const choice of this.findAll("[name=tour-model]")) {
      choice.addEventListener("change", () => this.bring(choice.value));
    }
  }

  get inputs() {
    const input = (/** @type {string} */ name) => this.find(`[name=${name}]`);
    return { mass: input("mass"), block: input("block") };
  }

  /** @returns {Step} */
  get step() {
    return STEPS[this.lab.state.step - 1] ?? STEPS[0];
  }

  /** @param {number} by */
  turn(by) {
    this.lab.change({ step: STEPS.indexOf(this.step) + 1 + by });
    this.find(`article[data-step=${this.step.name}] h2`).focus({ preventScroll: true });
    this.find(".tour-text").scrollIntoView({ block: "nearest" });
  }

  // ---- what the lab says

  /** Open a step: its words and controls at once, the stage as it wants it once all of it is here. */
  async look() {
    const { step } = this;
    const { question } = this.lab;
    this.seek.cancel();
    if (this.root.dataset.words !== step.name) this.showWords(step);
    if (step.curves) return this.showCurves(step);
    const brought = await this.asker.ask(async (listening) => {
      const see = (/** @type {string} */ model, number = /** @type {number | undefined} */ (undefined)) =>
        this.lab.see({ ...question, model }, listening, number);
      const seen = await see(TRAINED);
      const random = step.controls?.includes("model") ? await see(RANDOM) : null;
      const first = step.controls?.includes("block") ? await see(TRAINED, 0) : null;
      return { ...seen, random: random?.block, first: first?.block };
    });
    if (brought) this.setStage(step, brought);
  }

  /** @param {Step} step */
  showWords(step) {
    this.root.dataset.words = step.name;
    for (const article of this.findAll("article")) {
      article.hidden = article.dataset.step !== step.name;
      for (const answer of article.querySelectorAll("details")) answer.open = false;
    }
    const button = (
      /** @type {Step} */ one,
      /** @type {number} */ index,
    ) => html`<li><button type="button" title=${one.title}
      aria-label=${`Step ${index + 1}: ${one.title}`} aria-current=${one === step ? "step" : "false"}
      @click=${() => this.lab.change({ step: index + 1 })}>${index + 1}</button></li>`;
    render(STEPS.map(button), this.find(".tour-steps ol"));
    this.find(".tour-back").disabled = step === STEPS[0];
    this.find(".tour-next").disabled = step === STEPS.at(-1);
    for (const control of this.findAll("[data-control]")) {
      control.hidden = !step.controls?.includes(control.dataset.control ?? "");
    }
    this.reveal(".tour-stage", !step.curves);
    this.reveal(".tour-curves", step.curves);
    this.reveal(".lab-tiles", step.tiles);
  }

  // ---- the stage

  /** @param {Step} step @param {{ encoding: Encoding, block: Block, random?: Block, first?: Block }} brought */
  setStage(step, { encoding, block, random, first }) {
    const { mass, block: slider } = this.inputs;
    const heads = byEntropy(block);
    const middle = { row: encoding.rows >> 1, column: encoding.columns >> 1 };
    mass.value = String(100 * MASS);
    slider.max = slider.value = String(encoding.blocks);
    this.find(`[name=tour-model][value="${TRAINED}"]`).checked = true;
    this.label();
    this.viewer.open(encoding, block);
    this.viewer.set({
      ...PLAIN,
      ...(step.narrowest && { show: String(heads[0].head) }),
      ...(step.asks && { patch: middle }),
      ...step.settings,
    });
    const patches = encoding.rows * encoding.columns;
    const named = (/** @type {{ head: number, entropy: number }} */ one) =>
      `head ${one.head} with ${one.entropy.toFixed(2)} of ${Math.log(patches).toFixed(2)} nats`;
    this.tell({
      grid: `${encoding.columns} × ${encoding.rows} = ${patches.toLocaleString("en")}`,
      tokens: (patches + encoding.prefix).toLocaleString("en"),
      tokensFiner: (4 * patches + encoding.prefix).toLocaleString("en"),
      narrowest: named(heads[0]),
      widest: named(heads[heads.length - 1]),
      mutual: step.asks ? mutual(encoding, block, middle) : "",
      trainedArea: percent(areaOf(block)),
      ...(random && { randomArea: percent(areaOf(random)) }),
      ...(first && {
        firstEntropy: `${meanEntropy(first).toFixed(2)} nats`,
        lastEntropy: `${meanEntropy(block).toFixed(2)} nats`,
      }),
    });
    Object.assign(this.root.dataset, { step: step.name, token: encoding.token, block: block.number }); // says what is on the screen
  }

  /** Another model or block of the same step; what cannot be had gives way to what is seen.
   * @param {string} model @param {number} [number]
   */
  async bring(model, number) {
    const question = { ...this.lab.question, model };
    const brought = await this.asker.ask(
      (listening) => this.lab.see(question, listening, number),
      () => this.goBack(),
    );
    if (!brought) return;
    this.viewer.open(brought.encoding, brought.block);
    this.viewer.set({});
    Object.assign(this.root.dataset, { token: brought.encoding.token, block: brought.block.number });
  }

  goBack() {
    const { encoding, arrays } = this.viewer;
    if (!encoding) return;
    this.inputs.block.value = String(arrays.number + 1);
    this.label();
    this.find(`[name=tour-model][value="${encoding.model}"]`).checked = true;
  }

  describe() {
    const { viewer } = this;
    if (!viewer.maps) return;
    const { patch, settings } = viewer;
    const who = patch ? `Patch row ${patch.row}, column ${patch.column}` : "[CLS]";
    const seen = viewer.measure(viewer.maps);
    const what = `${percent(seen.mass)} of the attention on ${percent(seen.area)} of the picture, entropy ${seen.entropy.toFixed(2)} nats`;
    const words = settings.maps ? `${who}: ${what}` : patch ? who : "Point at a patch";
    this.find(".tour-seen").textContent = words;
    this.lab.speak(words);
    this.tell({ area: `${percent(seen.area)} of the picture` });
  }

  /** @param {Record<string, string>} words */
  tell(words) {
    for (const [name, text] of Object.entries(words)) {
      for (const place of this.findAll(`[data-live=${name}]`)) place.value = text;
    }
  }

  // ---- the curves of the last step

  /** @param {Step} step */
  async showCurves(step) {
    const run = await this.asker.ask(({ signal }) => askData(`api/runs/${TRAINED}`, { signal }));
    if (!run) return;
    const { curves, phases, steps } = run;
    const marks = phases
      .slice(1)
      .map((/** @type {{ name: string, start: number }} */ { name, start }) => ({
        step: start,
        label: `phase ${name}`,
        short: name,
      }));
    this.chart.draw([{ name: TRAINED, curves }], { marks, span: [curves.kl.steps[0] ?? 0, Math.max(0, steps - 1)] });
    const last = (/** @type {string} */ name) => figure(curves[name].values.at(-1));
    this.tell({ kl: last("kl"), entropy: last("teacher_entropy"), lnK: last("ln_k") });
    this.root.dataset.step = step.name;
  }
}

/** Heads by the entropy of their [CLS] attention, the most concentrated first. @param {Block} block */
function byEntropy(block) {
  const heads = attentionMaps(block, 0).map((map, head) => ({ head, entropy: entropy(map) }));
  return heads.sort((one, other) => one.entropy - other.entropy);
}

/** Entropy of [CLS] attention as a mean over the heads. @param {Block} block */
function meanEntropy(block) {
  return byEntropy(block).reduce((sum, { entropy: one }) => sum + one, 0) / block.heads;
}

/** Share of the picture that holds most of the mean map. @param {Block} block */
function areaOf(block) {
  const map = meanMap(attentionMaps(block, 0));
  return keptShares(map, keepMass(map, MASS)).area;
}

/** What a patch gives to the patch it looks at most, and gets back, in words. @param {Encoding} encoding @param {Block} block @param {Patch} patch */
function mutual(encoding, block, patch) {
  const { columns } = encoding;
  const own = patch.row * columns + patch.column;
  const given = meanMap(attentionMaps(block, encoding.tokenOf(patch)));
  const most = given.reduce((best, share, other) => (other !== own && share > given[best] ? other : best), own ? 0 : 1);
  const partner = { row: Math.floor(most / columns), column: most % columns };
  const back = meanMap(attentionMaps(block, encoding.tokenOf(partner)))[own];
  const place = (/** @type {Patch} */ { row, column }) => `row ${row}, column ${column}`;
  return `The patch at ${place(patch)} gives ${percent(given[most])} of its attention, as a mean over the heads, to the one at ${place(partner)}, and gets ${percent(back)} back.`;
}
