// What the page does without its server: views by name for scripts of events, the address, files dropped and pasted.

import { read, write } from "./views/address.js";

const IMAGE_TABS = ["explore", "segment", "compare", "match", "class-map", "training", "learn"];

/** The view in a component of the page: `lab("explore")` in scripts of events. @param {string} id */
function lab(id) {
  return /** @type {any} */ (document.querySelector(`#${id} .lab-view`))?.view;
}

/** Settings of a view, from the controls of its names. @param {string} id @param {string[]} names @param {any[]} values */
export function setView(id, names, values) {
  lab(id)?.set(Object.fromEntries(names.map((name, at) => [name, values[at]])));
}

/** What controls of these names shall show. @param {string} id @param {string[]} names */
export function stateOf(id, names) {
  return names.map((name) => lab(id).state[name]);
}

Object.assign(window, { lab });

/** Image, model and resolution as the page opens. @type {any[]} */
let start = [];

/** A click on the strip. @param {number} index @param {string} album @param {string} ask */
export function choose(index, album, ask) {
  return [album.split("\n")[index], String(Number(ask) + 1)];
}

/** The tab of the address until it is open: Gradio first selects another one. */
let wanted = read().tab ?? "";

/** At the start: what the address asks for. @param {any[]} question  image, model, resolution, and the count of questions */
export function restore(...question) {
  start = question.slice(0, 3);
  /** @type {Record<string, string>} */
  const words = { ...read(), tab: wanted };
  const [photo, model, size, ask] = question;
  if (words.tab) openTab(words.tab);
  const asked = [words.photo ?? photo, words.model ?? model, words.size ? Number(words.size) : size];
  return [...asked, asked.every((one, at) => one === question[at]) ? ask : String(Number(ask) + 1)];
}

/** After an answer: write what it is about. @param {string} photo @param {string} model @param {number} size */
export function note(photo, model, size) {
  const own = photo.includes("/"); // an image of the user's own is in no address
  write({ photo: own ? "" : photo, model, size }, { photo: start[0], model: start[1], size: start[2] });
}

/** After a refusal: what is on the screen. @param {any[]} question */
export function shown(...question) {
  const view = ["explore", "segment"].map(lab).find((one) => one?.encoding);
  if (!view) {
    const nothing = { photo: "", model: "", size: "" };
    write(nothing); // a view that is not mounted yet reads the address
    Object.assign(lab("explore")?.words ?? {}, nothing);
    lab("explore")?.look();
    return start;
  }
  const { photo, model, size } = view.encoding.value;
  return question.length ? [photo, model, size] : [];
}

/** @param {string} name */
export function tab(name) {
  document.body.dataset.tab = name;
  document.body.toggleAttribute("data-image", IMAGE_TABS.includes(name));
  if (wanted && wanted !== name) return;
  wanted = "";
  write({ tab: name }, { tab: "explore" });
}

const TABS = "#tabs [role=tab], #tabs .overflow-dropdown button"; // on a phone the last ones are in a menu

/** Open a tab as soon as Gradio has drawn it. @param {string} name @param {number} [tries] */
function openTab(name, tries = 30) {
  const index = Number(/** @type {any} */ (window).labTabs?.indexOf(name));
  const buttons = /** @type {NodeListOf<HTMLElement>} */ (document.querySelectorAll(TABS));
  if (!tries) wanted = "";
  if (!tries || !wanted) return;
  if (buttons[index]?.matches("[aria-selected=true], .selected")) return;
  buttons[index]?.click();
  setTimeout(() => openTab(name, tries - 1), 100); // Gradio selects the first tab when it has drawn all
}

// ---- files dropped and pasted anywhere go through the upload button of the images, or of the clips on Video

/** @param {Event & { dataTransfer?: DataTransfer | null, clipboardData?: DataTransfer | null }} event */
function take(event) {
  const video = document.body.dataset.tab === "video";
  const every = [...((event.dataTransfer ?? event.clipboardData)?.files ?? [])];
  const files = video ? every.slice(0, 1) : every.filter(({ type }) => type.startsWith("image/"));
  const selector = video ? "[data-testid='Open a clip-upload-button']" : "#images input[type=file]";
  const input = /** @type {HTMLInputElement | null} */ (document.querySelector(selector));
  if (!files.length || !input || !(video || document.body.hasAttribute("data-image"))) return;
  event.preventDefault();
  const moved = new DataTransfer();
  for (const file of files) moved.items.add(file);
  input.files = moved.files;
  input.dispatchEvent(new Event("change", { bubbles: true }));
}

window.addEventListener("dragover", (event) => event.preventDefault());
window.addEventListener("drop", take);
window.addEventListener("paste", take);
