// The tools of a mask drawn by hand: what the pointer does, undo, a file. Segment and Compare have the same.

import { controls, find } from "../dom.js";

/** @typedef {import("./brush.js").Brush} Brush */

/**
 * Let a form of tools work one painting, on one stage or on several that show it.
 * @param {HTMLElement} form @param {Brush[]} brushes  the first one does what buttons ask
 * @param {import("../lab.js").Asker} asker
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
  form.addEventListener("submit", (event) => event.preventDefault());
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

/** Whether a key meant something to a painting. @param {KeyboardEvent} event @param {Brush} brush */
export function drawingKey({ key, ctrlKey, metaKey, shiftKey }, brush) {
  if ((ctrlKey || metaKey) && key.toLowerCase() === "z") brush.act(shiftKey ? "redo" : "undo");
  else if (!ctrlKey && !metaKey && (key === "Delete" || key === "Backspace")) brush.act("clear");
  else return false;
  return true;
}
