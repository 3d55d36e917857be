// A user's own files: the rail, the browser's database, what is sent to the server, and the camera.

import assert from "node:assert/strict";
import { mock, test } from "node:test";
import { Element, kept, mounted, served, settled } from "./document.js";
import { Refusal } from "../../app/static/views/encoding.js";
import { OwnStore, store } from "../../app/static/views/own_store.js";
import { RailView } from "../../app/static/views/rail_view.js";
import { sendFile } from "../../app/static/views/upload.js";
import { TABLE } from "./table.js";

const { camera: CAMERA, thumbnail: SIDE } = TABLE.limits;

/** A request to the server, which answers with the name of the file unless a test does. */
class Request {
  static sent = [];
  static answers = true;
  upload = {};
  open(...opened) {
    this.opened = opened.map(String);
  }
  send(body) {
    this.body = body;
    Request.sent.push(this);
    if (Request.answers) queueMicrotask(() => this.answer(200, "application/json", `["path of ${body.get("files").name}"]`)); // prettier-ignore
  }
  answer(status, type, responseText) {
    Object.assign(this, { status, responseText, getResponseHeader: () => type });
    this.onload();
  }
  abort() {
    this.onabort();
  }
}
Object.assign(globalThis, { XMLHttpRequest: Request, location: { search: "", pathname: "/" } });

const own = (id, more = {}) => ({ id, kind: "image", title: `${id}.png`, file: new Blob(["4 2"]), name: "", ...more });
const ids = (files) => ["image", "clip"].map((kind) => files.list(kind).map(({ id }) => id));

/** Ids of the files that the browser has after a reload, images and clips. */
async function reloaded() {
  const again = new OwnStore();
  await again.loading;
  return ids(again);
}

test("own files are kept, the newest first, until they are removed or are to be forgotten", async () => {
  const files = new OwnStore();
  let changes = 0;
  files.addEventListener("change", () => (changes += 1));
  for (const item of [own("1"), own("2"), own("3", { kind: "clip" })]) await files.put(item);
  assert.deepEqual([ids(files), await reloaded()], [[["2", "1"], ["3"]], [["2", "1"], ["3"]]]); // prettier-ignore
  await files.remove(files.list("clip"));
  assert.deepEqual([ids(files), await reloaded()], [[["2", "1"], []], [["2", "1"], []]]); // prettier-ignore
  await files.setKeeps(false);
  await files.put(own("4"));
  assert.deepEqual([files.keeps, ids(files)[0], kept.items.size], [false, ["4", "2", "1"], 0]);
  kept.items.set("5", own("5"));
  assert.deepEqual(await reloaded(), [[], []]); // nothing is read
  kept.items.clear();
  await files.setKeeps(true);
  assert.deepEqual([await reloaded(), files.problem, changes], [[["4", "2", "1"], []], "", 8]); // one is its loading
  for (const [state, words] of [
    [{ failure: { name: "QuotaExceededError" } }, /full: 6.png is gone/],
    [{ failure: { name: "UnknownError" } }, /private window/],
    [{ closed: true }, /private window/],
  ]) {
    const unkept = new OwnStore();
    await unkept.loading;
    Object.assign(kept, state);
    if (kept.closed) unkept.opening = null;
    await unkept.put(own("6"));
    assert.match(unkept.problem, words);
    assert.deepEqual(ids(unkept)[0], ["6", "4", "2", "1"]);
    Object.assign(kept, { failure: null, closed: false });
  }
  const blocked = mock.method(localStorage, "getItem", () => assert.fail());
  const block = mock.method(localStorage, "removeItem", () => assert.fail());
  const private_ = new OwnStore();
  await private_.setKeeps(true);
  assert.deepEqual([private_.keeps, /private window/.test(private_.problem)], [false, true]);
  for (const method of [blocked, block]) method.mock.restore();
});

for (const [status, type, text, result] of [
  [200, "application/json; charset=utf-8", '["/tmp/a.png"]', "/tmp/a.png"],
  [413, "text/html", "<p>", /^a.png is larger than the server allows/],
  [400, "application/json", '{"error": "No."}', /^No\.$/],
  [201, "application/json", "{}", /status 201/],
  [502, null, "", /status 502/],
])
  test(`a file is sent, and the server answers ${status} ${text}`, async () => {
    Request.answers = false;
    const shares = [];
    const sent = sendFile(new Blob(["4 2"]), "a.png", undefined, (share) => shares.push(share));
    const request = Request.sent.at(-1);
    assert.deepEqual(
      [request.opened, request.body.get("files").name],
      [["POST", "http://lab/gradio_api/upload"], "a.png"],
    );
    request.upload.onprogress({ loaded: 1, total: 4 });
    request.answer(status, type, text);
    Request.answers = true;
    if (typeof result === "string") assert.equal(await sent, result);
    else await assert.rejects(sent, (error) => error instanceof Refusal && result.test(error.message));
    assert.deepEqual(shares, [0.25]);
  });

/** A stage on the screen of the page, and what was called on its view. */
const calls = [];
const note = (name) => (...values) => calls.push([name, ...values]); // prettier-ignore
const open = new Element("div");
open.append(Object.assign(new Element("div")));
open.setAttribute("class", "lab-view");
open.children[0].setAttribute("class", "lab-cell");
open["view"] = {
  ...{ element: open, value: { model: "toy" }, state: { block: 3 }, working: { progress: note("progress") } },
  ...Object.fromEntries(["preview", "endPreview", "refuse", "showFrame"].map((name) => [name, note(name)])),
};
const place = new Element("main");
place.id = "stage";
place.append(open);

/** Show or hide the stage. */
function showStage(shown = true) {
  document.body.replaceChildren(.../** @type {any[]} */ (shown ? [place] : []));
}

/** A rail on a server that holds some names, with what it tells the server and the page. */
async function rail({ held = [], props = {}, keep = ({ path, title }) => ({ name: `key of ${path}/${title}` }) } = {}) {
  calls.length = 0;
  const examples = [["sheep", "Sheep", "sheep.jpg"], ["owl", "Owl", "owl.jpg"]]; // prettier-ignore
  const given = mounted({ kind: "image", accept: "image/*", label: "Open", remembers: "images", start: "owl", examples, ...props }); // prettier-ignore
  const forgotten = [];
  given.server = {
    holds: async ({ name }) => held.includes(name),
    keep: async (file) => keep(file),
    forget: async ({ name }) => forgotten.push(name),
  };
  const view = new RailView(given);
  await view.opened;
  const tiles = () => view.own.children.map((tile) => tile.children[0].attributes.title);
  return {
    view,
    given,
    forgotten,
    tiles,
    selected: () => given.emitted.map(([name, value]) => `${name} ${value.name}`),
  };
}

/** Forget all own files. */
async function empty() {
  kept.items.clear();
  await store.remove([...store.items.values()]);
  sessionStorage.removeItem("own images");
  Request.sent.length = 0;
  showStage();
}

const image = (name, text = "600 400") => new File([text], name);
const names = (count) => Array.from({ length: count }, (_, at) => `${at}.png`);

test("of opened files the first is sent and shown, and all have thumbnails of their centers", async () => {
  await empty();
  const drawn = [];
  const context = { drawImage: (image, ...box) => drawn.push(box) };
  mock.method(OffscreenCanvas.prototype, "getContext", () => context);
  const { view, selected, tiles } = await rail();
  const opened = [image("a.png", "600 400"), image("", "300 900"), image("c.avif", "broken")];
  Object.assign(view.input, { files: opened, value: "a.png" });
  view.input.fire("change");
  await settled();
  mock.restoreAll();
  assert.deepEqual(drawn, [[100, 0, 400, 400, 0, 0, SIDE, SIDE], [0, 300, 300, 300, 0, 0, SIDE, SIDE]]); // prettier-ignore
  assert.deepEqual(tiles(), ["a.png", "image", "c.avif"]);
  const images = view.own.children.map((tile) => tile.querySelectorAll("img").map((one) => one.src.slice(0, 5)));
  assert.deepEqual(images, [["blob:"], ["blob:"], []]);
  assert.deepEqual([selected(), Request.sent.length], [["select key of path of a.png/a.png"], 1]);
  const current = view.element
    .querySelectorAll(".rail-tile")
    .map((tile) => tile.children[0].attributes["aria-current"]);
  assert.deepEqual(current, ["true", "false", "false", "false", "false"]);
  assert.deepEqual([view.chosen, view.input.value, view.more.hidden], ["key of path of a.png/a.png", "", false]);
  const first = store.list("image")[0];
  assert.deepEqual(
    [sessionStorage.getItem("own images"), await first.thumbnail.text()],
    [first.id, `${SIDE} ${SIDE} `],
  );
  const again = await rail({ held: [first.name] }); // after a reload
  assert.deepEqual([again.selected(), Request.sent.length], [[`select ${first.name}`], 1]);
  const lost = await rail(); // the server has forgotten the file
  assert.deepEqual([lost.selected().length, Request.sent.length], [1, 2]);
  location.search = "?image=owl";
  assert.deepEqual((await rail({ props: { address: "image" } })).selected(), []);
  assert.equal((await rail({ props: { address: "size" } })).selected().length, 1);
  location.search = "";
  view.chooseExample("sheep");
  assert.deepEqual([sessionStorage.getItem("own images"), view.chosen], [null, "sheep"]);
  assert.deepEqual(await view.names(), ["key of path of a.png/a.png", "key of path of image/image", "key of path of c.avif/c.avif"]); // prettier-ignore
});

test("many files keep their order after a reload", async () => {
  await empty();
  const { view, tiles } = await rail();
  await view.take(names(11).map((name) => image(name)));
  const again = new OwnStore();
  await again.loading;
  assert.deepEqual([tiles(), again.list("image").map(({ title }) => title)], [names(11), names(11)]);
});

test("thumbnails of what the browser cannot decode, and of clips, are fetched once", async () => {
  for (const [kind, address, found] of [
    ["image", "lab/thumbnails/k.jpg", `${SIDE} ${SIDE} `],
    ["clip", "lab/clips/k/0.jpg", `${SIDE} ${SIDE} `],
    ["clip", "elsewhere", undefined],
  ]) {
    await empty();
    served[address] = "20 10";
    const { view } = await rail({ props: { kind }, keep: ({ title }) => ({ name: `k/${title}` }) });
    await view.take([image("a", "broken")]);
    delete served[address];
    assert.equal(await store.list(kind)[0].thumbnail?.text(), found);
    store.list(kind)[0].thumbnail = new Blob(["known"]);
    await view.choose(store.list(kind)[0]);
    assert.equal(await store.list(kind)[0].thumbnail.text(), "known");
  }
});

test("a chosen file is previewed with its size, and its progress is shown, unless it is on the stage", async () => {
  for (const [text, shown] of [
    ["600 400", { name: "a.png", width: 600, height: 400 }],
    ["broken", { image: undefined, name: "a.png" }],
  ]) {
    await empty();
    const { view } = await rail({ props: { previews: true } });
    const item = own("a", { file: new Blob([text]) });
    await store.put(item);
    Request.answers = false;
    const choice = view.choose(item);
    await settled();
    const [[, given, cancel]] = calls.filter(([name]) => name === "preview");
    assert.deepEqual({ ...given, ...shown }, given);
    assert.equal(String(given.image).startsWith("blob:"), text !== "broken");
    const [request] = Request.sent;
    request.upload.onprogress({ loaded: 3, total: 4 });
    assert.deepEqual(calls.at(-1), ["progress", 0.75]);
    cancel();
    Request.answers = true;
    assert.equal(await choice, "a.png was not sent.");
    assert.deepEqual(calls.slice(-2), [["endPreview"], ["refuse", "a.png was not sent."]]);
    assert.equal(store.items.size, 0); // the server never had it
  }
  const { view } = await rail({ held: ["n"], props: { previews: true, start: "n" } });
  await view.choose(own("n", { name: "n" }));
  const other = await rail({ held: ["n"] });
  await other.view.choose(own("n", { name: "n" }));
  assert.equal(calls.some(([name]) => name === "preview"), false); // prettier-ignore
});

test("of files that the server refuses the next is shown, with the reasons; a kept one stays", async () => {
  await empty();
  const keep = ({ title }) => (title.startsWith("no") ? { error: `${title} is refused.` } : { name: `k/${title}`, note: "Rotated." }); // prettier-ignore
  const { view, tiles } = await rail({ keep });
  await view.take(["no 1", "no 2", "yes", "later"].map((name) => image(name)));
  assert.deepEqual([view.problem.textContent, view.chosen], ["no 1 is refused. no 2 is refused. Rotated.", "k/yes"]);
  assert.deepEqual(tiles(), ["yes", "later"]);
  view.chooseExample("owl");
  assert.equal(view.problem.textContent, "");
  await view.take([image("no 1"), image("no 2")]);
  assert.deepEqual(calls.at(-1), ["refuse", "no 1 is refused. no 2 is refused."]);
  assert.equal(view.problem.textContent, ""); // the stage says it
  const kept_ = own("no", { name: "k/no", title: "no" });
  await store.put(kept_);
  showStage(false);
  assert.equal(await view.choose(kept_), "no is refused.");
  assert.deepEqual([view.problem.textContent, store.items.has("no")], ["no is refused.", true]);
  store.problem = "Full.";
  view.say("Note.");
  assert.equal(view.problem.textContent, "Full. Note.");
  await store.setKeeps(false);
  assert.equal(view.problem.textContent, "Note.");
  await empty();
  assert.deepEqual([view.more.hidden, view.keep.checked], [false, false]); // files can be kept again
  view.keep.checked = true;
  view.keep.fire("change");
  await settled();
  assert.deepEqual([view.more.hidden, store.keeps], [true, true]);
  store.problem = "";
  const broken = await rail({ keep: () => assert.fail("a fault of the page") });
  await assert.rejects(broken.view.choose(own("x")), /a fault of the page/);
});

test("the newest choice is shown, whether an earlier one comes, fails or is ended by it", async () => {
  await empty();
  const { view, selected } = await rail();
  for (const late of [
    (request) => request.answer(200, "application/json", '["late"]'),
    (request) => request.answer(500, null, ""),
    () => {},
  ]) {
    const item = own("early");
    await store.put(item);
    Request.answers = false;
    const early = view.choose(item);
    await settled();
    const request = Request.sent.at(-1);
    if (String(late).includes("request")) request.abort = () => {};
    view.chooseExample("sheep");
    late(request);
    Request.answers = true;
    assert.deepEqual([await early, view.chosen, view.problem.textContent], ["", "sheep", ""]);
  }
  assert.deepEqual(selected(), ["select sheep", "select sheep", "select sheep"]);
  assert.deepEqual(calls.filter(([name]) => name === "refuse"), []); // prettier-ignore
});

test("removed files are forgotten by the server; without the one on the stage the first example is shown", async () => {
  await empty();
  const { view, forgotten, selected, tiles } = await rail();
  await view.take([image("a"), image("b")]);
  view.own.children[1].children[1].click(); // b, which the server does not have
  await settled();
  assert.deepEqual([tiles(), forgotten, selected().length], [["a"], [], 1]);
  view.all.click();
  await settled();
  assert.deepEqual([tiles(), forgotten, selected().at(-1)], [[], ["key of path of a/a"], "select sheep"]);
});

/** Start the camera of a rail, whose frames a server answers. */
async function film(frame, [videoWidth, videoHeight] = [640, 480]) {
  await empty();
  const { view } = await rail({ props: { camera: "stage" } });
  const sent = [];
  view.server.frame = async (request) => sent.push(request) && frame(sent.length);
  const stopped = [];
  const stream = { getTracks: () => [{ stop: () => stopped.push(1) }] };
  const mediaDevices = { getUserMedia: async () => stream };
  Object.defineProperty(globalThis, "navigator", { value: { mediaDevices }, configurable: true });
  mock.method(document, "createElement", (tag) =>
    Object.assign(new Element(tag), { videoWidth, videoHeight, play() {} }),
  );
  const [toggle, shoot] = view.element.querySelectorAll(".rail-camera");
  const looks = () => [toggle.attributes["aria-pressed"], Boolean(shoot.hidden), view.problem.textContent];
  const shown = () => calls.filter(([name]) => name === "showFrame").map(([, value]) => value);
  return { view, toggle, shoot, sent, stopped, looks, shown };
}

test("the camera shows frame after frame of a short side of at most 224 pixels, until its tab is closed", async () => {
  const { view, toggle, shoot, sent, stopped, looks, shown } = await film((count) => {
    if (count === 2) open.checkVisibility = () => false;
    return { token: count };
  });
  const turn = view.turn;
  assert.deepEqual(looks(), ["false", true, ""]);
  let hold = /** @type {any} */ (null);
  const frames = view.server.frame;
  view.server.frame = (request) => new Promise((resolve) => (hold = () => resolve(frames(request))));
  toggle.click();
  await settled();
  assert.deepEqual([looks(), view.turn], [["true", false, ""], turn + 1]);
  view.server.frame = frames;
  hold();
  await settled();
  open.checkVisibility = () => true;
  const image = `data:299 ${CAMERA} 0.9`; // of 640 × 480 pixels
  assert.deepEqual(sent, Array(2).fill({ image, model: "toy", block: 3 }));
  assert.deepEqual(shown(), [{ token: 1, image }, { token: 2, image }, null]); // prettier-ignore
  assert.deepEqual([looks(), stopped.length], [["false", true, ""], 1]);
  view.stopCamera(); // it has stopped
  assert.equal(shown().length, 3);
  mock.restoreAll();
});

for (const [title, answer, problem, size, image] of [
  ["is stopped", (toggle) => (toggle.click(), { token: 1 }), "", [100, 200], "data:100 200 0.9"], // it is not enlarged
  [
    "is refused",
    () => ({ error: "Too many." }),
    "The camera does not work: Too many.",
    [480, 642],
    `data:${CAMERA} 300 0.9`,
  ],
])
  test(`a frame is not shown when the camera ${title}`, async () => {
    const { toggle, sent, shown, looks } = await film(() => answer(toggle), size);
    toggle.click();
    await settled();
    assert.deepEqual([sent[0].image, shown(), looks()], [image, [null], ["false", true, problem]]);
    mock.restoreAll();
  });

test("a taken frame is an own image of full size", async () => {
  const { view, toggle, shoot } = await film(() => new Promise(() => {}));
  toggle.click();
  await settled();
  const drawn = [];
  const context = { drawImage: (image, ...box) => drawn.push([image.tag, ...box]) };
  mock.method(OffscreenCanvas.prototype, "getContext", () => context);
  shoot.click();
  await settled();
  mock.restoreAll();
  assert.deepEqual(drawn[0], ["video", 0, 0, 640, 480]);
  const [{ title, file }] = store.list("image");
  assert.deepEqual([title, await file.text(), view.chosen], ["camera.jpg", "640 480 0.9", "key of path of camera.jpg/camera.jpg"]); // prettier-ignore
});
