// The tools of a mask drawn by hand: what the pointer does, undo, a file. Segment and Compare have the same.

import { controls, find } from "../dom.js";

/**
 * Let a form of tools work one painting, on one stage or on several that show it.
 * @param {HTMLElement} form @param {Brush[]} brushes  the first one does what buttons ask
 * @param {Asker} asker
 */
export function drawingTools(form, brushes, asker) {
  const { tool, brush, file } = controls(form);
  const [first] = brushes;
  if (matchMedia("(pointer: coarse)").matches) tool.value = "point"; // a finger scrolls the page until it is told to draw
  const listen = () => {
    for (const one of brushes) {
      one.erasing = tool.value === "erase";
      one.stage.paints = tool.value !== "point";
      one.stage.element.dataset.tool = tool.value;
      one.size = Number(brush?.value ?? 8) / 100;
    }
  };
  form.addEventListener("input", listen);
  file.addEventListener("change", () => {
    const [chosen] = file.files ?? [];
    if (chosen) asker.attempt(() => first.load(chosen));
    file.value = ""; // so that the same file can be chosen again
  });
  find(form, ".lab-open-mask").addEventListener("click", () => file.click());
  for (const act of /** @type {const} */ (["undo", "clear", "invert"])) {
    form.querySelector(`.lab-${act}`)?.addEventListener("click", () => first.act(act));
  }
  listen();
}

/** What keys mean to a painting, as a stage hears them. @param {() => Brush} brush */
export function drawingKeys(brush) {
  return {
    undo: (/** @type {boolean} */ again) => brush().act(again ? "redo" : "undo"),
    remove: () => brush().act("clear"),
  };
}
