// Line charts as SVG: a handful of curves over steps, of one run or several, linear or logarithmic, with a readout for
// pointer and arrow keys and the same numbers as a table.

import { find } from "../dom.js";
import { figure } from "../maths/format.js";
import { nearest, scale } from "../maths/scale.js";
import { html, render, svg } from "../vendor/lit-html.js";

/**
 * @typedef {{ title: string, unit: string, none?: string, curves: { key: string, label: string, dashed?: boolean }[] }} Words
 * @typedef {{ name: string, curves: Record<string, Curve> }} Drawn  a run, and its curves by their keys
 * @typedef {object} Options
 * @property {boolean} [logSteps]
 * @property {boolean} [logValues]
 * @property {{ step: number, label: string, short?: string }[]} [marks]  where phases begin
 * @property {number[]} [span]  first and last step that all charts share
 */

const HEIGHT = 230;
const MARK_ROOM = 56; // pixels for a mark in words
const MARGIN = { left: 54, right: 14, top: 12, bottom: 28 };
const TABLE_ROWS = 12;
const DOTTED = 40; // a curve of so few points shows each of them
const COLORS = 4; // of the style sheet
const AIR = 0.06; // of the height, above and below what is drawn
const KEYS = /** @type {Record<string, number>} */ ({
  ArrowLeft: -1,
  ArrowRight: 1,
  PageUp: -20,
  PageDown: 20,
  Home: -Infinity,
  End: Infinity,
});

export class LineChart {
  /**
   * @param {HTMLElement} element  empty @param {Words} words
   * @param {(step: number | null) => void} pointed  called with the step under the pointer
   */
  constructor(element, words, pointed = () => {}) {
    this.element = element;
    this.words = words;
    this.pointed = pointed;
    /** @type {Drawn[]} */
    this.runs = [];
    /** @type {Options} */
    this.options = {};
    /** @type {number | null} */
    this.at = null;
    this.width = 520;
    /** @type {(step: number) => number} */
    this.across = (step) => step;
    /** @type {(value: number) => number} */
    this.down = (value) => value;
    this.draw([]);
    // One unit of the drawing is one pixel of the screen, so that its words are as large as those beside it.
    new ResizeObserver(() => this.fit()).observe(this.plot);
  }

  get plot() {
    return find(this.element, ".chart-plot");
  }

  fit() {
    const { width } = this.plot.getBoundingClientRect();
    if (!width || width === this.width) return;
    this.width = width;
    this.draw(this.runs, this.options);
  }

  /** @param {Drawn[]} runs @param {Options} [options] */
  draw(runs, options = {}) {
    Object.assign(this, { runs, options });
    const { logSteps = false, logValues = false, span = [] } = options;
    const { curves } = this;
    const shifted = logSteps ? 1 : 0; // step 0 has no logarithm
    // The longest curve of all charts sets the width, so that they stand above one another.
    const x = scale(
      [...curves.flatMap(({ steps }) => steps), ...span].map((step) => step + shifted),
      logSteps,
    );
    const y = scale(
      curves.flatMap(({ values }) => values),
      logValues,
      AIR,
    );
    const { left, right, top, bottom } = MARGIN;
    this.across = (step) => left + x.place(step + shifted) * (this.width - left - right);
    this.down = (value) => HEIGHT - bottom - y.place(value) * (HEIGHT - top - bottom);
    this.ticks = { x: x.ticks.map((value) => value - shifted), y: y.ticks };
    this.show();
  }

  /** All that is drawn: a colour for each curve of one run, or for each run of several, whose curves differ in their dashes. */
  get curves() {
    const several = this.runs.length > 1;
    const runs = this.runs.length ? this.runs : [/** @type {Drawn} */ ({ name: "", curves: {} })];
    return runs
      .flatMap((run, color) =>
        this.words.curves.map(({ key, label, dashed }, index) => ({
          label: several ? `${run.name}: ${label}` : label,
          kind: `chart-curve-${several ? color % COLORS : index}${dashed ? " chart-dashed" : several && index ? " chart-dotted" : ""}`,
          dashed,
          steps: run.curves[key]?.steps ?? [],
          values: run.curves[key]?.values ?? [],
        })),
      )
      .filter(({ steps }) => !several || steps.length);
  }

  get empty() {
    return this.curves.every(({ steps }) => steps.length === 0);
  }

  /** Steps of the curve with most of them. */
  get grid() {
    return this.curves.reduce(
      (most, { steps }) => (steps.length > most.length ? steps : most),
      /** @type {number[]} */ ([]),
    );
  }

  // ---- pointing

  /** Show the values nearest to a step; null shows the newest. @param {number | null} step */
  point(step) {
    this.at = step;
    this.show();
  }

  /** The drawn step that is nearest to a pointer. @param {PointerEvent} event */
  stepAt({ clientX }) {
    const box = this.plot.getBoundingClientRect();
    const at = ((clientX - box.left) / box.width) * this.width;
    const away = (/** @type {number} */ step) => Math.abs(this.across(step) - at);
    const { grid } = this;
    return grid.length ? grid.reduce((best, step) => (away(step) < away(best) ? step : best)) : null;
  }

  /** @param {KeyboardEvent} event */
  key(event) {
    const by = KEYS[event.key];
    const { grid } = this;
    if (by === undefined || !grid.length) return;
    event.preventDefault();
    const from = nearest(grid, this.at ?? Infinity);
    const step = grid[Math.min(grid.length - 1, Math.max(0, from + by))];
    this.pointed(step);
    const said = this.curves.map((curve) => `${curve.label} ${this.valueOf(curve)}`);
    find(this.element, ".chart-spoken").textContent =
      `Step ${Math.round(step).toLocaleString("en")}: ${said.join(", ")}`;
  }

  /** What is read of a curve. @param {Curve} curve */
  valueOf({ steps, values }) {
    return figure(values[nearest(steps, this.at ?? Infinity)]);
  }

  // ---- what is seen

  show() {
    const { title, unit, none } = this.words;
    const told = `${title}, ${unit}: left and right arrow read the values, the table below has them in full`;
    const leave = () => document.activeElement !== this.plot && this.pointed(null); // a page that scrolls takes no step from the keys
    render(
      html`<figure class=${`chart ${this.empty ? "chart-empty" : ""}`}>
        <figcaption class="chart-title">${title}<small>${unit}</small></figcaption>
        <ul class="chart-legend">
          ${this.curves.map((curve) => html`<li class=${`chart-curve ${curve.kind}`}>${curve.label}<output>${this.valueOf(curve)}</output></li>`)}
        </ul>
        <svg class="chart-plot" height=${HEIGHT} tabindex="0" role="img" aria-label=${told}
          @pointermove=${(event) => this.pointed(this.stepAt(event))}
          @pointerleave=${leave} @blur=${() => this.pointed(null)} @keydown=${(event) => this.key(event)}>
          ${this.empty ? svg`<text x=${this.width / 2} y=${HEIGHT / 2} class="chart-none">${none ?? "Nothing was logged yet"}</text>` : this.drawing()}
        </svg>
        <p class="lab-hidden chart-spoken" aria-live="polite"></p>
        <details class="chart-table"><summary>${title} as a table</summary><div class="chart-scroll">${this.table()}</div></details>
      </figure>`,
      this.element,
    );
  }

  drawing() {
    const bottom = HEIGHT - MARGIN.bottom;
    const x = this.at === null ? 0 : this.across(this.at);
    return [
      ...(this.ticks?.y ?? []).map(
        (value) => svg`
        <line class="chart-grid" x1=${MARGIN.left} x2=${this.width - MARGIN.right} y1=${this.down(value)} y2=${this.down(value)} />
        <text class="chart-tick" x=${MARGIN.left - 8} y=${this.down(value) + 4} text-anchor="end">${figure(value)}</text>`,
      ),
      ...(this.ticks?.x ?? []).map(
        (step) => svg`
        <text class="chart-tick" x=${this.across(step)} y=${bottom + 19} text-anchor="middle">${brief(step + (this.options.logSteps ? 1 : 0))}</text>`,
      ),
      ...this.marks(),
      ...this.curves.map((curve) => this.path(curve)),
      svg`<line class="chart-cursor" x1=${x} x2=${x} y1=${MARGIN.top} y2=${bottom} visibility=${this.at === null ? "hidden" : "visible"} />`,
    ];
  }

  /** Where phases begin; in words as far as there is room, else in short. */
  marks() {
    const { marks = [] } = this.options;
    return marks.map(({ step, label, short = "" }, index) => {
      const x = this.across(step);
      const end = index + 1 < marks.length ? this.across(marks[index + 1].step) : this.width;
      return svg`<line class="chart-mark" x1=${x} x2=${x} y1=${MARGIN.top} y2=${HEIGHT - MARGIN.bottom} />
        <text class="chart-tick" x=${x + 5} y=${MARGIN.top + 9}>${end - x > MARK_ROOM ? label : short}</text>`;
    });
  }

  /** @param {Curve & { kind: string, dashed?: boolean }} curve */
  path({ steps, values, kind, dashed }) {
    const shown = steps
      .map((step, at) => [step, values[at]])
      .filter(([, value]) => !this.options.logValues || value > 0);
    const points = shown.map(([step, value]) => [this.across(step).toFixed(1), this.down(value).toFixed(1)]);
    const dots = points.length > DOTTED || dashed ? [] : points;
    return svg`<path class=${`chart-line ${kind}`} d=${points.length ? `M${points.map((point) => point.join(" ")).join("L")}` : ""} />
      ${dots.map(([x, y]) => svg`<circle class=${`chart-dot ${kind}`} cx=${x} cy=${y} r="3.5" />`)}`;
  }

  table() {
    const { grid, curves } = this;
    const count = Math.min(TABLE_ROWS, grid.length);
    const steps = Array.from(
      { length: count },
      (_, row) => grid[Math.round((row * (grid.length - 1)) / Math.max(1, count - 1))],
    );
    const cells = (/** @type {number} */ step) =>
      curves.map((curve) => figure(curve.values[nearest(curve.steps, step)]));
    return html`<table>
      <thead><tr><th scope="col">Step</th>${curves.map(({ label }) => html`<th scope="col">${label}</th>`)}</tr></thead>
      <tbody>${steps.map((step) => html`<tr><td>${Math.round(step).toLocaleString("en")}</td>${cells(step).map((cell) => html`<td>${cell}</td>`)}</tr>`)}</tbody>
    </table>`;
  }
}

/** @param {number} step */
function brief(step) {
  return step >= 1000 ? `${figure(step / 1000)}k` : figure(step);
}
