// The tab Training: a run's log as charts that grow with it, and its checkpoints over one photograph.

import { Alert } from "./alert.js";
import { LineChart } from "./chart.js";
import { Refusal } from "./encoding.js";
import { markExample, offerExamples } from "./examples.js";
import { Questions, Viewer } from "./viewer.js";

const EMBEDDED = "embedded"; // the run whose log comes with the package
const EVERY = 4000; // milliseconds between looks at a log that may grow

const CHARTS = [
  { title: "Loss", unit: "nats", curves: [{ key: "loss", label: "Loss" }] },
  {
    title: "Teacher entropy and KL", unit: "nats",
    curves: [
      { key: "teacher_entropy", label: "Entropy of the teacher" },
      { key: "kl", label: "KL, teacher to student" },
      { key: "ln_k", label: "ln K", dashed: true },
    ],
  },
  {
    title: "k-NN on labelled training pictures", unit: "top-1, %", none: "No k-NN probe was logged yet",
    curves: [{ key: "knn_teacher", label: "Teacher" }, { key: "knn_student", label: "Student" }],
  },
  {
    title: "Throughput", unit: "pictures a second", none: "This log holds no times",
    curves: [{ key: "images_per_second", label: "Pictures a second" }],
  },
];

/** Start the tab inside its component; called once, by the line of script that Gradio runs. */
export function mount({ element, props, watch, send }) {
  const tab = new TrainingTab(element.querySelector(".run"), props.facts, send.look);
  watch("value", () => tab.questions.answered(props.value));
  tab.start();
}

class TrainingTab {
  constructor(root, facts, look) {
    this.root = root;
    this.find = (selector) => root.querySelector(selector);
    this.alert = new Alert(this.find(".lab-alert"));
    this.questions = new Questions(look);
    this.looking = false;
    this.viewer = new Viewer(root, facts, (view) => this.describe(view));
    this.charts = CHARTS.map((words) => new LineChart(this.find(".run-charts"), words, (step) => this.point(step)));
    this.told = null; // what the server last said of the chosen run
    this.chosen = null; // the checkpoint on the stage
    this.example = facts.examples[0].name;
    const strip = this.find(".lab-examples");
    offerExamples(strip, facts.examples, ({ name }) => {
      this.example = name;
      markExample(strip, name);
      if (this.chosen) this.look();
    });
    markExample(strip, this.example);
    this.find("select").addEventListener("change", () => this.choose());
    for (const reach of ["pointerenter", "focus"]) this.find("select").addEventListener(reach, () => this.listRuns());
    this.find(".run-scales").addEventListener("change", () => this.draw());
    this.slider.addEventListener("input", () => this.seek());
    root.training = this; // for the browser's console, and for tests
  }

  get slider() {
    return this.find("[name=checkpoint]");
  }

  /** List the runs, show the first, and go on looking while somebody looks at the tab. */
  async start() {
    await this.listRuns();
    await this.choose();
    setInterval(() => {
      if (this.root.offsetParent && !document.hidden) this.refresh();
    }, EVERY);
  }

  // ---- what the server says

  /** List the runs, the newest first; those listed already stay where they are. */
  async listRuns() {
    const list = this.find("select");
    const runs = (await this.fetch("lab/runs")) ?? [];
    const listed = new Set([...list.options].map(({ value }) => value));
    list.prepend(...runs.filter(({ name }) => !listed.has(name)).map(({ name, title }) => new Option(title, name)));
    this.find(".run-hint").hidden = runs.some(({ name }) => name !== EMBEDDED);
  }

  async choose() {
    this.told = null;
    await this.refresh();
  }

  /** Fetch what is new of the chosen run, if anything is. */
  async refresh() {
    const name = this.find("select").value;
    if (!name) return this.listRuns();
    const version = this.told?.version ?? "";
    const told = await this.fetch(`lab/runs/${encodeURIComponent(name)}?${new URLSearchParams({ version })}`);
    if (name !== this.find("select").value) return; // another was chosen meanwhile
    if (told) {
      const first = !this.told;
      this.told = { ...told, heard: Date.now() };
      this.draw();
      this.listCheckpoints(first);
    }
    if (this.told) this.tellState();
  }

  /** An answer's JSON; null where there is nothing new, or after saying what is wrong. */
  async fetch(address) {
    const answer = await fetch(address).catch(() => null);
    if (answer?.ok) {
      this.alert.say("");
      return answer.status === 204 ? null : answer.json();
    }
    const { detail } = (await answer?.json().catch(() => ({}))) ?? { detail: "The server cannot be reached: is it still running?" };
    this.alert.say(detail ?? "The run cannot be read: choose another.");
    return null;
  }

  // ---- charts

  draw() {
    const { curves, phases, steps } = this.told;
    const checked = (name) => this.find(`[name=${name}]`).checked;
    const marks = phases.slice(1).map(({ name, start }) => ({ step: start, label: `phase ${name}`, short: String(name) }));
    const first = Math.min(...Object.values(curves).map((curve) => curve.steps[0] ?? Infinity));
    const span = steps ? [Number.isFinite(first) ? first : 0, steps - 1] : [];
    const options = { logSteps: checked("log-steps"), logValues: checked("log-values"), marks, span };
    for (const chart of this.charts) chart.draw(curves, options);
  }

  /** All charts read the same step. */
  point(step) {
    for (const chart of this.charts) chart.point(step);
  }

  tellState() {
    const { steps, planned, live, age, heard, warning, broken, notFinite } = this.told;
    const of = planned ? ` of ${planned.toLocaleString("en")}` : "";
    const since = age === null ? 0 : Math.round(age + (Date.now() - heard) / 1000);
    const state = age === null ? "Ended" : live ? `Live, last line ${since} s ago` : planned && steps >= planned ? "Ended" : `No line for ${duration(since)}`;
    this.find(".run-state").textContent = `${state} · ${steps.toLocaleString("en")}${of} steps`;
    this.root.classList.toggle("run-live", live);
    const progress = this.find(".run-progress");
    progress.hidden = !planned;
    progress.value = planned ? Math.min(1, steps / planned) : 0;
    const faults = Object.entries(notFinite).map(([name, count]) => `${name} was not a number ${times(count)}`);
    if (broken) faults.push(`${broken} ${broken === 1 ? "line" : "lines"} could not be read`);
    const words = [warning, faults.length ? `In this log ${faults.join(", ")}.` : ""].filter(Boolean).join(" · ");
    this.find(".lab-banner").textContent = words;
    this.find(".lab-banner").hidden = !words;
  }

  // ---- checkpoints

  /** Bring the slider up to date; it stays where it is unless it stood at the newest. */
  listCheckpoints(first) {
    const { checkpoints } = this.told;
    const last = checkpoints.length - 1;
    const here = checkpoints.findIndex(({ model }) => model === this.chosen?.model);
    this.find(".run-growth").hidden = last < 0;
    if (last < 0) return;
    this.slider.max = last;
    this.slider.value = first || here < 0 ? last : here;
    this.slider.disabled = last === 0;
    if (this.chosen?.model !== checkpoints[Number(this.slider.value)].model) this.seek();
    else this.label();
  }

  /** Put the slider's checkpoint on the stage. */
  seek() {
    this.chosen = this.told.checkpoints[Number(this.slider.value)];
    this.label();
    if (this.chosen.step !== null) this.point(this.chosen.step);
    this.look();
  }

  /** Show what is chosen; of what is chosen while the model is busy, only the newest. */
  async look() {
    if (this.looking) return;
    this.looking = true;
    let shown;
    do {
      shown = { model: this.chosen.model, example: this.example };
      await this.open(await this.questions.ask(shown), shown.model);
    } while (this.chosen && (shown.model !== this.chosen.model || shown.example !== this.example));
    this.looking = false;
  }

  label() {
    const { label } = this.chosen;
    this.find(".run-slider output").value = label;
    this.slider.setAttribute("aria-valuetext", label);
  }

  async open(value, model) {
    await this.alert.afresh(async () => {
      if (value.error) throw new Refusal(value.error);
      await this.viewer.open(value);
      this.root.dataset.model = model; // says what is on the screen
    });
  }

  describe(view) {
    const { entropy, flat, area } = this.viewer.measure(view);
    const who = view.patch ? `Patch row ${view.patch.row}, column ${view.patch.column}` : "[CLS]";
    this.find(".run-seen").textContent =
      `${who}: entropy ${entropy.toFixed(2)} of ${flat.toFixed(2)} nats, 60 % of the attention on ${Math.round(100 * area)} % of the picture`;
  }
}

function times(count) {
  return count === 1 ? "once" : `${count} times`;
}

function duration(seconds) {
  if (seconds < 120) return `${seconds} s`;
  if (seconds < 7200) return `${Math.round(seconds / 60)} min`;
  return seconds < 172_800 ? `${Math.round(seconds / 3600)} h` : `${Math.round(seconds / 86_400)} days`;
}
