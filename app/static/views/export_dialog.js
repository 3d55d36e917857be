// The dialog that exports what a view shows: each section has options and one button per format.

import { button, el } from "./dom.js";
import { Refusal } from "./encoding.js";
import { save } from "./files.js";
import { pictureFile } from "./picture.js";

/**
 * make: returns a file of the browser, or null if the view asks the server by its event "exported".
 * @typedef {{ label: string, ending: string, make: (options: Record<string, any>) => Promise<Blob | null> | Blob | null }} Format
 * options: name to [label, default], or to a list of [value, label].
 * @typedef {{ title: string, options?: Record<string, [string, boolean] | [string, string][]>, formats: Format[] }} Section
 */

/** Open a dialog with the sections that a view offers. @param {import("./view.js").View} view @param {Section[]} sections */
export function openExport(view, sections) {
  const { title = "Export" } = view.props;
  const status = el("p", { role: "status", class: "lab-soft" });
  const close = button("Close", () => dialog.close(), { class: "lab-close" });
  const parts = sections.filter(Boolean).map((section) => sectionOf(view, section, status));
  const heading = el("h3", {}, typeof title === "string" ? title : "Export");
  const dialog = /** @type {any} */ (el("dialog", { class: "lab-export", "aria-label": "Export" }, el("header", {}, heading, close), ...parts, status)); // prettier-ignore
  dialog.addEventListener("close", () => dialog.remove());
  view.element.append(dialog);
  dialog.showModal();
}

/** @param {any} view @param {Section} section @param {HTMLElement} status */
function sectionOf(view, { title, options = {}, formats }, status) {
  const inputs = Object.entries(options).map(([name, choice]) => ({ name, ...inputOf(choice) }));
  const read = () => Object.fromEntries(inputs.map(({ name, input }) => [name, input.type === "checkbox" ? input.checked : input.value])); // prettier-ignore
  const write = async ({ ending, make }) => {
    status.textContent = "Writing the file …";
    try {
      const file = await make(read());
      if (file) save(file, view.fileName, ending);
      status.textContent = "";
    } catch (error) {
      status.textContent = error.message;
      if (!(error instanceof Refusal)) throw error;
    }
  };
  const buttons = formats.map((format) => button(format.label, () => write(format), { "data-ending": format.ending }));
  const choices = inputs.map(({ label }) => label);
  return el("section", {}, el("h4", {}, title), el("div", { class: "lab-tools" }, ...choices), el("div", { class: "lab-tools" }, ...buttons)); // prettier-ignore
}

/** @param {[string, boolean] | [string, string][]} choice */
function inputOf(choice) {
  if (typeof choice[0] === "string") {
    const input = el("input", { type: "checkbox" });
    input.checked = Boolean(choice[1]);
    return { input, label: el("label", {}, input, choice[0]) };
  }
  const values = /** @type {[string, string][]} */ (choice);
  const input = el("select", {}, ...values.map(([value, label]) => el("option", { value }, label)));
  return { input, label: el("label", {}, input) };
}

/**
 * Return the section of a stage as it is on the screen.
 * @param {import("./stage.js").Stage} stage @param {() => { ends: string[], stops: string[] } | null} scaleOf
 * @returns {Section}
 */
export function shownSection(stage, scaleOf = () => null) {
  const has = (part) => part.childElementCount > 0;
  const options = {
    ...(has(stage.ink) && { outline: ["Outlines", true] }),
    ...(has(stage.markers) && { pins: ["Pins", true] }),
    ...(scaleOf() && { scale: ["Scale", true] }),
  };
  /** @returns {Format["make"]} */
  const make = (kind) => ({ outline, pins, scale }) => pictureFile(stage, kind, { outline, pins, scale: scale ? scaleOf() : null }); // prettier-ignore
  const formats = ["png", "svg", "pdf"].map((kind) => ({ label: kind.toUpperCase(), ending: `shown.${kind}`, make: make(kind) })); // prettier-ignore
  return { title: "As shown", options: /** @type {any} */ (options), formats };
}
