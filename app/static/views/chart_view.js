// Curves of a training run over its steps: `app.views.view`.
//
// The prop `value` is { title, curves: [{ label, points: [[step, value], …] }] }; null as value interrupts a curve.
// The prop `marker` is a step, or null.

import { css, figure } from "../maths/format.js";
import { el, svg } from "./dom.js";
import { COLORS } from "./palette.js";
import { View } from "./view.js";

const EDGE = { left: 40, right: 8, top: 8, bottom: 20 };

export class ChartView extends View {
  title = el("h3");
  plot = svg("svg", { class: "lab-chart", role: "img" });
  legend = el("p", { class: "lab-legend lab-soft" });

  constructor(mounted) {
    super(mounted);
    this.mount(["value", "marker"], this.title, this.plot, this.legend);
  }

  async load() {
    return this.props.value;
  }

  show({ title, curves }) {
    this.title.textContent = title;
    for (const part of [this.title, this.plot, this.legend]) part.toggleAttribute("hidden", !curves.length);
    const swatch = ({ label }, at) => el("span", { class: "lab-swatch", style: `--pin: ${color(at)}` }, label);
    this.legend.replaceChildren(...curves.map(swatch));
    this.draw(title, curves);
    this.element.dataset.curves = String(curves.length); // tests wait for it
  }

  draw(title, curves) {
    const { plot, props } = this;
    const width = this.element.clientWidth;
    const height = Math.round(Math.min(360, Math.max(130, 0.4 * width)));
    const points = curves.flatMap((curve) => curve.points.filter(([, value]) => value !== null));
    const [steps, values] = [0, 1].map((axis) => bounds(points.map((point) => point[axis])));
    const x = (step) => EDGE.left + share(step, steps) * (width - EDGE.left - EDGE.right);
    const y = (value) => height - EDGE.bottom - share(value, values) * (height - EDGE.top - EDGE.bottom);
    const text = (words, attributes) => svg("text", attributes, document.createTextNode(words));
    const labels = [
      ...values.map((value) => text(figure(value, 2), { x: EDGE.left - 5, y: y(value) + 4, "text-anchor": "end" })),
      text(figure(steps[0]), { x: EDGE.left, y: height - 5 }),
      text(`step ${figure(steps[1])}`, { x: width - EDGE.right, y: height - 5, "text-anchor": "end" }),
    ];
    const lines = curves.map((curve, at) => svg("path", { d: path(curve.points, x, y), stroke: color(at) }));
    const at = props.marker ?? null;
    const marker = at !== null && svg("path", { d: `M${x(at)} ${EDGE.top}V${height - EDGE.bottom}`, class: "lab-now" });
    const frame = svg("path", { d: `M${EDGE.left} ${EDGE.top}V${height - EDGE.bottom}H${width}`, class: "lab-axis" });
    for (const [name, value] of Object.entries({ width, height, "aria-label": `${title} over the steps` }))
      plot.setAttribute(name, value);
    plot.replaceChildren(...[frame, ...lines, marker, ...labels].filter(Boolean));
  }

  resized() {
    this.reload();
  }
}

function color(at) {
  return css(COLORS.heads[(at + 7) % COLORS.heads.length]);
}

/** @param {number[]} numbers @returns {[number, number]} */
function bounds(numbers) {
  return numbers.length ? [Math.min(...numbers), Math.max(...numbers)] : [0, 1];
}

function share(value, [low, high]) {
  return high > low ? (value - low) / (high - low) : 0.5;
}

/** Draw a curve; it begins anew after a missing value. */
function path(points, x, y) {
  let pen = "M";
  return points
    .map(([step, value]) => {
      if (value === null) return (pen = "M") && "";
      const part = `${pen}${x(step).toFixed(1)} ${y(value).toFixed(1)}`;
      pen = "L";
      return part;
    })
    .join("");
}
