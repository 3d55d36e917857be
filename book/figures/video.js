// A clip, and the objects of its first frame carried along: the slider goes from frame to frame.

import { find } from "../../app/static/dom.js";
import { fromRuns } from "../../app/static/maths/painting.js";
import { html, render } from "../../app/static/vendor/lit-html.js";
import { PatchCanvas } from "../../app/static/widgets/paint.js";

/** @param {HTMLElement} root @param {any} data */
export function video(root, { video: clip }) {
  const { width, height, frames, masks, colors } = clip;
  render(
    html`
      <div class="lab-stage" style=${`--ratio: ${width / height}; --opacity: 0.6`}>
        <div class="lab-sheet">
          <img class="lab-photo" alt="" />
          <canvas class="lab-map" aria-hidden="true"></canvas>
        </div>
      </div>
      <div class="live-row">
        <label>Frame <input type="range" min="0" max=${frames.length - 1} value="0" /> <output></output></label>
        <label><input type="checkbox" checked /> masks</label>
      </div>
      <p>The first frame's masks are given; every later patch takes the label of the patches most like it in the frames before.</p>
    `,
    root,
  );
  const [slider, shown] = /** @type {HTMLInputElement[]} */ ([...root.querySelectorAll("input")]);
  const canvas = new PatchCanvas(find(root, "canvas"));
  canvas.resize(height, width);
  const go = () => {
    const number = Number(slider.value);
    Object.assign(find(root, "img"), { src: frames[number], alt: `Frame ${number + 1} of the clip` });
    find(root, "output").textContent = `${number + 1} of ${frames.length}`;
    if (shown.checked) canvas.labels(fromRuns(masks[number], width * height), colors);
    else canvas.clear();
  };
  for (const control of [slider, shown]) control.addEventListener("input", go);
  go();
  Object.assign(root, { canvas });
}
