// The page around the views: views by name, the address, files that are dropped and pasted.

import { QUANTITIES } from "./maths/quantities.js";
import { read, restoreQuery, write } from "./views/address.js";
import { openViews, refuseOnStage } from "./views/view.js";

/** Return the view in a component, for scripts of events. @param {string} id */
function viewOf(id) {
  return document.querySelector(`#${id} .lab-view`)?.["view"];
}

Object.assign(window, { viewOf });

/** Show the variant of a mode in Explore. @param {string} mode @param {string[]} variants  chosen in each mode */
export function setQuantity(mode, ...variants) {
  viewOf("explore")?.set({ quantity: variants.find((name) => QUANTITIES[name].mode === mode) });
}

/** Return mode, variants and settings of Explore for its controls. @param {string[]} modes @param {string[]} names */
export function stateOf(modes, names) {
  const { state, definition, quantity } = viewOf("explore");
  modes.forEach((mode, at) => {
    VARIANTS[at] = mode === definition.mode ? quantity : VARIANTS[at];
  });
  return [definition.mode, ...VARIANTS, ...names.map((name) => state[name])];
}

const VARIANTS = ["attention", "key-similarity", "key-pca"]; // the last shown in each mode

const FRAME = 700; // milliseconds of a checkpoint
let playing = 0; // timer of the film

/** Show the checkpoints of a run one after the other, from the first if the last is shown; or stop. */
export function playRun() {
  const [slider, play] = ["#checkpoint input[type=range]", "#play-run"].map((name) => document.querySelector(name));
  const { element } = viewOf("checkpoints");
  let before = "";
  const step = () => {
    const [now, most] = [Number(slider["value"]), Number(slider["max"])];
    if (!slider.checkVisibility() || (now >= most && before)) return stop();
    if (element.dataset.token === before) return; // it is not computed yet
    before = element.dataset.token;
    slider["value"] = now >= most ? 0 : now + 1;
    slider.dispatchEvent(new Event("input", { bubbles: true }));
  };
  const stop = () => {
    clearInterval(playing);
    playing = 0;
    play.textContent = "Play";
  };
  if (playing) return stop();
  play.textContent = "Stop";
  step();
  playing = window.setInterval(step, FRAME);
}

/** Return the image that the rail announces, and the next number of requests. @param {string} count */
export function chosenImage(count) {
  return [viewOf("images").chosen, String(Number(count) + 1)];
}

/** The page as it opens: names of the tabs, values of the controls in the address by name, and choices of some. */
let opening = { tabs: [], start: {}, choices: {} };
const HEADER = ["image", "model", "size"];
let answered = null; // image, model and resolution of the last response
let pendingTab = read().tab ?? ""; // the tab of the address until it is open: Gradio first selects another one

/**
 * Return an update of the tabs, the number of requests and the controls, as the address says.
 * @param {typeof opening} page @param {string} count
 */
export function restore(page, count) {
  opening = page;
  const { start, choices, tabs } = page;
  const named = read();
  const values = Object.entries(start).map(([name, value]) => {
    if (!(name in named) || choices[name]?.includes(named[name]) === false) return value;
    return value.constructor(named[name]);
  });
  write(Object.fromEntries(Object.keys(start).map((name, at) => [name, values[at]])), start); // unknown ones are left out
  const isStart = HEADER.every((name, at) => values[at] === start[name]);
  if (!tabs.includes(pendingTab)) pendingTab = "";
  viewOf("images")?.mark(values[0]);
  return [
    { __type__: "update", selected: pendingTab || tabs[0] },
    isStart ? count : String(Number(count) + 1),
    ...values,
  ];
}

/** Write the image, model and resolution of a response into the address. @param {string} image */
export function writeHeader(image, model, size) {
  answered = [image, model, size];
  viewOf("images")?.mark(image); // the rail may be younger than the choice in the address
  write({ image, model, size }, opening.start);
}

/** Write the value of a control into the address. @param {string} name @param {any} value */
export function writeControl(name, value) {
  write({ [name]: value }, opening.start);
}

/** Return image, model and resolution on the screen, after a refusal. */
export function shown() {
  const values = answered ?? HEADER.map((name) => opening.start[name]);
  viewOf("images")?.mark(values[0]);
  for (const view of openViews()) view.endPreview();
  if (answered) return values;
  write(Object.fromEntries(HEADER.map((name) => [name, ""]))); // a view that is not mounted yet reads the address
  Object.assign(viewOf("explore") ?? {}, { linked: {} });
  viewOf("explore")?.reload(true);
  return values;
}

const UNUSED = { size: "This tab has a resolution of its own.", model: "This tab has models of its own." };
const PHONE = window.matchMedia("(width <= 760px)"); // as in the style sheet

/** Place header and rail where they are on the screen, because the keyboard follows the order of the elements. */
function arrange() {
  const [rail, tabs, choices] = ["#rail", ".tab-wrapper", "#choices"].map((name) => document.querySelector(name));
  const work = [...document.querySelectorAll(".work")].find((one) => one.checkVisibility());
  if (PHONE.matches) {
    tabs.before(choices);
    work?.after(rail);
  } else tabs.after(choices, rail);
  document.querySelector("#work")?.removeAttribute("id");
  if (work) work.id = "work"; // of the skip link
}

/** Enable what a tab uses, and write the tab into the address. @param {string} name @param {string[]} uses */
export function tab(name, uses) {
  document.body.dataset.tab = name;
  document.body.dataset.uses = uses.join(" ");
  const facts = document.getElementById("model-facts");
  facts.removeAttribute("data-reason");
  for (const [id, reason] of Object.entries(UNUSED)) {
    const used = uses.includes(id);
    const control = document.getElementById(id);
    control.title = used ? "" : reason;
    if (!used) facts.dataset.reason = reason;
    for (const part of control.children) part.toggleAttribute("inert", !used);
  }
  arrange();
  if (pendingTab && pendingTab !== name) return;
  const chosen = !pendingTab;
  pendingTab = "";
  write({ tab: name }, { tab: "explore" }, chosen);
}

const TABS = "#tabs [role=tab], #tabs .overflow-dropdown button"; // on a phone the last ones are in a menu

/** Open the tab of another entry of the history; everything else stays as it is on the screen. */
function goBack() {
  const { tabs } = opening;
  pendingTab = read().tab ?? tabs[0];
  restoreQuery({ tab: pendingTab }, { tab: tabs[0] });
  if (document.body.dataset.tab === pendingTab) pendingTab = "";
  else document.querySelectorAll(TABS)[tabs.indexOf(pendingTab)]?.["click"]();
}

/** Take files that are dropped or pasted: clips on Video, images elsewhere. */
function take(event) {
  document.body.removeAttribute("data-drop");
  const files = [...((event.dataTransfer ?? event.clipboardData)?.files ?? [])];
  if (!files.length) return;
  event.preventDefault();
  viewOf(document.body.dataset.tab === "video" ? "clips" : "images")?.take(files);
}

/** Show where a file that is dragged over the page will land. */
function drag(event) {
  event.preventDefault();
  document.body.toggleAttribute("data-drop", event.dataTransfer?.types.includes("Files"));
}

/** Close the list of a dropdown that the keyboard leaves: Gradio opens it again. @param {KeyboardEvent} event */
function leaveList(event) {
  const { target, key } = /** @type {any} */ (event);
  if (key !== "Tab" || target.getAttribute?.("role") !== "combobox") return;
  event.stopPropagation();
  target.blur();
}

const toasts = document.querySelector(".toast-wrap"); // of Gradio, in a corner of the page

/** Say a new error where the user looks: in the open dialog, or in the stage. */
function moveErrors() {
  for (const toast of toasts.querySelectorAll(".toast-body.error:not([data-moved])")) {
    const sentence = [...toast.querySelectorAll(".toast-message-text")].at(-1)?.textContent;
    const status = document.querySelector("dialog[open] [role=status]");
    if (!sentence || !(status ?? refuseOnStage(sentence))) continue;
    if (status) status.textContent = sentence;
    toast.toggleAttribute("data-moved", true);
    toast.querySelector("button")?.click();
  }
}

new MutationObserver(moveErrors).observe(toasts, { childList: true, subtree: true });
PHONE.addEventListener("change", arrange);
window.addEventListener("keydown", leaveList, true);
window.addEventListener("popstate", goBack);
window.addEventListener("dragover", drag);
window.addEventListener("dragleave", (event) => event.relatedTarget || document.body.removeAttribute("data-drop"));
for (const name of ["drop", "paste"]) window.addEventListener(name, take);
