// Four runs, with and without centering and sharpening: one step on all curves, by pointer or by the slider.

import { nearest, scale } from "./scale.js";
import { el, svg } from "../../app/static/views/dom.js";

const CHARTS = { teacher_entropy: ["Entropy of the teacher", "nats"], kl: ["KL of teacher and student", "nats"] };
const [WIDTH, HEIGHT] = [520, 230];
const MARGIN = { left: 46, right: 12, top: 10, bottom: 24 };

/** A line chart with a cursor; `chart.at` is the step that it shows, `chart.point(step)` moves it. */
class Chart {
  /** @param {string[]} words  title and unit @param {number[]} steps @param {Record<string, number[]>} curves @param {(step: number) => void} pointed */
  constructor([title, unit], steps, curves, pointed) {
    this.steps = steps;
    this.curves = curves;
    this.at = steps[0];
    const x = scale(steps);
    const y = scale(Object.values(curves).flat(), 0.06);
    this.across = (/** @type {number} */ step) => MARGIN.left + x.place(step) * (WIDTH - MARGIN.left - MARGIN.right);
    const down = (/** @type {number} */ value) =>
      HEIGHT - MARGIN.bottom - y.place(value) * (HEIGHT - MARGIN.top - MARGIN.bottom);
    const label = (
      /** @type {number} */ left,
      /** @type {number} */ top,
      /** @type {string} */ anchor,
      /** @type {number} */ value,
    ) => svg("text", { x: left, y: top, "text-anchor": anchor }, document.createTextNode(value.toLocaleString("en")));
    const rule = (/** @type {number} */ value) =>
      svg("line", { class: "chart-rule", x1: MARGIN.left, x2: WIDTH - MARGIN.right, y1: down(value), y2: down(value) });
    const line = (/** @type {number[]} */ values, /** @type {number} */ index) =>
      svg("path", {
        class: `chart-line chart-${index}`,
        d: `M${values.map((value, at) => `${this.across(steps[at])} ${down(value)}`).join("L")}`,
      });
    this.cursor = svg("line", { class: "chart-cursor", y1: MARGIN.top, y2: HEIGHT - MARGIN.bottom });
    const drawing = svg(
      "svg",
      { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": `${title} in ${unit} by step` },
      ...y.ticks.flatMap((value) => [rule(value), label(MARGIN.left - 6, down(value) + 4, "end", value)]),
      ...x.ticks.map((step) => label(this.across(step), HEIGHT - 6, "middle", step)),
      ...Object.values(curves).map(line),
      this.cursor,
    );
    drawing.addEventListener("pointermove", (event) => {
      const box = drawing.getBoundingClientRect();
      const { clientX } = /** @type {PointerEvent} */ (event);
      const left = ((clientX - box.left) / box.width) * WIDTH;
      const share = (left - MARGIN.left) / (WIDTH - MARGIN.left - MARGIN.right);
      pointed(steps[nearest(steps, x.low + share * (x.high - x.low))]);
    });
    this.values = Object.keys(curves).map(() => el("output"));
    const legend = Object.keys(curves).map((name, index) =>
      el("li", { class: `chart-${index}` }, name, this.values[index]),
    );
    this.element = el(
      "figure",
      { class: "chart" },
      el("figcaption", {}, `${title}, ${unit}`),
      el("ul", {}, ...legend),
      drawing,
    );
  }

  /** @param {number} step */
  point(step) {
    this.at = step;
    for (const side of ["x1", "x2"]) this.cursor.setAttribute(side, String(this.across(step)));
    const index = this.steps.indexOf(step);
    Object.values(this.curves).forEach((values, curve) => (this.values[curve].textContent = values[index].toFixed(3)));
  }
}

/** @param {HTMLElement} root @param {any} data */
export async function collapse(root, { collapse: { runs, top } }) {
  const labels = Object.keys(runs);
  const steps = runs[labels[0]].step;
  const output = el("output");
  const go = (/** @type {number} */ step) => {
    slider.value = String(steps.indexOf(step));
    output.textContent = String(step);
    for (const chart of charts) chart.point(step);
  };
  const charts = Object.entries(CHARTS).map(([key, words]) => {
    const curves = Object.fromEntries(labels.map((label) => [label, runs[label][key]]));
    return new Chart(words, steps, curves, go);
  });
  const most = steps.length - 1;
  const slider = el("input", {
    type: "range",
    min: 0,
    max: most,
    value: most,
    oninput: () => go(steps[Number(slider.value)]),
  });
  root.replaceChildren(
    el("div", { class: "live-pair" }, ...charts.map(({ element }) => element)),
    el("label", {}, "Step ", slider, " ", output),
    el("p", {}, `ln K is ${top.toFixed(2)} nats: the entropy of an output that is the same for all prototypes.`),
  );
  go(steps[most]);
  Object.assign(root, { charts });
}
