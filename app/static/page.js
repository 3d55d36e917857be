// The page without its server: views by name, the address, files that are dropped and pasted.

import { read, restoreQuery, write } from "./views/address.js";

/** Return the view in a component, for scripts of events. @param {string} id */
function viewOf(id) {
  return document.querySelector(`#${id} .lab-view`)?.["view"];
}

Object.assign(window, { viewOf });

/** Set the settings of a view from its controls. @param {string[]} names @param {any[]} values */
export function setView(id, names, values) {
  viewOf(id)?.set(Object.fromEntries(names.map((name, at) => [name, values[at]])));
}

/** Return the settings of a view for its controls. @param {string[]} names */
export function stateOf(id, names) {
  return names.map((name) => viewOf(id).state[name]);
}

let start = []; // image, model and resolution as the page opens

/** Choose an image of the strip. @param {number} index @param {string} album @param {string} count */
export function choose(index, album, count) {
  return [album.split("\n")[index], String(Number(count) + 1)];
}

let pendingTab = read().tab ?? ""; // the tab of the address until it is open: Gradio first selects another one

/** Return the inputs that the address names. @param {...any} inputs  image, model, resolution, number of requests */
export function restore(...inputs) {
  start = inputs.slice(0, 3);
  const words = read();
  const [photo, model, size, count] = inputs;
  openTab(pendingTab);
  markThumbnail(photo);
  const requested = [words.photo ?? photo, words.model ?? model, words.size ? Number(words.size) : size];
  return [...requested, requested.every((one, at) => one === inputs[at]) ? count : String(Number(count) + 1)];
}

/** Write the inputs of a response into the address. @param {string} photo */
export function note(photo, model, size) {
  const own = photo.includes("/"); // an uploaded image has no address
  write({ photo: own ? "" : photo, model, size }, { photo: start[0], model: start[1], size: start[2] });
  markThumbnail(photo);
}

/** Mark the thumbnail of the image on the screen. @param {string} photo */
function markThumbnail(photo) {
  const album = document.querySelector("#album :is(textarea, input)")?.["value"].split("\n") ?? [];
  const marked = album.indexOf(photo);
  document.querySelectorAll("#strip .gallery-item").forEach((button, at) => {
    button.setAttribute("aria-current", String(at === marked));
  });
}

/** Return the visible inputs, after a refusal. */
export function shown() {
  const view = ["explore", "segment"].map(viewOf).find((one) => one?.encoding);
  if (!view) {
    const nothing = { photo: "", model: "", size: "" };
    write(nothing); // a view that is not mounted yet reads the address
    Object.assign(viewOf("explore")?.words ?? {}, nothing);
    viewOf("explore")?.reload();
    return start;
  }
  const { photo, model, size } = view.encoding.value;
  return [photo, model, size];
}

/** Show the images of the header on tabs that use them, and write the tab into the address. @param {string} name */
export function tab(name, usesImage) {
  document.body.dataset.tab = name;
  document.body.toggleAttribute("data-image", usesImage);
  if (pendingTab && pendingTab !== name) return;
  const chosen = !pendingTab;
  pendingTab = "";
  write({ tab: name }, { tab: "explore" }, chosen);
}

/** Open the tab of an earlier entry of the history; everything else stays as it is on the screen. */
function goBack() {
  pendingTab = read().tab ?? "explore";
  restoreQuery({ tab: pendingTab }, { tab: "explore" });
  openTab(pendingTab);
}

const TABS = "#tabs [role=tab], #tabs .overflow-dropdown button"; // on a phone the last ones are in a menu

/** Open a tab as soon as Gradio has drawn it, which first selects the first tab. @param {string} name */
function openTab(name, tries = 30) {
  if (!tries) pendingTab = "";
  if (!pendingTab) return;
  const button = document.querySelectorAll(TABS)[window["labTabs"]?.indexOf(name)];
  if (button?.matches("[aria-selected=true], .selected")) {
    if (document.body.dataset.tab === name) pendingTab = "";
    return;
  }
  button?.["click"]();
  setTimeout(() => openTab(name, tries - 1), 100);
}

/** Send files through the upload button of the images, or of the clips on Video. */
function take(event) {
  const video = document.body.dataset.tab === "video";
  const every = [...((event.dataTransfer ?? event.clipboardData)?.files ?? [])];
  const files = video ? every.slice(0, 1) : every.filter(({ type }) => type.startsWith("image/"));
  const selector = video ? "[data-testid='Open a clip-upload-button']" : "#images input[type=file]";
  const input = document.querySelector(selector);
  if (!files.length || !input || !(video || document.body.hasAttribute("data-image"))) return;
  event.preventDefault();
  const moved = new DataTransfer();
  for (const file of files) moved.items.add(file);
  Object.assign(input, { files: moved.files });
  input.dispatchEvent(new Event("change", { bubbles: true }));
}

window.addEventListener("popstate", goBack);
window.addEventListener("dragover", (event) => event.preventDefault());
window.addEventListener("drop", take);
window.addEventListener("paste", take);
