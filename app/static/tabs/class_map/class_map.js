// The tab Class map: points from the server once per map, and where the header's photograph falls among them.

import { find } from "../../dom.js";
import { askData, askPicture, askSlowly } from "../../server.js";
import { Tab } from "../../tab.js";
import { html, nothing, render } from "../../vendor/lit-html.js";
import { listFacts } from "../../widgets/facts.js";
import { SHAPES, Scatter } from "../../widgets/scatter.js";

/**
 * @typedef {import("../../widgets/scatter.js").Entry} Entry
 * @typedef {{ x: number, y: number, neighbours: [number, number][] }} Placed
 * @typedef {object} Drawn  a map, as the server tells it
 * @property {(Point & { name: string, key: string, group: string, pictures: number, neighbours: [number, number][] })[]} classes
 * @property {{ side: number, columns: number } | null} thumbnails
 * @property {[string, string][]} said
 */

const MATCHES = 8; // classes that a search lists
const ZOOM = /** @type {Record<string, number>} */ ({ in: 1.6, out: 1 / 1.6 });

export default class Board extends Tab {
  /** @param {HTMLElement} root @param {Lab} lab */
  constructor(root, lab) {
    super(root, lab);
    this.groups = lab.facts.groups;
    this.name = ""; // of the map that is shown
    this.placed = ""; // map and photograph that were placed last
    /** @type {Set<number>} */
    this.hidden = new Set(); // numbers of groups
    this.scatter = new Scatter(this.find("canvas"), {
      hover: (index, where) => this.hover(index, where),
      pick: (index) => this.choose(index),
    });
    this.listen();
  }

  listen() {
    const search = this.find("#map-search");
    this.onPress("[data-zoom]", ({ dataset }) => {
      const factor = ZOOM[dataset.zoom ?? ""];
      if (factor) this.scatter.zoom(factor);
      else this.scatter.fit();
    });
    search.addEventListener("input", () => this.search(search.value));
    search.addEventListener("keydown", ({ key }) => {
      if (key === "Enter") this.findAll(".map-matches button")[0]?.click();
    });
    this.onPress(".map-close", () => {
      this.choose(null);
      this.scatter.canvas.focus(); // the button is gone
    });
    this.onPress(".map-all", () => this.hide(new Set()));
    const pictures = this.find(".map-pictures input");
    pictures.addEventListener("change", () => this.scatter.show({ pictures: pictures.checked }));
    const refresh = () => this.lab.refreshFacts().then(() => this.listMaps());
    this.onChoose("#map-name", (map) => this.lab.change({ map }), refresh);
  }

  listMaps() {
    const { facts, state } = this.lab;
    const option = (/** @type {{ name: string, title: string }} */ { name, title }) =>
      html`<option value=${name} .selected=${name === state.map}>${title}</option>`;
    render(facts.maps.map(option), this.find("#map-name"));
  }

  // ---- what the lab says

  /** Bring the map to the screen, then the photograph: one that was let go of stays away. */
  async look() {
    const { lab } = this;
    const { map, photo, name } = lab.state;
    this.listMaps();
    const undone = () => {
      if (this.name) lab.note({ map: this.name });
      this.listMaps();
    };
    const placed = await this.asker.ask(async ({ signal, told }) => {
      if (map !== this.name) {
        const brought = await fetchMap(map, signal);
        if (!signal.aborted) this.openMap(map, brought);
      }
      if (this.placed === `${map} ${photo}`) return undefined;
      const place = (/** @type {string} */ here) =>
        askSlowly(`api/maps/${encodeURIComponent(map)}/place`, { photo: here }, { signal, told });
      return lab.about(photo, place, signal);
    }, undone);
    if (placed) this.showPlaced(placed, name || photo);
  }

  /** @param {string} name @param {{ drawn: Drawn, image: HTMLImageElement | null }} brought */
  openMap(name, { drawn, image }) {
    this.name = name;
    this.placed = "";
    const sprite = image && drawn.thumbnails && { image, ...drawn.thumbnails };
    const number = new Map(this.groups.map((group, index) => [group.name, index]));
    const points = drawn.classes.map((one) => {
      const group = number.get(one.group) ?? this.groups.length - 1;
      return { ...one, group, groupName: one.group, color: this.groups[group].color };
    });
    this.hidden = new Set();
    this.find("#map-search").value = "";
    this.find(".map-pictures").hidden = !sprite;
    this.find(".map-downloads a").href = `api/maps/${encodeURIComponent(name)}/map.csv`;
    listFacts(this.find(".lab-facts"), drawn.said);
    const pictures = sprite !== null && this.find(".map-pictures input").checked;
    this.scatter.open(points, sprite);
    this.search("");
    this.choose(null);
    this.scatter.show({ hidden: this.hidden, pictures });
    this.legend();
    this.root.dataset.map = name; // says that everything is on the screen
  }

  // ---- one class, or a placed picture

  /** @param {number | null} index @param {Point | null} where */
  hover(index, where) {
    const tip = this.find(".map-tip");
    tip.hidden = index === null || !where;
    if (index === null || !where) return;
    const one = this.scatter.points[index];
    find(tip, "strong").textContent = one.name;
    find(tip, ".map-tip-group").textContent = about(one);
    const thumbnail = find(tip, ".map-thumbnail");
    thumbnail.hidden = !this.scatter.sprite;
    thumbnail.style.cssText = this.thumbnail(index);
    const { width, height } = this.scatter.size;
    tip.style.left = `${Math.min(where.x + 16, width - tip.offsetWidth - 8)}px`;
    const above = where.y + 16 + tip.offsetHeight > height;
    tip.style.top = `${Math.max(0, above ? where.y - 16 - tip.offsetHeight : where.y + 16)}px`;
    this.lab.speak(`${one.name}, ${about(one)}`);
  }

  /** List the neighbours of a class; null lets go of it and of a placed picture. @param {number | null} index */
  choose(index) {
    const one = index === null ? null : this.scatter.points[index];
    const neighbours = one?.neighbours ?? [];
    this.scatter.show({ chosen: index, placed: null, neighbours: neighbours.map(([other]) => other) });
    this.describe(one?.name ?? "", one ? `${about(one)}. Nearest by features, with cosine distance:` : "", neighbours);
  }

  /** @param {Placed & { map: string, photo: string }} placed @param {string} name */
  showPlaced({ map, photo, x, y, neighbours }, name) {
    const explained = `Placed at the mean of its ${neighbours.length} nearest classes; t-SNE has no transform. Cosine distance to each class mean:`;
    this.placed = `${map} ${photo}`;
    const opening = photo === this.lab.start.photo; // nobody chose it: the map keeps its colours
    this.scatter.show({
      chosen: null,
      placed: { x, y, label: `photograph: ${name}` },
      neighbours: opening ? [] : neighbours.map(([other]) => other),
    });
    this.describe(name, explained, neighbours);
    this.scatter.follow({ x, y });
    this.lab.speak(`${name} is nearest to ${this.scatter.points[neighbours[0][0]].name}`);
    this.root.dataset.placed = photo;
  }

  /** @param {string} title @param {string} words @param {[number, number][]} neighbours */
  describe(title, words, neighbours) {
    this.find(".map-chosen").hidden = !title;
    this.find(".map-chosen h2").textContent = title;
    this.find(".map-about").textContent = words;
    const item = (/** @type {[number, number]} */ [index, distance]) =>
      html`<li>${this.classButton(index, distance)}</li>`;
    render(neighbours.map(item), this.find(".map-neighbours"));
  }

  /** A button that goes to a class: its thumbnail where there is one, its mark, its name, and how near it is: the longer
   * the bar, the nearer. @param {number} index @param {number} [distance]  cosine, from 0 to 2
   */
  classButton(index, distance) {
    const one = this.scatter.points[index];
    const share = distance === undefined ? "" : `--share: ${Math.max(0, 100 * (1 - distance)).toFixed(1)}%`;
    return html`<button type="button" class="map-class" style=${share} @click=${() => this.goTo(index)}>
      ${this.scatter.sprite ? html`<span class="map-thumbnail" style=${this.thumbnail(index)}></span>` : nothing}
      ${this.shape(one.group)}<span>${one.name}</span>
      ${distance === undefined ? nothing : html`<span class="map-distance">${distance.toFixed(3)}</span>`}
    </button>`;
  }

  /** @param {number} index */
  goTo(index) {
    this.choose(index);
    this.scatter.reveal(this.scatter.points[index]);
    this.find(".map-chosen h2").focus({ preventScroll: true }); // the button may be gone
  }

  /** Show a class's square of the sprite sheet in an element of any size. @param {number} index */
  thumbnail(index) {
    const { sprite } = this.scatter;
    if (!sprite) return "";
    const { columns, image, side } = sprite;
    const rows = image.naturalHeight / side;
    const part = (/** @type {number} */ place, /** @type {number} */ count) =>
      count > 1 ? (100 * place) / (count - 1) : 0;
    const position = `${part(index % columns, columns)}% ${part(Math.floor(index / columns), rows)}%`;
    return `background: url("${image.src}") ${position} / ${100 * columns}% ${100 * rows}%`;
  }

  // ---- search and groups

  /** @param {string} text */
  search(text) {
    const wanted = text.trim().toLowerCase();
    const { points } = this.scatter;
    const named = (/** @type {Entry} */ { name, key, groupName }) =>
      `${name} ${key} ${groupName}`.toLowerCase().includes(wanted);
    const found = wanted ? indices(points, named) : [];
    this.scatter.show({ found: wanted ? new Set(found) : null });
    const more = found.length > MATCHES ? `, the first ${MATCHES}` : "";
    this.find(".map-found").textContent = wanted ? `${found.length} of ${points.length} classes${more}` : "";
    render(
      found.slice(0, MATCHES).map((index) => html`<li>${this.classButton(index)}</li>`),
      this.find(".map-matches"),
    );
  }

  legend() {
    const item = (/** @type {{ name: string }} */ group, /** @type {number} */ number) => {
      const members = indices(this.scatter.points, (point) => point.group === number).length;
      if (!members) return nothing;
      return html`<li><button type="button" class="map-group" data-group=${group.name}
        aria-pressed=${!this.hidden.has(number)} @click=${() => this.toggle(number)}>
        ${this.shape(number)}<span>${group.name}</span><span class="map-count">${members}</span>
      </button></li>`;
    };
    render(this.groups.map(item), this.find(".map-legend"));
    this.find(".map-all").disabled = this.hidden.size === 0;
  }

  /** @param {number} group */
  toggle(group) {
    const hidden = new Set(this.hidden);
    if (!hidden.delete(group)) hidden.add(group);
    this.hide(hidden);
  }

  /** @param {Set<number>} hidden */
  hide(hidden) {
    this.hidden = hidden;
    this.legend();
    this.scatter.show({ hidden });
  }

  /** The mark of a group as a small drawing. @param {number} number */
  shape(number) {
    return html`<svg viewBox="-8 -8 16 16" aria-hidden="true"><path d=${SHAPES[number]} fill=${this.groups[number].color} /></svg>`;
  }
}

/** @param {string} name @param {AbortSignal} signal @returns {Promise<{ drawn: Drawn, image: HTMLImageElement | null }>} */
async function fetchMap(name, signal) {
  const address = `api/maps/${encodeURIComponent(name)}`;
  const drawn = await askData(`${address}/map.json`, { signal });
  return { drawn, image: drawn.thumbnails ? await askPicture(`${address}/thumbnails.webp`) : null };
}

/** @param {Entry} entry */
function about({ groupName, pictures }) {
  return `${groupName}, ${pictures === 1 ? "1 picture" : `${pictures} pictures`}`;
}

/** Numbers of the entries that fit. @param {Entry[]} list @param {(entry: Entry) => boolean} fits */
function indices(list, fits) {
  return list.flatMap((entry, index) => (fits(entry) ? [index] : []));
}
