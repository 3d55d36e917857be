// Four runs, with and without centering and sharpening: one step on all curves, by pointer, keys or the slider.

import { find } from "../../app/static/dom.js";
import { html, render } from "../../app/static/vendor/lit-html.js";
import { LineChart } from "../../app/static/widgets/chart.js";

const CHARTS = { teacher_entropy: ["Entropy of the teacher", "nats"], kl: ["KL of teacher and student", "nats"] };

/** @param {HTMLElement} root @param {any} data */
export function collapse(root, { collapse: { runs, top } }) {
  const labels = Object.keys(runs);
  const steps = runs[labels[0]].step;
  render(
    html`
      <div class="live-pair">${Object.keys(CHARTS).map((key) => html`<div data-chart=${key}></div>`)}</div>
      <label>Step <input type="range" min="0" max=${steps.length - 1} value=${steps.length - 1} /> <output></output></label>
      <p>ln K is ${top.toFixed(2)} nats: the entropy of an answer that is the same on all prototypes.</p>
    `,
    root,
  );
  const slider = find(root, "input");
  const charts = Object.entries(CHARTS).map(([key, [title, unit]]) => {
    const curves = labels.map((label, index) => ({ key: label, label, dashed: index === 3 }));
    const chart = new LineChart(find(root, `[data-chart=${key}]`), { title, unit, curves }, (step) => go(step));
    const drawn = labels.map((label) => [label, { steps: runs[label].step, values: runs[label][key] }]);
    chart.draw([{ name: "", curves: Object.fromEntries(drawn) }]);
    return chart;
  });
  const go = (/** @type {number | null} */ step) => {
    const at = step === null ? Number(slider.value) : steps.indexOf(step);
    slider.value = String(at);
    find(root, "label output").textContent = String(steps[at]);
    for (const chart of charts) chart.point(steps[at]);
  };
  slider.addEventListener("input", () => go(steps[Number(slider.value)]));
  go(null);
  Object.assign(root, { charts });
}
