// The class map: where points, pictures, names and lines are drawn, and how it is moved. No browser is needed.

import assert from "node:assert/strict";
import { test } from "node:test";
import { mounted, settled } from "./document.js";
import { ClassMapView } from "../../app/static/views/class_map_view.js";
import { random } from "./random.js";

const GROUPS = ["red", "blue"].map((color) => ({ name: `${color} things`, color }));
const point = (x, y, name = "dot", group = 0) => ({ x, y, name, group: GROUPS[group].name, num_images: 2, neighbors: [] }); // prettier-ignore
const close = (found, expected) =>
  expected.forEach((value, at) => assert.ok(Math.abs(found[at] - value) < 1e-6, `${found} is not ${expected}`));
const xy = ({ x, y }) => [x, y];

/** A map on a plot of this size; the element is at (7, 11) of the screen. */
async function shown(classes, { width = 600, height = 400, ...data } = {}) {
  const given = mounted({ value: {}, map: "toys", data: { classes, groups: GROUPS, ...data } });
  const view = new ClassMapView(given);
  view.plot.box = [7, 11, width, height];
  await settled();
  return view;
}

const named = (view, tag) => view.plot.children.filter((child) => child.tag === tag);
const marks = (view) => named(view, "path").slice(1);
const lines = (view) => named(view, "path")[0].attributes;
const attributes = (element, ...names) => names.map((name) => Number(element.attributes[name]));
const scattered = (count, seed) => {
  const next = random(seed);
  return Array.from({ length: count }, (_, at) => point(9 * next(), 5 * next(), `class ${at}`, at % 2));
};

test("all points fit within a margin of 48 pixels, centered, with y upwards", async () => {
  for (const [classes, filled] of [
    [[point(-3, 1), point(5, 2), point(1, 1.5)], "x"],
    [[point(4, -1), point(4.5, 9), point(4, 2)], "y"],
  ]) {
    const view = await shown(classes);
    const places = classes.map((one) => view.at(one));
    for (const [axis, length] of Object.entries({ x: 600, y: 400 })) {
      const values = places.map((place) => place[axis]);
      const [low, high] = [Math.min(...values), Math.max(...values)];
      close([low + high], [length]);
      if (axis === filled) close([low], [48]);
      else assert.ok(low > 48);
    }
    assert.ok(places[0].y > places[1].y);
    const transforms = marks(view).map((mark) => mark.attributes.transform);
    assert.deepEqual(transforms.sort(), places.map(({ x, y }) => `translate(${x} ${y}) scale(1)`).sort());
  }
  const alone = await shown([point(3, 3)]);
  close([...xy(alone.at(alone.points[0])), alone.frame.scale], [300, 200, 304]);
  for (const [classes, width] of [
    [[], 600],
    [[point(1, 1)], 0],
  ]) {
    // prettier-ignore
    const { frame } = await shown(classes, { width });
    assert.deepEqual(frame, { scale: 1, left: 0, top: 0 });
  }
  const { plot, title } = alone;
  assert.deepEqual([...attributes(plot, "tabindex"), ...attributes(title, "tabindex")], [0, -1]);
});

test("zoom keeps a place, from half to 40 times the scale of all points; a button zooms around the middle", async () => {
  const view = await shown(scattered(6, 2));
  const { scale } = view.frame;
  const place = { x: 130, y: 310 };
  const under = () => [(place.x - view.frame.left) / view.frame.scale, (view.frame.top - place.y) / view.frame.scale];
  const before = under();
  view.zoom(3, place);
  close([...under(), view.frame.scale], [...before, 3 * scale]);
  const event = { pointerId: 1, clientX: place.x + 7, clientY: place.y + 11, target: { closest: () => null } };
  view.plot.fire("wheel", { ...event, deltaY: -100 });
  close(under(), before);
  view.plot.fire("pointerdown", event);
  view.plot.fire("pointermove", { ...event, clientX: event.clientX + 10, clientY: event.clientY - 4 });
  view.plot.fire("click", event);
  place.x += 10;
  place.y -= 4;
  close(under(), before);
  assert.deepEqual([view.fitted, view.chosen], [false, null]); // a drag chooses nothing
  view.zoom(1000, place);
  close([view.frame.scale], [40 * scale]);
  view.zoom(1e-6, place);
  close([view.frame.scale], [scale / 2]);
  view.fit();
  const middle = [(300 - view.frame.left) / scale, (view.frame.top - 200) / scale];
  view.plot.fire("keydown", { key: "+" });
  close([view.frame.left + middle[0] * view.frame.scale, view.frame.top - middle[1] * view.frame.scale, view.frame.scale], [300, 200, 1.5 * scale]); // prettier-ignore
  view.key({ key: "-" });
  close([view.frame.scale], [scale]);
  view.key({ key: "0" });
  const { left, top } = view.frame;
  view.pan(10, -4);
  close([view.frame.left, view.frame.top], [left + 10, top - 4]);
  view.reach({ x: (590 - view.frame.left) / scale, y: (view.frame.top - 5) / scale }); // is at (590, 5)
  close([view.frame.left, view.frame.top], [left + 10 - 38, top - 4 + 43]);
});

test("arrow keys move to the class with the shortest way, of which sideways counts twice", async () => {
  const view = await shown(scattered(25, 7));
  const places = view.points.map((one) => view.at(one));
  view.key({ key: "ArrowRight" }); // the class closest to the middle
  const from = places.map(({ x, y }) => Math.hypot(x - 300, y - 200));
  assert.equal(view.hovered, from.indexOf(Math.min(...from)));
  for (const [key, along, aside] of [
    ["ArrowRight", (dx) => dx, (_, dy) => dy],
    ["ArrowLeft", (dx) => -dx, (_, dy) => dy],
    ["ArrowDown", (_, dy) => dy, (dx) => dx],
    ["ArrowUp", (_, dy) => -dy, (dx) => dx],
  ])
    for (let start = 0; start < places.length; start += 2) {
      const costs = places.map(({ x, y }) => {
        const way = [x - places[start].x, y - places[start].y];
        return along(...way) > 0 ? along(...way) + 2 * Math.abs(aside(...way)) : Infinity;
      });
      view.hovered = start;
      view.key({ key });
      const least = Math.min(...costs);
      assert.equal(view.hovered, least < Infinity ? costs.indexOf(least) : start);
    }
  for (const modifier of ["ctrlKey", "metaKey", "altKey"])
    assert.equal(view.key({ key: "ArrowUp", [modifier]: true }), false);
  const prevented = [];
  for (const key of ["+", "q"]) view.plot.fire("keydown", { key, preventDefault: () => prevented.push(key) });
  assert.deepEqual(prevented, ["+"]); // other keys are of the page
  const column = await shown([point(1, 0), point(1, 4)]);
  column.hovered = 0;
  column.key({ key: "ArrowRight" });
  assert.equal(column.hovered, 0); // nothing is at the right
  const { fitted } = column;
  column.fit();
  const pans = [[0, 0], [1, 0], [0, 1]].map((way) => (column.fit(), column.pan(...way), column.fitted)); // prettier-ignore
  assert.deepEqual([fitted, ...pans], [true, true, false, false]);
});

test("a click within 16 pixels chooses a class, which is listed, ringed and joined to its neighbors", async () => {
  const classes = [point(0, 0, "near", 1), point(4, 0, "chosen"), point(8, 3, "far", 1), point(2, 4, "other")];
  classes.push({ ...point(3, 4, "last"), group: "a group that is not listed" });
  classes[1].neighbors = [[2, 0.25], [0, 0.5]]; // prettier-ignore
  const view = await shown(classes);
  const places = classes.map((one) => view.at(one));
  const event = (x, y) => ({ clientX: places[1].x + x + 7, clientY: places[1].y + y + 11, detail: 1 });
  for (const [far, chosen] of [
    [15.9, 1],
    [16.1, null],
  ]) {
    // prettier-ignore
    view.plot.fire("click", event(far, 0));
    assert.equal(view.chosen, chosen);
    view.plot.fire("click", event(0, 0));
  }
  const joined = [2, 0].map((other) => `M${places[1].x} ${places[1].y}L${places[other].x} ${places[other].y}`);
  assert.deepEqual([lines(view).d, lines(view).opacity, lines(view)["stroke-width"]], [joined.join(""), "0.55", "2"]);
  assert.deepEqual(view.list.children.map((item) => item.textContent), ["far0.250", "near0.500"]); // prettier-ignore
  const drawn = Object.fromEntries(marks(view).map((mark) => [mark.attributes.transform.match(/[\d.]+/)[0], mark.attributes])); // prettier-ignore
  const looks = places.map(({ x }) => [drawn[x].opacity, drawn[x].transform.match(/scale.*/)[0], drawn[x].fill]);
  assert.deepEqual(looks, [["1", "scale(1.4)", "blue"], ["1", "scale(1.4)", "red"], ["1", "scale(1.4)", "blue"], ["0.22", "scale(1)", "red"], ["0.22", "scale(1)", "blue"]]); // prettier-ignore
  assert.equal(marks(view).at(-1).attributes.transform.split(" ")[0], `translate(${places[1].x}`); // on top
  view.hover(0);
  assert.equal(marks(view).at(-1).attributes.transform.split(" ")[0], `translate(${places[0].x}`); // over the chosen one
  view.hover(null);
  view.plot.fire("pointermove", { ...event(0, 0), clientX: places[0].x + 7, clientY: places[0].y + 11 });
  const rings = named(view, "circle").map((ring) => attributes(ring, "cx", "cy", "r"));
  assert.deepEqual(rings, [[...xy(places[1]), 12], [...xy(places[0]), 12]]); // prettier-ignore
  assert.equal(view.readout.textContent, "near: blue things, 2 images");
  assert.match(view.spoken.textContent, /^near: /);
  view.plot.fire("keydown", { key: "Enter" });
  assert.equal(view.title.textContent, "near");
  view.plot.fire("keydown", { key: "Escape" });
  assert.equal(view.selection.hidden, true);
  view.plot.fire("click", event(0, 0));
  view.list.children[0].children[0].click(); // its nearest neighbor
  assert.equal(view.title.textContent, "far");
  const focuses = [];
  view.title.focus = () => focuses.push(view.title.textContent);
  view.goTo(3);
  view.goTo(null); // a search field is left
  assert.deepEqual([view.chosen, view.selection.hidden, focuses], [null, true, ["other"]]);
  view.frame = { scale: 100, left: 0, top: 0 };
  assert.deepEqual([view.nearest({ x: 16, y: 0 }), view.nearest({ x: 15.9, y: 0 })], [null, 0]);
  view.fit();
  assert.deepEqual(view.legend.children.map((item) => item.textContent), ["red things2", "blue things3"]); // prettier-ignore
  for (const [label, factor] of [
    ["Zoom in", 1.5],
    ["Zoom out", 1],
    ["Zoom out", 1 / 1.5],
    ["Show all", 1],
  ]) {
    // prettier-ignore
    view.element.all().find((part) => part.attributes["aria-label"] === label).click();
    close([view.frame.scale], [factor * view.fitScale]);
  }
});

for (const [name, place, width, expected, other] of /** @type {any[]} */ ([
  ["ten letters", [50, 100], 200, [60, 104.5]], // to the right
  ["ten letters", [110, 100], 200, [110 - 10 - 82.5, 104.5]], // else to the left
  ["ten letters", [50, 100], 100, [50 - 41.25, 90]], // else above
  ["ten letters", [50, 20], 100, [50 - 41.25, 39]], // else below
  ["eleven letters", [50, 50], 100, undefined], // it fits nowhere
  ["dot", [36.5, 75], 73, [46.5, 79.5]], // 4 pixels are free at each edge
  ["dot", [36.5, 75], 72, [4, 79.5]],
  ["dot", [36.4, 75], 72, [25.15, 65]],
  ["dot", [50, 11.5], 200, [60, 16]],
  ["dot", [50, 11.4], 200, [38.75, 30.4]],
  ["dot", [50, 138.5], 200, [60, 143]],
  ["dot", [50, 138.6], 200, [38.75, 128.6]],
  ["dot", [0, 75], 200, [10, 79.5]],
  ["dot", [200, 75], 200, [167.5, 79.5]],
  ["dot", [50, 0], 200, [38.75, 19]],
  ["dot", [50, 150], 200, [38.75, 140]],
  ["dot", [-1, 50], 100, undefined], // the mark is beside the plot
  ["dot", [201, 50], 200, undefined],
  ["dot", [50, -1], 200, undefined],
  ["dot", [50, 151], 200, undefined],
  ["dot", [100, 75], 200, [67.5, 79.5], [137.5, 75]], // at the right it would touch another mark
  ["dot", [100, 75], 200, [110, 79.5], [137.6, 75]],
  ["dot", [100, 75], 200, [67.5, 79.5], [105, 75]],
  ["dot", [100, 75], 200, [67.5, 79.5], [120, 87.5]],
  ["dot", [100, 75], 200, [110, 79.5], [120, 87.6]],
  ["dot", [100, 75], 200, [67.5, 79.5], [120, 62.5]],
  ["dot", [100, 75], 200, [110, 79.5], [120, 62.4]],
]))
  test(`the name ${name} of a mark at ${place} of ${width} pixels${other ? ` beside ${other}` : ""}`, async () => {
    const places = [place, ...(other ? [other] : [])];
    const view = await shown(places.map((at) => point(...at, name)), { width, height: 150 }); // prettier-ignore
    view.frame = { scale: 1, left: 0, top: 0 };
    const [label] = view.labels([...places.keys()], places.map(([x, y]) => ({ x, y }))); // prettier-ignore
    if (!expected) assert.equal(label, undefined);
    else close(attributes(label, "x", "y"), expected);
  });

test("a name that fits nowhere is written for the chosen class and the one under the pointer, not for neighbors", async () => {
  const long = "twenty-five letters of it";
  const classes = [point(0, 0, long), point(40, 40, long)];
  classes[0].neighbors = [[1, 0.5]];
  const view = await shown(classes, { width: 100, height: 150 });
  view.choose(0);
  view.frame = { scale: 1, left: 30, top: 50 };
  const places = classes.map((one) => view.at(one));
  const names = () => view.labels([0, 1], places).map((label) => attributes(label, "x", "y"));
  assert.deepEqual(names(), [[40, 54.5]]); // to the right
  view.hover(1);
  assert.deepEqual(names(), [[40, 54.5], [80, 14.5]]); // prettier-ignore
  view.frame = { scale: 0.001, left: 50, top: 50 }; // all marks at one place
  classes.forEach((one) => (one.name = "dot"));
  const crowd = view.labels([0, 1], classes.map(() => ({ x: 50, y: 50 }))); // prettier-ignore
  assert.deepEqual(crowd.map((label) => attributes(label, "x", "y")), [[60, 54.5], [17.5, 54.5]]); // prettier-ignore
});

test("names cover neither each other nor marks, and that of the class under the pointer is always written", async () => {
  const view = await shown(scattered(60, 5));
  view.hover(17);
  const boxes = named(view, "text").map((text) => [...attributes(text, "x", "y"), text.textContent]);
  assert.ok(boxes.some(([, , name]) => name === "class 17"));
  const texts = boxes.map(([x, y, name]) => [x, y + 3 - 15, x + 7.5 * name.length, y + 3]);
  const places = view.points.map((one) => view.at(one));
  const all = [...texts, ...places.map(({ x, y }) => [x - 5, y - 5, x + 5, y + 5])];
  const meet = (one, other) => one[2] > other[0] && other[2] > one[0] && one[3] > other[1] && other[3] > one[1];
  const free = texts.filter((_, at) => boxes[at][2] !== "class 17");
  assert.ok(free.length > 25);
  for (const text of free) assert.equal(all.filter((other) => meet(text, other)).length, 1); // itself
});

test("pictures are cut from their sheet, and drawn where none is closer than 0.62 of a side", async () => {
  const pictures = { address: "sheet.jpg", side: 64, columns: 3 };
  const classes = [0, 28, 29, 57.1, 500].map((x) => point(x, 0));
  const view = await shown(classes, { pictures });
  view.frame = { scale: 1, left: 20, top: 60 };
  view.paint();
  assert.equal(view.side, 46);
  const drawn = named(view, "svg");
  const boxes = drawn.map((one) => [...attributes(one, "x", "y", "width", "height"), one.attributes.viewBox]);
  assert.deepEqual(boxes, [[20 + 28 - 23, 37, 46, 46, "64 0 64 64"], [20 + 57.1 - 23, 37, 46, 46, "0 64 64 64"], [497, 37, 46, 46, "64 64 64 64"]]); // prettier-ignore
  assert.deepEqual(drawn.map((one) => one.attributes.opacity), ["1", "1", "1"]); // prettier-ignore
  const [plain] = view.labels(
    [1],
    [
      { x: 100, y: 100 },
      { x: 100, y: 100 },
    ],
  );
  close(attributes(plain, "x"), [100 + 23 + 5]);
  const [sheet] = drawn[0].children;
  assert.deepEqual(
    [sheet.attributes.href, ...attributes(sheet, "width", "height")],
    ["http://lab/sheet.jpg", 192, 128],
  );
  view.hover(0);
  assert.deepEqual(attributes(named(view, "svg").at(-1), "x", "y", "width"), [20 - 28.75, 60 - 28.75, 57.5]);
  const [label] = view.labels([0], [{ x: 100, y: 100 }]);
  close(attributes(label, "x"), [100 + 28.75 + 5]);
  view.choose(1);
  assert.equal(named(view, "svg")[0].attributes.opacity, "0.35");
  view.plot.box[2] = 130; // thumbnails shrink on a narrow screen
  assert.equal(view.side, 10);
  view.plot.box[2] = 325;
  view.choose(null);
  assert.deepEqual(
    [
      ...view.pictured(
        [1, 0],
        [
          { x: 0, y: 0 },
          { x: 15.5, y: 0 },
        ],
      ),
    ],
    [0, 1],
  ); // 0.62 of 25 pixels
});

test("an image is framed at its place and joined to its neighbors, and one before it stays, smaller", async () => {
  const view = await shown([point(0, 0), point(10, 5)]);
  const place = (source, x, y) => ({ map: "toys", source, x, y, name: source, picture: `${source}.jpg`, neighbors: [[1, 0.125]], highlight: false }); // prettier-ignore
  Object.assign(view.props, { value: { source: "one" }, placed: place("one", 2, 2) });
  view.show({});
  Object.assign(view.props, { value: { source: "two" }, placed: place("two", 5, 1) });
  view.show({});
  const [first, second] = [view.at({ x: 2, y: 2 }), view.at({ x: 5, y: 1 })];
  const drawn = Object.fromEntries(named(view, "image").map((one) => [one.attributes.href.slice(11), attributes(one, "x", "y", "width", "height")])); // prettier-ignore
  const square = ({ x, y }, size) => [x - size / 2, y - size / 2, size, size];
  close(drawn["one.jpg"], square(first, 0.7 * 46));
  close(drawn["two.jpg"], square(second, 1.6 * 46));
  assert.equal(named(view, "image").find((one) => one.attributes.href.endsWith("one.jpg")).attributes.opacity, "0.8");
  const [frame] = named(view, "rect");
  assert.equal(frame.attributes["stroke-width"], "3");
  close(attributes(frame, "x", "y", "width", "height"), square(second, 1.6 * 46 + 6));
  view.press({ x: second.x + 36, y: second.y }); // within 0.8 of a side
  assert.equal(view.title.textContent, "two");
  assert.deepEqual(
    marks(view).map((mark) => mark.attributes.opacity),
    ["0.22", "1"],
  ); // all but the neighbor
  const other = view.at(view.points[1]);
  assert.equal(lines(view).d, `M${second.x} ${second.y}L${other.x} ${other.y}`);
  view.show({}); // the same answer again
  assert.equal(view.title.textContent, "two");
  view.press({ x: second.x + 38, y: second.y });
  assert.equal(view.title.textContent, "");
  view.props.placed = { ...place("two", 6, 1), name: "a name of more than twenty-six letters" };
  view.show({}); // another answer about the same image
  assert.deepEqual([view.placed.x, view.labels([], [])[0].textContent], [6, "image: a name of more than twenty"]);
  view.goTo(null); // no class is chosen: the image stays
  assert.equal(view.placed.x, 6);
  Object.assign(view.props, { value: { source: "three" } });
  view.show({}); // it is not placed yet
  assert.deepEqual([view.placed, named(view, "rect")], [null, []]); // prettier-ignore
});
