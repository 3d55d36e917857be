// The tab Training: a run's log as charts that grow with it, and its checkpoints over the header's photograph.

import { duration, percent } from "../../maths/format.js";
import { ask, Refusal } from "../../server.js";
import { Tab } from "../../tab.js";
import { html, nothing, render } from "../../vendor/lit-html.js";
import { rested } from "../../newest.js";
import { LineChart } from "../../widgets/chart.js";
import { Viewer } from "../../widgets/viewer.js";

/**
 * @typedef {{ model: string, step: number | null, label: string }} Checkpoint
 * @typedef {object} Run  what the server tells of a run
 * @property {string} name
 * @property {string} version
 * @property {number} steps
 * @property {number | null} planned
 * @property {"live" | "stopped" | "finished"} state
 * @property {number | null} age
 * @property {number} broken
 * @property {Record<string, number>} notFinite
 * @property {string | null} warning
 * @property {{ step: number, message: string }[]} [warnings]
 * @property {{ name: string, start: number }[]} phases
 * @property {Record<string, Curve>} curves
 * @property {Checkpoint[]} checkpoints
 */

const EMBEDDED = "embedded"; // the run whose log comes with the package
const EVERY = 4000; // milliseconds between looks at a log that may grow
const REST = 150; // milliseconds after which a slider's checkpoint is asked for

const CHARTS = [
  { title: "Loss", unit: "nats", curves: [{ key: "loss", label: "Loss" }] },
  {
    title: "Teacher entropy and KL",
    unit: "nats",
    curves: [
      { key: "teacher_entropy", label: "Entropy of the teacher" },
      { key: "kl", label: "KL, teacher to student" },
      { key: "ln_k", label: "ln K", dashed: true },
    ],
  },
  {
    title: "k-NN on labelled training pictures",
    unit: "top-1, %",
    none: "No k-NN probe was logged yet",
    curves: [
      { key: "knn_teacher", label: "Teacher" },
      { key: "knn_student", label: "Student" },
    ],
  },
  {
    title: "Throughput",
    unit: "pictures a second",
    none: "This log holds no times",
    curves: [{ key: "images_per_second", label: "Pictures a second" }],
  },
];

export default class TrainingTab extends Tab {
  /** @param {HTMLElement} root @param {Lab} lab */
  constructor(root, lab) {
    super(root, lab);
    this.logs = lab.asker("run"); // its own words: what is wrong with a checkpoint is not cleared by a look at the log
    this.viewer = new Viewer(root, lab.facts.colors, { drawn: () => this.describe() });
    this.charts = CHARTS.map((words) => {
      const element = document.createElement("div");
      this.find(".run-charts").append(element);
      return new LineChart(element, words, (step) => this.point(step));
    });
    /** @type {{ name: string, title: string }[]} */
    this.runs = [];
    /** @type {Map<string, Run & { heard: number }>} */
    this.heard = new Map(); // what the server last said of a run
    this.drawn = ""; // the run whose checkpoints are listed
    /** @type {Checkpoint | null} */
    this.chosen = null; // that the slider stands at
    this.seek = rested(() => this.see(), REST);
    this.timer = 0;
    this.listen();
  }

  listen() {
    const refresh = () => this.quietly("runs", () => this.listRuns());
    this.onChoose("#run-name", (run) => this.lab.change({ run }), refresh);
    this.find(".run-scales").addEventListener("change", () => this.draw());
    this.slider.addEventListener("input", () => this.slide());
  }

  /** What the server last said of the chosen run. */
  get told() {
    return this.heard.get(this.name);
  }

  /** Runs that are drawn beside the chosen one. */
  get beside() {
    return this.lab.state.beside.split(";").filter((one) => one && one !== this.name);
  }

  get slider() {
    return this.find("[name=checkpoint]");
  }

  /** The run of the address, or the newest. */
  get name() {
    const { run } = this.lab.state;
    return run || (this.runs[0]?.name ?? "");
  }

  // ---- what the lab says

  look() {
    clearInterval(this.timer);
    this.timer = window.setInterval(() => {
      // An answer that takes longer than the time between looks is waited for, not asked for anew for ever.
      if (!document.hidden && !this.logs.newest.busy) this.quietly("run", () => this.refresh());
    }, EVERY);
    this.quietly("runs", () => this.listRuns()).then(() => this.quietly("run", () => this.refresh()));
    if (this.chosen) this.see(); // the photograph may be another
  }

  leave() {
    super.leave();
    clearInterval(this.timer);
    this.logs.stop();
  }

  /**
   * Do something that nobody waits for: what goes wrong is said until the same goes right. A list that is there says
   * nothing of a log that is not.
   * @param {string} about @param {() => Promise<void>} action
   */
  async quietly(about, action) {
    try {
      await action();
      this.lab.messages.say("", about);
    } catch (error) {
      if (!(error instanceof Refusal)) throw error;
      this.lab.messages.say(error.message, about);
    }
  }

  /** List the runs, the newest first. */
  async listRuns() {
    this.runs = (await (await ask("api/runs")).json()).runs;
    if (!this.lab.state.run && this.runs.length) this.lab.note({ run: this.runs[0].name }); // one that begins takes no place
    const known = this.runs.some(({ name }) => name === this.name);
    const runs = known ? this.runs : [...this.runs, { name: this.name, title: this.name }];
    render(
      runs.map(({ name, title }) => html`<option value=${name} .selected=${name === this.name}>${title}</option>`),
      this.find("#run-name"),
    );
    const others = runs.filter(({ name }) => name !== this.name);
    this.reveal(".run-beside", others.length);
    const tick = (/** @type {{ name: string, title: string }} */ { name, title }) => html`<li><label class="lab-tick"
      ><input type="checkbox" .checked=${this.beside.includes(name)} @change=${() => this.compare(name)} /><span>${title}</span></label></li>`;
    render(others.map(tick), this.find(".run-beside ul"));
    this.find(".run-hint").hidden = this.runs.some(({ name }) => name !== EMBEDDED);
  }

  /** Draw another run beside the chosen one, or no longer. @param {string} name */
  compare(name) {
    const without = this.beside.filter((other) => other !== name);
    const beside = without.length < this.beside.length ? without : [...this.beside, name];
    this.lab.change({ beside: beside.join(";") });
  }

  /** Fetch what is new of the runs that are drawn, if anything is. */
  async refresh() {
    const { name, beside } = this;
    if (!name) return;
    const news = await this.logs.newest.run((signal) =>
      Promise.all([this.fetchRun(name, signal), ...beside.map((one) => this.fetchBeside(one, signal))]),
    );
    if (!news) return; // another was chosen meanwhile
    for (const told of news) if (told) this.heard.set(told.name, { ...told, heard: Date.now() });
    const shown = [name, ...this.beside].join(";");
    if (news.some(Boolean) || this.drawn !== shown) {
      this.draw();
      this.listCheckpoints(this.drawn.split(";")[0] !== name);
      this.drawn = shown;
    }
    this.tellState();
  }

  /** What is new of a run; null where nothing is. Throws a Refusal. @param {string} name @param {AbortSignal} signal @returns {Promise<Run | null>} */
  async fetchRun(name, signal) {
    const version = this.heard.get(name)?.version ?? "";
    const answer = await ask(`api/runs/${encodeURIComponent(name)}?${new URLSearchParams({ version })}`, { signal });
    return answer.status === 204 ? null : answer.json();
  }

  /** The same of a run beside the chosen one, which goes on without one that is gone. @param {string} name @param {AbortSignal} signal */
  async fetchBeside(name, signal) {
    try {
      return await this.fetchRun(name, signal);
    } catch (error) {
      if (!(error instanceof Refusal) || error.status !== 404) throw error;
      this.lab.note({ beside: this.beside.filter((one) => one !== name).join(";") });
      this.lab.messages.say(`${name} is not here (any more): the charts are drawn without it.`, `beside ${name}`);
      this.quietly("runs", () => this.listRuns());
      return null;
    }
  }

  // ---- charts

  draw() {
    const runs = [this.name, ...this.beside].flatMap((name) => this.heard.get(name) ?? []);
    if (!this.told) return;
    const { phases } = this.told;
    const checked = (/** @type {string} */ name) => this.find(`[name=${name}]`).checked;
    const marks = phases
      .slice(1)
      .map(({ name, start }) => ({ step: start, label: `phase ${name}`, short: String(name) }));
    const starts = runs.flatMap(({ curves }) => Object.values(curves).map((curve) => curve.steps[0] ?? Infinity));
    const [first, steps] = [Math.min(...starts), Math.max(...runs.map((run) => run.steps))];
    const span = steps ? [Number.isFinite(first) ? first : 0, steps - 1] : [];
    const options = { logSteps: checked("log-steps"), logValues: checked("log-values"), marks, span };
    for (const chart of this.charts) chart.draw(runs, options);
  }

  /** All charts read the same step. @param {number | null} step */
  point(step) {
    for (const chart of this.charts) chart.point(step);
  }

  tellState() {
    if (!this.told) return;
    const { steps, planned, state, age, heard } = this.told;
    const of = planned ? ` of ${planned.toLocaleString("en")}` : "";
    const since = Math.round((age ?? 0) + (Date.now() - heard) / 1000);
    const words = {
      live: `Live, last line ${since} s ago`,
      stopped: `Stopped: no line for ${duration(since)}`,
      finished: "Ended",
    }[state];
    this.find(".run-state").textContent = `${words} · ${steps.toLocaleString("en")}${of} steps`;
    this.root.classList.toggle("run-live", state === "live");
    const progress = this.find(".run-progress");
    progress.hidden = !planned;
    Object.assign(progress, { value: planned ? Math.min(1, steps / planned) : 0 });
    this.warn(this.told);
  }

  /** What the monitor warned of, and what the log could not tell. @param {Run} told */
  warn({ warning, warnings = [], notFinite, broken }) {
    const faults = Object.entries(notFinite).map(([name, count]) => `${name} was not a number ${times(count)}`);
    if (broken) faults.push(`${broken} ${broken === 1 ? "line" : "lines"} could not be read`);
    const now = [warning, faults.length ? `In this log ${faults.join(", ")}.` : ""].filter(Boolean).join(" · ");
    const past = warnings.filter(({ message }) => message !== warning);
    const line = (/** @type {{ step: number, message: string }} */ { step, message }) =>
      html`<li>Step ${step.toLocaleString("en")}: ${message}</li>`;
    this.find(".run-warnings").hidden = !now && !past.length;
    render(
      html`${now ? html`<p>${now}</p>` : nothing}
      ${past.length ? html`<details ?open=${!now && past.length === 1}><summary>${past.length === 1 ? "A warning" : `${past.length} warnings`} of the monitor while it ran</summary><ul>${past.map(line)}</ul></details>` : nothing}`,
      this.find(".run-warnings"),
    );
  }

  // ---- checkpoints

  /** Bring the slider up to date; it stays where it is unless it stood at the newest. @param {boolean} first */
  listCheckpoints(first) {
    const checkpoints = this.told?.checkpoints ?? [];
    const last = checkpoints.length - 1;
    const here = checkpoints.findIndex(({ model }) => model === this.chosen?.model);
    this.find(".run-growth").hidden = last < 0;
    if (last < 0) return;
    this.slider.max = String(last);
    this.slider.value = String(first || here < 0 ? last : here);
    this.slider.disabled = last === 0;
    if (this.chosen?.model !== checkpoints[Number(this.slider.value)].model) this.choose();
    else this.tellCheckpoint();
  }

  /** Take up the slider's checkpoint. */
  choose() {
    this.chosen = this.told?.checkpoints[Number(this.slider.value)] ?? null;
    this.tellCheckpoint();
    this.seek();
  }

  slide() {
    this.lab.messages.say("", "training");
    this.choose();
    if (this.chosen) this.point(this.chosen.step);
  }

  tellCheckpoint() {
    const label = this.chosen?.label ?? "";
    this.find(".run-slider output").value = label;
    this.slider.setAttribute("aria-valuetext", label);
  }

  /** Put the chosen checkpoint's view of the photograph on the stage; of several that were chosen, the last. */
  async see() {
    const { lab, chosen } = this;
    this.seek.cancel();
    if (!chosen) return;
    const question = { ...lab.question, model: chosen.model };
    const brought = await this.asker.ask(
      (listening) => lab.see(question, listening),
      () => this.goBack(),
    );
    if (!brought) return;
    this.viewer.open(brought.encoding, brought.block);
    this.viewer.set({});
    this.root.dataset.model = chosen.model; // says what is on the screen
  }

  /** What cannot be had gives way to what is seen. */
  goBack() {
    const seen = this.told?.checkpoints.findIndex(({ model }) => model === this.root.dataset.model) ?? -1;
    if (seen < 0) return;
    this.slider.value = String(seen);
    this.chosen = this.told?.checkpoints[seen] ?? null;
    this.tellCheckpoint();
  }

  describe() {
    const { viewer } = this;
    if (!viewer.maps) return;
    const { patch } = viewer;
    const { entropy, flat, area, mass } = viewer.measure(viewer.maps);
    const who = patch ? `Patch row ${patch.row}, column ${patch.column}` : "[CLS]";
    const words = `${who}: entropy ${entropy.toFixed(2)} of ${flat.toFixed(2)} nats, ${percent(mass)} of the attention on ${percent(area)} of the picture`;
    this.find(".run-seen").textContent = words;
    this.lab.speak(words);
  }
}

/** @param {number} count */
function times(count) {
  return count === 1 ? "once" : `${count} times`;
}
