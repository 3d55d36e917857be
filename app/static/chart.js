// Line charts as SVG: a handful of curves over steps, linear or logarithmic, with a readout for pointer and arrow keys
// and the same numbers as a table.

const HEIGHT = 230;
const MARK_ROOM = 56; // pixels for a mark in words
const MARGIN = { left: 54, right: 14, top: 12, bottom: 28 };
const TABLE_ROWS = 12;
const DOTTED = 40; // a curve of so few points shows each of them
const AIR = 0.06; // of the height, above and below what is drawn

/** A scale from values to 0…1, with `air` at either end: linear, or logarithmic over the values above 0. */
export function scale(values, logarithmic, air = 0) {
  const finite = values.filter((value) => Number.isFinite(value) && (!logarithmic || value > 0));
  const measure = logarithmic ? Math.log10 : (value) => value;
  let low = Math.min(...finite);
  let high = Math.max(...finite);
  if (!finite.length) [low, high] = [1, 10];
  if (low === high) [low, high] = logarithmic ? [low / 2, high * 2] : [low - 1, high + 1];
  const place = (value) => air + (1 - 2 * air) * (measure(value) - measure(low)) / (measure(high) - measure(low));
  return { low, high, place, ticks: logarithmic ? decades(low, high) : steps(low, high) };
}

/** Three to eight round numbers from low to high. */
function steps(low, high) {
  const rough = (high - low) / 7;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = power * [1, 2, 5, 10].find((factor) => factor * power >= rough);
  const found = [];
  for (let index = Math.ceil(low / step); index * step <= high; index++) found.push(index * step);
  return found;
}

/** 1, 2 and 5 times the powers of ten; the powers alone where that is too many. */
function decades(low, high) {
  const found = [];
  const factors = high / low > 1e3 ? [1] : [1, 2, 5];
  for (let power = Math.floor(Math.log10(low)); power <= Math.log10(high); power++) {
    for (const factor of factors) found.push(factor * 10 ** power);
  }
  const within = found.filter((value) => value >= low && value <= high);
  return within.length > 1 ? within : steps(low, high).filter((value) => value > 0);
}

/** A number for people: four figures, thousands set apart. */
export function figure(value) {
  if (value === undefined || value === null) return "–";
  if (value !== 0 && Math.abs(value) < 1e-3) return value.toExponential(1);
  return value.toLocaleString("en", { maximumSignificantDigits: 4 });
}

export class LineChart {
  /**
   * @param {HTMLElement} element  is filled with a figure
   * @param {{title: string, unit: string, note?: string, curves: Array<{key: string, label: string, dashed?: boolean}>}} words
   * @param {(step: number | null) => void} pointed  called with the step under the pointer
   */
  constructor(element, words, pointed = () => {}) {
    Object.assign(this, { element, words, pointed, data: {}, options: {}, at: null, width: 520 });
    this.build();
    // One unit of the drawing is one pixel of the screen, so that its words are as large as those beside it.
    new ResizeObserver(() => this.fit()).observe(this.plot);
    this.plot.addEventListener("pointermove", (event) => this.pointed(this.stepAt(event)));
    this.plot.addEventListener("pointerleave", () => {
      if (document.activeElement !== this.plot) this.pointed(null); // a page that scrolls takes no step from the keys
    });
    this.plot.addEventListener("blur", () => this.pointed(null));
    this.plot.addEventListener("keydown", (event) => this.key(event));
  }

  build() {
    const { title, unit, curves } = this.words;
    this.figure = html("figure", "chart");
    const caption = html("figcaption", "chart-title", title);
    caption.append(html("small", "", unit));
    this.plot = svg("svg", {
      class: "chart-plot", height: HEIGHT, tabindex: 0, role: "img",
      "aria-label": `${title}, ${unit}: left and right arrow read the values, the table below has them in full`,
    });
    this.legend = html("ul", "chart-legend");
    this.values = curves.map(({ label, dashed }, index) => {
      const entry = html("li", `chart-curve chart-curve-${index}${dashed ? " chart-dashed" : ""}`, label);
      const value = html("output", "");
      entry.append(value);
      this.legend.append(entry);
      return value;
    });
    this.spoken = html("p", "lab-hidden");
    this.spoken.setAttribute("aria-live", "polite");
    this.details = html("details", "chart-table");
    this.details.append(html("summary", "", `${title} as a table`), html("div", "chart-scroll"));
    this.figure.append(caption, this.legend, this.plot, this.spoken, this.details);
    this.element.append(this.figure);
  }

  fit() {
    const { width } = this.plot.getBoundingClientRect();
    if (!width || width === this.width) return;
    this.width = width;
    this.draw(this.data, this.options);
  }

  /**
   * @param {Object<string, {steps: number[], values: number[]}>} data  by the curves' keys
   * @param {{logSteps?: boolean, logValues?: boolean, marks?: Array<{step: number, label: string, short: string}>}} options
   */
  draw(data, options = {}) {
    this.data = data;
    this.options = options;
    const drawn = this.words.curves.map(({ key }) => data[key] ?? { steps: [], values: [] });
    const empty = drawn.every(({ steps: of }) => of.length === 0);
    this.figure.classList.toggle("chart-empty", empty);
    const steps = drawn.flatMap((curve) => curve.steps);
    // The longest curve of all charts sets the width, so that they stand above one another.
    const x = scale([...steps, ...(options.span ?? [])].map((step) => step + (options.logSteps ? 1 : 0)), options.logSteps);
    const y = scale(drawn.flatMap((curve) => curve.values), options.logValues, AIR);
    const across = (step) => MARGIN.left + x.place(step + (options.logSteps ? 1 : 0)) * (this.width - MARGIN.left - MARGIN.right);
    const down = (value) => HEIGHT - MARGIN.bottom - y.place(value) * (HEIGHT - MARGIN.top - MARGIN.bottom);
    Object.assign(this, { x, across, down, drawn });
    this.cursor = svg("line", { class: "chart-cursor", y1: MARGIN.top, y2: HEIGHT - MARGIN.bottom, visibility: "hidden" });
    this.plot.replaceChildren(
      ...(empty ? [svg("text", { x: this.width / 2, y: HEIGHT / 2, class: "chart-none" }, this.words.none ?? "Nothing was logged yet")]
        : [...this.axes(y), ...this.marks(), ...this.paths(), this.cursor]),
    );
    this.point(this.at);
    this.tabulate();
  }

  axes(y) {
    const { logSteps } = this.options;
    const bottom = HEIGHT - MARGIN.bottom;
    const rows = y.ticks.flatMap((value) => [
      svg("line", { class: "chart-grid", x1: MARGIN.left, x2: this.width - MARGIN.right, y1: this.down(value), y2: this.down(value) }),
      svg("text", { class: "chart-tick", x: MARGIN.left - 8, y: this.down(value) + 4, "text-anchor": "end" }, figure(value)),
    ]);
    const columns = this.x.ticks.map((value) => {
      const step = value - (logSteps ? 1 : 0);
      return svg("text", { class: "chart-tick", x: this.across(step), y: bottom + 19, "text-anchor": "middle" }, brief(value));
    });
    return [...rows, ...columns];
  }

  /** Where phases begin; in words as far as there is room, else in short. */
  marks() {
    const marks = this.options.marks ?? [];
    return marks.flatMap(({ step, label, short }, index) => {
      const x = this.across(step);
      const end = index + 1 < marks.length ? this.across(marks[index + 1].step) : this.width;
      return [
        svg("line", { class: "chart-mark", x1: x, x2: x, y1: MARGIN.top, y2: HEIGHT - MARGIN.bottom }),
        svg("text", { class: "chart-tick", x: x + 5, y: MARGIN.top + 9 }, end - x > MARK_ROOM ? label : short),
      ];
    });
  }

  paths() {
    const shown = (value) => !this.options.logValues || value > 0;
    return this.drawn.flatMap(({ steps: of, values }, index) => {
      const points = of.flatMap((step, i) => (shown(values[i]) ? [[this.across(step).toFixed(1), this.down(values[i]).toFixed(1)]] : []));
      const kind = `chart-curve-${index}${this.words.curves[index].dashed ? " chart-dashed" : ""}`;
      const line = svg("path", { d: points.length ? `M${points.map((point) => point.join(" ")).join("L")}` : "", class: `chart-line ${kind}` });
      const dots = points.length > DOTTED || this.words.curves[index].dashed ? [] : points;
      return [line, ...dots.map(([cx, cy]) => svg("circle", { cx, cy, r: 3.5, class: `chart-dot ${kind}` }))];
    });
  }

  /** Show the values nearest to a step; null shows the newest. */
  point(step) {
    this.at = step;
    const known = step !== null && this.drawn?.some((curve) => curve.steps.length);
    this.drawn?.forEach((curve, index) => {
      this.values[index].value = figure(curve.values[nearest(curve.steps, known ? step : Infinity)]);
    });
    if (!this.cursor) return;
    this.cursor.setAttribute("visibility", known ? "visible" : "hidden");
    if (known) for (const side of ["x1", "x2"]) this.cursor.setAttribute(side, this.across(step));
  }

  /** The drawn step that is nearest to a pointer. */
  stepAt({ clientX }) {
    const box = this.plot.getBoundingClientRect();
    const at = ((clientX - box.left) / box.width) * this.width;
    return this.grid().reduce((best, step) => (Math.abs(this.across(step) - at) < Math.abs(this.across(best) - at) ? step : best), this.grid()[0] ?? null);
  }

  key(event) {
    const by = { ArrowLeft: -1, ArrowRight: 1, PageUp: -20, PageDown: 20, Home: -Infinity, End: Infinity }[event.key];
    const grid = this.grid();
    if (by === undefined || !grid.length) return;
    event.preventDefault();
    const from = nearest(grid, this.at ?? Infinity);
    this.pointed(grid[Math.min(grid.length - 1, Math.max(0, from + by))]);
    const said = this.words.curves.map(({ label }, index) => `${label} ${this.values[index].value}`);
    this.spoken.textContent = `Step ${Math.round(this.at).toLocaleString("en")}: ${said.join(", ")}`;
  }

  /** Steps of the curve with most of them. */
  grid() {
    return this.drawn.reduce((best, { steps: of }) => (of.length > best.length ? of : best), []);
  }

  tabulate() {
    const grid = this.grid();
    const rows = Array.from({ length: Math.min(TABLE_ROWS, grid.length) }, (_, row) =>
      grid[Math.round((row * (grid.length - 1)) / Math.max(1, Math.min(TABLE_ROWS, grid.length) - 1))]);
    const line = (cells, kind) => {
      const made = html("tr", "");
      made.append(...cells.map((cell) => html(kind, "", cell)));
      return made;
    };
    const table = html("table", "");
    const heads = line(["Step", ...this.words.curves.map(({ label }) => label)], "th");
    for (const cell of heads.children) cell.scope = "col";
    table.append(heads, ...rows.map((step) =>
      line([Math.round(step).toLocaleString("en"), ...this.drawn.map((curve) => figure(curve.values[nearest(curve.steps, step)]))], "td")));
    this.details.querySelector(".chart-scroll").replaceChildren(table);
  }
}

/** Index of the entry of a rising list that is nearest to a value; -1 for an empty list. */
export function nearest(rising, value) {
  if (!rising.length || value === Infinity) return rising.length - 1;
  return rising.reduce((best, entry, index) => (Math.abs(entry - value) < Math.abs(rising[best] - value) ? index : best), 0);
}

function brief(step) {
  return step >= 1000 ? `${figure(step / 1000)}k` : figure(step);
}

function html(name, className, text = "") {
  const made = document.createElement(name);
  if (className) made.className = className;
  made.textContent = text;
  return made;
}

function svg(name, attributes, text = "") {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.textContent = text;
  return made;
}
