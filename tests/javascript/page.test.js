// The page around the views: its address and history, tabs, controls, files that are dropped, and errors.

import assert from "node:assert/strict";
import { mock, test } from "node:test";
import { Element, media, windowEvents } from "./document.js";

const TABS = ["explore", "video", "match"];
const START = { image: "sheep", model: "embedded", size: 224, mass: 60 };
const PAGE = { tabs: TABS, start: START, choices: { model: ["embedded", "other"] } };

/** An element with attributes and children. @returns {any} */
function part(tag, attributes = {}, ...children) {
  const element = new Element(tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

let pages = 0;

/** A new page with an address; `calls` are those of its views, `history` what became of the address. */
async function open(search = "") {
  const [calls, history] = [[], []];
  const note = (name) => (...values) => void calls.push([name, ...values]); // prettier-ignore
  const view = (id, values) => {
    const element = part("div", { class: "lab-view" });
    const made = { element, ...Object.fromEntries(["mark", "take", "set", "reload", "endPreview", "refuse"].map((name) => [name, note(`${id} ${name}`)])), ...values }; // prettier-ignore
    element["view"] = made;
    return [part("div", { id }, element), made];
  };
  const [explore, explorer] = view("explore", { state: { mass: 30 }, definition: { mode: "attention" }, quantity: "logits", linked: { image: "x" } }); // prettier-ignore
  explorer.element.append(part("div", { class: "lab-cell" }));
  const [images] = view("images", { chosen: "owl" });
  const [clips] = view("clips", {});
  const [checkpoints, { element: film }] = view("checkpoints", {});
  const buttons = TABS.map((name) => part("button", { role: "tab", name, onclick: "" }));
  const [rail, choices, toasts] = ["rail", "choices", "toasts"].map((id) => part("div", { id, class: id === "toasts" ? "toast-wrap" : "" })); // prettier-ignore
  const tabs = part("div", { class: "tab-wrapper" });
  const works = [part("div", { class: "work" }), part("div", { class: "work" })];
  const controls = ["size", "model"].map((id) => part("div", { id }, part("div"), part("div")));
  const slider = part("input", { type: "range", value: "0", max: "2" });
  const play = part("button", { id: "play-run" });
  const whole = part(
    "main",
    {},
    choices,
    tabs,
    rail,
    ...works,
    explore,
    images,
    clips,
    checkpoints,
    toasts,
    ...controls,
  );
  whole.append(part("p", { id: "model-facts" }), part("div", { id: "tabs" }, ...buttons), part("div", { id: "checkpoint" }, slider), play); // prettier-ignore
  document.body.replaceChildren(whole);
  for (const name of ["tab", "drop"]) delete document.body.dataset[name];
  windowEvents.listeners = {};
  const location = { search, pathname: "/" };
  const change = (kind) => (_, __, address) => {
    location.search = address.startsWith("?") ? address : "";
    history.push([kind, location.search]);
  };
  Object.assign(globalThis, { location, history: { state: null, pushState: change("push"), replaceState: change("replace") } }); // prettier-ignore
  for (const button of buttons) button.addEventListener("click", () => calls.push(["click", button.name]));
  const page = await import(`../../app/static/page.js?${(pages += 1)}`);
  const order = () => whole.children.filter((one) => [tabs, choices, rail, ...works].includes(one)).map((one) => [tabs, choices, rail, ...works].indexOf(one)); // prettier-ignore
  return { page, calls, history, location, explorer, film, slider, play, controls, works, toasts, whole, order };
}

for (const [search, found, count, address] of [
  ["", {}, "7", ""],
  ["?image=owl&size=112&mass=30", { image: "owl", size: 112, mass: 30 }, "8", "?image=owl&size=112&mass=30"],
  ["?mass=30&model=other", { model: "other", mass: 30 }, "8", "?mass=30&model=other"],
  ["?mass=30&model=unknown", { mass: 30 }, "7", "?mass=30"],
  ["?tab=video", { tab: "video" }, "7", "?tab=video"],
  ["?tab=unknown", {}, "7", "?tab=unknown"],
])
  test(`a page with the address "${search}" opens with its values`, async () => {
    const { page, calls, location } = await open(search);
    const { tab = "explore", ...values } = /** @type {any} */ (found);
    const shown = { ...START, ...values };
    assert.deepEqual(page.restore(PAGE, "7"), [{ __type__: "update", selected: tab }, count, ...Object.values(shown)]);
    assert.deepEqual([location.search, calls], [address, [["images mark", shown.image]]]);
  });

test("an opened tab is in the address and the history, and a tab of an entry is opened", async () => {
  const { page, history, calls, location } = await open("?tab=match");
  page.restore(PAGE, "1");
  page.tab("explore", []); // Gradio opens another one first
  page.tab("match", []);
  assert.deepEqual(history, []);
  page.tab("video", []);
  page.tab("explore", []);
  assert.deepEqual(history.splice(0), [["push", "?tab=video"], ["push", ""]]); // prettier-ignore
  page.writeControl("mass", 20);
  calls.length = 0;
  location.search = "?tab=video&mass=50";
  windowEvents.fire("popstate");
  assert.deepEqual(calls.splice(0), [["click", "video"]]);
  page.tab("video", []);
  assert.deepEqual([location.search, history.some(([kind]) => kind === "push")], ["?mass=20&tab=video", false]); // as on the screen
  location.search = "?tab=video";
  windowEvents.fire("popstate");
  assert.deepEqual(calls, []); // it is open
  page.tab("match", []);
  assert.deepEqual(history.at(-1), ["push", "?mass=20&tab=match"]);
  location.search = "";
  windowEvents.fire("popstate");
  assert.deepEqual([location.search, calls], ["?mass=20", [["click", "explore"]]]); // the first tab is in no address
});

test("a tab disables the controls that it does not use, and header and rail are where the screen has them", async () => {
  const { page, controls, works, order } = await open();
  const [size, model] = controls;
  const facts = document.getElementById("model-facts");
  const inert = () => controls.map(({ children }) => children.map((one) => "inert" in one.attributes));
  page.tab("match", ["size", "image"]);
  assert.deepEqual([document.body.dataset.tab, document.body.dataset.uses], ["match", "size image"]);
  assert.deepEqual(inert(), [[false, false], [true, true]]); // prettier-ignore
  assert.deepEqual([size.title, model.title, facts.dataset.reason], ["", "This tab has models of its own.", model.title]); // prettier-ignore
  assert.deepEqual([order(), works[0].id], [[0, 1, 2, 3, 4], "work"]);
  works[0].checkVisibility = () => false;
  media.matches = true; // a phone
  page.tab("explore", ["size", "model"]);
  assert.deepEqual([model.title, facts.dataset.reason, inert()[1]], ["", undefined, [false, false]]);
  assert.deepEqual([order(), "id" in works[0].attributes, works[1].id], [[1, 0, 3, 4, 2], false, "work"]);
  media.matches = false;
  media.fire("change");
  assert.deepEqual(order(), [0, 1, 2, 3, 4]);
});

test("a quantity is chosen by mode and variant, and the last variants of other modes are remembered", async () => {
  const { page, calls, explorer } = await open();
  page.setQuantity("similarity", "rollout", "key-cosine", "key-pca");
  assert.deepEqual(calls, [["explore set", { quantity: "key-cosine" }]]);
  const modes = ["attention", "similarity", "overview"];
  assert.deepEqual(page.stateOf(modes, ["mass"]), ["attention", "logits", "key-similarity", "key-pca", 30]);
  Object.assign(explorer, { definition: { mode: "overview" }, quantity: "token-norm" });
  assert.deepEqual(page.stateOf(modes, []), ["overview", "logits", "key-similarity", "token-norm"]);
  assert.deepEqual(page.chosenImage("3"), ["owl", "4"]);
});

test("after a refusal the page shows what was answered last, or what it opened with", async () => {
  const { page, calls, location, explorer } = await open("?image=lost&mass=20");
  page.restore(PAGE, "1");
  calls.length = 0;
  assert.deepEqual(page.shown(), ["sheep", "embedded", 224]);
  assert.deepEqual(calls.splice(0), [["images mark", "sheep"], ["explore endPreview"], ["explore reload", true]]); // prettier-ignore
  assert.deepEqual([location.search, explorer.linked], ["?mass=20", {}]);
  page.writeHeader("owl", "other", 224);
  assert.deepEqual([location.search, calls.splice(0)], ["?mass=20&image=owl&model=other", [["images mark", "owl"]]]);
  assert.deepEqual(page.shown(), ["owl", "other", 224]);
  assert.deepEqual(calls, [["images mark", "owl"], ["explore endPreview"]]); // prettier-ignore
});

test("dropped and pasted files go to the images, on Video to the clips", async () => {
  const { page, calls } = await open();
  let prevented = 0;
  const event = (more) => ({ preventDefault: () => (prevented += 1), ...more });
  const body = document.body;
  const marked = () => "data-drop" in body.attributes;
  windowEvents.fire("dragover", event({ dataTransfer: { types: ["text", "Files"] } }));
  assert.deepEqual([marked(), prevented], [true, 1]);
  windowEvents.fire("dragleave", event({ relatedTarget: body }));
  assert.equal(marked(), true); // over another element
  windowEvents.fire("dragleave", event({ relatedTarget: null }));
  assert.equal(marked(), false);
  windowEvents.fire("dragover", event({ dataTransfer: { types: ["Files"] } }));
  windowEvents.fire("drop", event({ dataTransfer: { files: ["a"] } }));
  page.tab("video", []);
  windowEvents.fire("paste", event({ clipboardData: { files: ["b", "c"] } }));
  for (const files of [undefined, []]) windowEvents.fire("paste", event({ clipboardData: { files } }));
  windowEvents.fire("paste", event({}));
  assert.deepEqual(
    [calls, marked(), prevented],
    [
      [
        ["images take", ["a"]],
        ["clips take", ["b", "c"]],
      ],
      false,
      4,
    ],
  );
});

test("only Tab closes the list of a dropdown", async () => {
  await open();
  const closed = [];
  for (const [key, role] of [
    ["Tab", "combobox"],
    ["Tab", "tab"],
    ["Enter", "combobox"],
  ]) {
    // prettier-ignore
    const target = { getAttribute: () => role, blur: () => closed.push(key, role) };
    windowEvents.fire("keydown", { key, target, stopPropagation: () => closed.push("stopped") });
  }
  windowEvents.fire("keydown", { key: "Tab", target: {} });
  assert.deepEqual(closed, ["stopped", "Tab", "combobox"]);
});

test("an error is said once, in the open dialog, else in the stage, else where Gradio says it", async () => {
  const { calls, toasts, whole, explorer } = await open();
  const toast = (kind, ...texts) => {
    const close = part("button");
    close.addEventListener("click", () => calls.push(["closed", texts.at(-1)]));
    const made = part("div", { class: `toast-body ${kind}` }, ...texts.map((text) => part("p", { class: "toast-message-text" }, text)), close); // prettier-ignore
    toasts.append(made);
  };
  toast("error", "Error", "No model.");
  toast("info", "Well.");
  toast("error");
  for (let change = 0; change < 2; change++) toasts.changed();
  assert.deepEqual(calls.splice(0), [["explore refuse", "No model."], ["closed", "No model."]]); // prettier-ignore
  const status = part("p", { role: "status" });
  const dialog = part("dialog", { open: "" }, status);
  whole.append(dialog);
  toast("error", "Too large.");
  toasts.changed();
  assert.deepEqual([status.textContent, calls.splice(0)], ["Too large.", [["closed", "Too large."]]]);
  dialog.removeAttribute("open");
  explorer.element.getClientRects = () => [];
  toast("error", "Nowhere.");
  toasts.changed();
  assert.deepEqual(calls, []);
});

test("checkpoints are shown one after the other, each once the one before is computed", async () => {
  const { page, slider, film, play } = await open();
  /** @type {any} */
  let timer = null;
  mock.method(globalThis, "setInterval", (step, milliseconds) => (timer = { step, milliseconds }) && 1);
  mock.method(globalThis, "clearInterval", () => (timer = null));
  let inputs = 0;
  slider.addEventListener("input", () => (inputs += 1));
  const state = () => [slider.value, play.textContent, timer !== null, inputs];
  /** Wait for a step, when a token is computed. */
  const wait = (token) => {
    film.dataset.token = token;
    timer?.step();
    return state();
  };
  slider.value = "1";
  film.dataset.token = "b";
  page.playRun();
  assert.deepEqual([state(), timer.milliseconds], [[2, "Stop", true, 1], 700]);
  assert.deepEqual([wait("b"), wait("c")], [[2, "Play", false, 1], [2, "Play", false, 1]]); // prettier-ignore
  page.playRun(); // from the first, because the last is shown
  const steps = [wait("c"), wait("a"), wait("a"), wait("b")];
  assert.deepEqual(steps, [[0, "Stop", true, 2], [1, "Stop", true, 3], [1, "Stop", true, 3], [2, "Stop", true, 4]]); // prettier-ignore
  page.playRun();
  assert.deepEqual(state(), [2, "Play", false, 4]);
  page.playRun();
  slider.checkVisibility = () => false;
  assert.deepEqual(wait("c"), [0, "Play", false, 5]);
  mock.restoreAll();
});
