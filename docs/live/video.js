// A clip, and the objects of its first frame carried along: the slider goes from frame to frame.

import { fromRuns } from "../../app/static/maths/painting.js";
import { el } from "../../app/static/views/dom.js";
import { PatchCanvas } from "../../app/static/views/paint.js";

/** @param {HTMLElement} root @param {any} data */
export async function video(root, { video: clip }) {
  const { width, height, frames, masks, colors } = clip;
  const image = el("img", { class: "lab-image", alt: "" });
  const map = el("canvas", { class: "lab-map", "aria-hidden": "true" });
  const canvas = new PatchCanvas(/** @type {HTMLCanvasElement} */ (map));
  const output = el("output");
  const go = () => {
    const number = Number(slider.value);
    Object.assign(image, { src: frames[number], alt: `Frame ${number + 1} of the clip` });
    output.textContent = `${number + 1} of ${frames.length}`;
    if (shown.checked)
      canvas.labels({ rows: height, columns: width, values: fromRuns(masks[number], width * height) }, colors);
    else canvas.clear();
  };
  const slider = el("input", { type: "range", min: 0, max: frames.length - 1, value: 0, oninput: go });
  const shown = el("input", { type: "checkbox", checked: true, oninput: go });
  const ratio = `--ratio: ${width / height}; --opacity: 0.6`;
  const stage = el("div", { class: "lab-stage" }, el("div", { class: "lab-sheet" }, image, map));
  root.replaceChildren(
    el("div", { class: "lab-view", style: ratio }, el("div", { class: "lab-cell" }, stage)),
    el("div", { class: "live-row" }, el("label", {}, "Frame ", slider, " ", output), el("label", {}, shown, " masks")),
    el(
      "p",
      {},
      "The masks of the first frame are given. Every later patch takes the label of the most similar patches in the frames before.",
    ),
  );
  canvas.resize(height, width);
  go();
  Object.assign(root, { canvas });
}
