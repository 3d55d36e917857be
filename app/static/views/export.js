// The dialog that exports what a view shows: each section has options and one button per format.

import { resized } from "../maths/labels.js";
import { el, button, openDialog } from "./dom.js";
import { Refusal } from "./encoding.js";
import { cocoFile, maskFile, save } from "./files.js";
import { pictureFile } from "./picture.js";

/** Open a dialog with the sections that a view offers. @param {import("./view.js").View} view */
export function openExport(view) {
  const status = el("p", { role: "status", class: "lab-soft" });
  const write = async (make, options, ending) => {
    status.textContent = "Writing the file …";
    try {
      const file = await make(options, (words) => (status.textContent = words));
      if (file) save(file, view.fileName, ending);
      status.textContent = "";
    } catch (error) {
      status.textContent = error.message;
      if (!(error instanceof Refusal)) throw error;
    }
  };
  const sections = view.sections().map(({ title, options, formats }) => {
    const form = /** @type {any} */ (el("form", { class: "lab-tools" }, ...Object.entries(options).map(field)));
    const read = () => Object.fromEntries([...form.elements].map(({ name, type, checked, value }) => [name, type === "checkbox" ? checked : value])); // prettier-ignore
    const buttons = formats.map(([label, ending, make]) =>
      button(label, () => write(make, read(), ending), { "data-ending": ending }),
    );
    return el("section", {}, el("h4", {}, title), form, el("div", { class: "lab-tools" }, ...buttons));
  });
  openDialog(view.element, "Export", ...sections, status);
}

/** @param {string} title @param {Format[]} formats @param {Section["options"]} [options] @returns {Section} */
export function section(title, formats, options = {}) {
  return { title, formats, options };
}

/** @param {[string, string | [string, string][]]} option */
function field([name, choice]) {
  if (typeof choice === "string")
    return el("label", {}, el("input", { type: "checkbox", name, checked: name !== "examples" }), choice);
  const entries = choice.map(([value, label]) => el("option", { value }, label));
  return el("label", {}, el("select", { name }, ...entries));
}

/**
 * Return the section of the stages in an element as they are on the screen.
 * @param {Element} place @param {Parts["scale"]} [scale]
 * @returns {Section}
 */
export function shownSection(place, scale) {
  const has = (parts) => place.querySelector(parts);
  const options = {
    ...(has(".lab-sheet > svg > *, .lab-lines > *") && { outline: "Outlines" }),
    ...(has(".lab-markers > *") && { pins: "Pins" }),
    ...(scale && { scale: "Scale" }),
  };
  const make = (kind) => (shown) => pictureFile(place, kind, { ...shown, scale: shown.scale && scale });
  const formats = ["png", "svg", "pdf"].map(
    (kind) => /** @type {Format} */ ([kind.toUpperCase(), `shown.${kind}`, make(kind)]),
  );
  return section("As shown", formats, options);
}

/** Return the formats of a mask at the size of its image. @param {() => Labels} mask @param {Size} size @returns {Format[]} */
export function maskFormats(mask, size) {
  const pixels = () => resized(mask(), { rows: size.height, columns: size.width }).values;
  return [
    ["PNG, one channel", "mask.png", () => maskFile(pixels(), size)],
    ["COCO", "mask.json", () => cocoFile(pixels(), size)],
  ];
}
