// The tab Class map: points from the server once per map, everything else happens here.

import { Alert } from "./alert.js";
import { Scatter, SHAPES } from "./class_map_canvas.js";
import { Refusal, ask } from "./encoding.js";
import { offerPhotographs } from "./examples.js";
import { listFacts } from "./facts.js";
import { receivePhotos } from "./receive.js";

const MATCHES = 8; // classes that a search lists
const ZOOM = { in: 1.6, out: 1 / 1.6 };

/**
 * Start the tab inside its component. Called once, by the line of script that Gradio runs when the tab is first shown.
 * @param {HTMLElement} element  the component
 * @param {object} props  value: the map, a placed picture or an error; facts: groups and examples, given once
 * @param {Function} watch  calls back when the server sends another value
 * @param {{open: (asked: {example?: string, token?: string}) => void}} send  asks the server to place a picture
 */
export function mount({ element, props, watch, send }) {
  const board = new Board(element.querySelector(".map"), props.facts, send.open);
  const load = () => board.take(props.value);
  watch("value", load);
  load();
  receivePhotos("map", props.facts.maxBytes, (sentence) => board.alert.say(sentence));
}

class Board {
  constructor(root, facts, open) {
    this.root = root;
    this.find = (selector) => root.querySelector(selector);
    this.alert = new Alert(this.find(".lab-alert"));
    this.groups = facts.groups;
    this.drawn = null; // the map: classes, thumbnails, origin …
    this.name = null;
    this.hidden = new Set(); // numbers of groups
    this.scatter = new Scatter(this.find("canvas"), {
      hover: (index, where) => this.hover(index, where),
      pick: (index) => this.choose(index),
    });
    offerPhotographs(this.find(".lab-examples"), facts.examples, open);
    this.listen();
    root.board = this; // for the browser's console, and for tests
  }

  listen() {
    for (const control of this.root.querySelectorAll("[data-zoom]")) {
      const factor = ZOOM[control.dataset.zoom];
      control.addEventListener("click", () => (factor ? this.scatter.zoom(factor) : this.scatter.fit()));
    }
    const search = this.find("#map-search");
    search.addEventListener("input", () => this.search(search.value));
    search.addEventListener("keydown", ({ key }) => {
      if (key === "Enter") this.find(".map-matches button")?.click();
    });
    this.find(".map-close").addEventListener("click", () => this.choose(null));
    this.find(".map-all").addEventListener("click", () => this.hide(new Set()));
    this.find(".map-pictures input").addEventListener("change", ({ target }) => {
      this.scatter.show({ pictures: target.checked });
    });
  }

  // ---- what the server sends

  /** Another map, a placed picture, or a sentence why there is none. */
  async take(value) {
    if (!value) return;
    this.alert.say(value.error ?? "");
    if (value.error) return;
    await this.alert.attempt(async () => {
      if (value.map !== this.name) await this.openMap(value.map);
      if (value.placed) this.showPlaced(value.placed);
    });
  }

  async openMap(name) {
    this.name = name;
    const address = `lab/class-maps/${encodeURIComponent(name)}`;
    const drawn = await (await ask(`${address}/map.json`)).json();
    const image = drawn.thumbnails ? await loaded(`${address}/thumbnails.webp`) : null;
    if (name !== this.name) return; // another was chosen meanwhile
    this.drawn = drawn;
    this.sprite = image && { image, ...drawn.thumbnails };
    const number = new Map(this.groups.map((group, index) => [group.name, index]));
    const points = drawn.classes.map((one) => {
      const group = number.get(one.group) ?? this.groups.length - 1;
      return { ...one, group, groupName: one.group, color: this.groups[group].color };
    });
    this.hidden = new Set();
    this.find("#map-search").value = "";
    this.find(".map-pictures").hidden = !image;
    this.find(".map-downloads a").href = `${address}/map.csv`;
    listFacts(this.find(".lab-facts"), drawn.said);
    this.search("");
    this.choose(null);
    this.scatter.show({ hidden: this.hidden, pictures: image !== null && this.find(".map-pictures input").checked });
    this.scatter.open(points, this.sprite);
    this.legend();
    this.root.dataset.map = name; // says that everything is on the screen
  }

  // ---- one class, or a placed picture

  hover(index, where) {
    const tip = this.find(".map-tip");
    tip.hidden = index === null;
    if (index === null) return;
    const one = this.scatter.points[index];
    tip.querySelector("strong").textContent = one.name;
    tip.querySelector(".map-tip-group").textContent = about(one);
    this.thumbnail(tip.querySelector(".map-thumbnail"), index);
    const { width, height } = this.scatter.size;
    tip.style.left = `${Math.min(where.x + 16, width - tip.offsetWidth - 8)}px`;
    const above = where.y + 16 + tip.offsetHeight > height;
    tip.style.top = `${Math.max(0, above ? where.y - 16 - tip.offsetHeight : where.y + 16)}px`;
    this.find(".lab-spoken").textContent = `${one.name}, ${about(one)}`;
  }

  /** List the neighbours of a class; null lets go of it and of a placed picture. */
  choose(index) {
    const one = index === null ? null : this.scatter.points[index];
    const neighbours = one?.neighbours ?? [];
    this.scatter.show({ chosen: index, placed: null, neighbours: neighbours.map(([other]) => other) });
    this.describe(one?.name ?? "", one ? `${about(one)}. Nearest by features, with cosine distance:` : "", neighbours);
  }

  showPlaced({ name, x, y, neighbours }) {
    const label = `your picture: ${name}`;
    const explained = `Placed at the mean of its ${neighbours.length} nearest classes; t-SNE has no transform. Cosine distance to each class mean:`;
    this.scatter.show({ chosen: null, placed: { x, y, label }, neighbours: neighbours.map(([other]) => other) });
    this.describe(name, explained, neighbours);
    this.scatter.follow({ x, y });
    this.find(".lab-spoken").textContent = `${name} is nearest to ${this.nameOf(neighbours[0][0])}`;
    this.root.dataset.placed = name;
  }

  describe(title, words, neighbours) {
    this.find(".map-chosen").hidden = !title;
    this.find(".map-chosen h2").textContent = title;
    this.find(".map-about").textContent = words;
    const farthest = neighbours.at(-1)?.[1] || 1;
    const items = neighbours.map(([index, distance]) => {
      const item = document.createElement("li");
      const go = this.classButton(index);
      const value = document.createElement("span");
      value.className = "map-distance";
      value.textContent = distance.toFixed(3);
      go.style.setProperty("--share", `${(100 * distance) / farthest}%`);
      go.append(value);
      item.append(go);
      return item;
    });
    this.find(".map-neighbours").replaceChildren(...items);
  }

  /** A button that goes to a class: its mark, its thumbnail where there is one, its name. */
  classButton(index) {
    const one = this.scatter.points[index];
    const made = document.createElement("button");
    made.type = "button";
    made.className = "map-class";
    const name = document.createElement("span");
    name.textContent = one.name;
    if (this.sprite) {
      const thumbnail = document.createElement("span");
      thumbnail.className = "map-thumbnail";
      this.thumbnail(thumbnail, index);
      made.append(thumbnail);
    }
    made.append(this.shape(one.group), name);
    made.addEventListener("click", () => {
      this.choose(index);
      this.scatter.reveal(one);
    });
    return made;
  }

  nameOf(index) {
    return this.scatter.points[index].name;
  }

  /** Show a class's square of the sprite sheet in an element of any size. */
  thumbnail(element, index) {
    element.hidden = !this.sprite;
    if (!this.sprite) return;
    const { columns, image } = this.sprite;
    const rows = image.naturalHeight / this.sprite.side;
    const part = (place, count) => (count > 1 ? (100 * place) / (count - 1) : 0);
    element.style.backgroundImage = `url("${image.src}")`;
    element.style.backgroundSize = `${100 * columns}% ${100 * rows}%`;
    element.style.backgroundPosition = `${part(index % columns, columns)}% ${part(Math.floor(index / columns), rows)}%`;
  }

  // ---- search and groups

  search(text) {
    const wanted = text.trim().toLowerCase();
    const { points } = this.scatter;
    const found = wanted ? indices(points, ({ name, key }) => `${name} ${key}`.toLowerCase().includes(wanted)) : [];
    this.scatter.show({ found: wanted ? new Set(found) : null });
    const more = found.length > MATCHES ? `, the first ${MATCHES}` : "";
    this.find(".map-found").textContent = wanted ? `${found.length} of ${points.length} classes${more}` : "";
    const items = found.slice(0, MATCHES).map((index) => {
      const item = document.createElement("li");
      item.append(this.classButton(index));
      return item;
    });
    this.find(".map-matches").replaceChildren(...items);
  }

  legend() {
    const items = this.groups.map((group, number) => {
      const members = indices(this.scatter.points, (point) => point.group === number).length;
      if (!members) return null;
      const toggle = document.createElement("button");
      toggle.type = "button";
      toggle.className = "map-group";
      toggle.dataset.group = group.name;
      const count = document.createElement("span");
      count.className = "map-count";
      count.textContent = members;
      const name = document.createElement("span");
      name.textContent = group.name;
      toggle.append(this.shape(number), name, count);
      toggle.addEventListener("click", () => {
        const hidden = new Set(this.hidden);
        if (!hidden.delete(number)) hidden.add(number);
        this.hide(hidden);
      });
      const item = document.createElement("li");
      item.append(toggle);
      return item;
    });
    this.find(".map-legend").replaceChildren(...items.filter(Boolean));
    this.hide(this.hidden);
  }

  hide(hidden) {
    this.hidden = hidden;
    for (const toggle of this.root.querySelectorAll(".map-group")) {
      const number = this.groups.findIndex(({ name }) => name === toggle.dataset.group);
      toggle.setAttribute("aria-pressed", String(!hidden.has(number)));
    }
    this.find(".map-all").disabled = hidden.size === 0;
    this.scatter.show({ hidden });
  }

  /** The mark of a group as a small drawing. */
  shape(number) {
    const drawing = document.createElementNS("http://www.w3.org/2000/svg", "svg");
    drawing.setAttribute("viewBox", "-8 -8 16 16");
    drawing.setAttribute("aria-hidden", "true");
    const path = document.createElementNS("http://www.w3.org/2000/svg", "path");
    path.setAttribute("d", SHAPES[number]);
    path.setAttribute("fill", this.groups[number].color);
    drawing.append(path);
    return drawing;
  }
}

function about({ groupName, pictures }) {
  return `${groupName}, ${pictures === 1 ? "1 picture" : `${pictures} pictures`}`;
}

/** Numbers of the entries that fit. */
function indices(list, fits) {
  return list.flatMap((entry, index) => (fits(entry) ? [index] : []));
}

/** A picture that has arrived. */
async function loaded(address) {
  const image = new Image();
  image.src = address;
  await image.decode().catch(() => {
    throw new Refusal("The thumbnails of this map cannot be shown: is the server still running?");
  });
  return image;
}
