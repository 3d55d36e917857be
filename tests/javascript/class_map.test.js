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
  close(xy(alone.at(alone.points[0])), [300, 200]);
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
  assert.equal(view.key({ key: "ArrowUp", ctrlKey: true }), false);
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

for (const [name, place, width, expected] of [
  ["ten letters", [50, 100], 200, [60, 104.5]], // to the right
  ["ten letters", [110, 100], 200, [110 - 10 - 82.5, 104.5]], // else to the left
  ["ten letters", [50, 100], 100, [50 - 41.25, 90]], // else above
  ["ten letters", [50, 20], 100, [50 - 41.25, 39]], // else below
  ["eleven letters", [50, 50], 100, undefined], // it fits nowhere
  ["dot", [-1, 50], 100, undefined],
])
  test(`the name of a mark at ${place} of ${width} pixels`, async () => {
    const view = await shown([point(...place, name)], { width, height: 150 });
    view.frame = { scale: 1, left: 0, top: 0 };
    const [label] = view.labels([0], [{ x: place[0], y: place[1] }]);
    assert.deepEqual(label && attributes(label, "x", "y"), expected);
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
  const other = view.at(view.points[1]);
  assert.equal(lines(view).d, `M${second.x} ${second.y}L${other.x} ${other.y}`);
  view.show({}); // the same answer again
  assert.equal(view.title.textContent, "two");
  view.press({ x: second.x + 38, y: second.y });
  assert.equal(view.title.textContent, "");
  Object.assign(view.props, { value: { source: "three" } });
  view.show({}); // it is not placed yet
  assert.deepEqual([view.placed, named(view, "rect")], [null, []]); // prettier-ignore
});
