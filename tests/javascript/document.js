// A document without a browser: elements with boxes, listeners and canvases, as far as the views use them.

import { resolveObjectURL } from "node:buffer";

/** Width and height of an image, whose file is a text of them. @param {string} text */
const sides = (text) => text.split(" ").map(Number);

/** What an element asks of its canvas. Images are drawn by their own `pixels`, RGBA. */
class Context {
  drawn = [];
  constructor(canvas) {
    this.canvas = canvas;
  }
  createImageData(width, height) {
    return { width, height, data: new Uint8ClampedArray(4 * width * height) };
  }
  putImageData(image, x, y) {
    if (x || y) throw new Error("pixels beside the canvas");
    this.shown = image;
  }
  drawImage(image, ...box) {
    this.drawn.push([image, ...box]);
  }
  getImageData(x, y, width, height) {
    const [image, left, top, ...size] = this.drawn.at(-1);
    const data = image.pixels ?? new Uint8ClampedArray(4 * width * height);
    if (x || y || left || top || data.length !== 4 * width * height) throw new Error("pixels of another size");
    if (size.length && String(size) !== String([this.canvas.width, this.canvas.height])) throw new Error("a part");
    return { width, height, data };
  }
  fillRect(...box) {
    this.filled = box;
  }
  save() {}
  restore() {}
  clip() {}
  rect(...box) {
    this.clipped = box;
  }
}

/** One step of a selector: `tag`, `#id`, `.class`, `[name=value]`, `:checked`, `:is(a, b)`, or several of them. */
function fits(element, step) {
  const parts = step.match(/:\w+\(.*?\)|:[a-z-]+|[.#][\w-]+|\[[^\]]+\]|[\w*-]+/g);
  return parts.every((part) => {
    if (part.startsWith(":is")) return part.slice(4, -1).split(", ").some((one) => fits(element, one)); // prettier-ignore
    if (part.startsWith(":not")) return !fits(element, part.slice(5, -1));
    if (part.startsWith(":has")) return element.querySelector(part.slice(5, -1)) !== null;
    if (part.startsWith("#")) return element.id === part.slice(1);
    if (part === ":scope" || part === "*") return true;
    if (part.startsWith(":")) return Boolean(element[part.slice(1)]);
    if (part.startsWith(".")) return element.classList.contains(part.slice(1));
    if (!part.startsWith("[")) return element.tag === part;
    const [name, value] = part.slice(1, -1).split("=");
    return value === undefined ? name in element.attributes : element.attributes[name] === value;
  });
}

function selects(selector, element) {
  return selector.split(/, (?![^(]*\))/).some((path) => {
    const steps = path.split(/ +(?![^(]*\))/);
    let at = element;
    if (!fits(at, steps.pop())) return false;
    while (steps.length) {
      const direct = steps.at(-1) === ">" && steps.pop();
      const step = steps.pop();
      at = at.parentElement;
      while (at && !fits(at, step) && !direct) at = at.parentElement;
      if (!at || !fits(at, step)) return false;
    }
    return true;
  });
}

/** The attributes `data-…` of an element. @param {Element} element @returns {any} */
function dataOf(element) {
  const named = (name) => `data-${name.replace(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`)}`;
  return new Proxy(element, {
    get: (_, name) => element.attributes[named(name)],
    set: (_, name, value) => (element.setAttribute(named(name), value), true),
    deleteProperty: (_, name) => delete element.attributes[named(name)],
  });
}

export class Element {
  children = [];
  attributes = {};
  listeners = {};
  dataset = dataOf(this);
  parentElement = null;
  box = [0, 0, 0, 0]; // left, top, width, height on the screen
  style = { setProperty: (name, value) => (this.style[name] = value) };
  classList = { add: (name) => this.setAttribute("class", `${this.attributes.class ?? ""} ${name}`), contains: (name) => (this.attributes.class ?? "").split(" ").includes(name) }; // prettier-ignore

  constructor(tag) {
    this.tag = tag;
    this.viewBox = { baseVal: {} };
    if (["canvas", "img"].includes(tag)) Object.assign(this, { width: 0, height: 0 });
  }
  get clientWidth() {
    return this.box[2];
  }
  get clientHeight() {
    return this.box[3];
  }
  get offsetWidth() {
    return this.box[2];
  }
  get offsetLeft() {
    return this.box[0];
  }
  get src() {
    return this.attributes.src;
  }
  set src(address) {
    this.attributes.src = address;
  }
  get elements() {
    return this.querySelectorAll("input, select");
  }
  get firstElementChild() {
    return this.children[0];
  }
  get textContent() {
    return this.children.map((child) => child.textContent ?? child).join("");
  }
  set textContent(text) {
    this.children = [text];
  }
  getBoundingClientRect() {
    const [left, top, width, height] = this.box;
    return { left, top, x: left, y: top, width, height, right: left + width, bottom: top + height };
  }
  getClientRects() {
    return [this.box];
  }
  checkVisibility() {
    return true;
  }
  getRootNode() {
    return document;
  }
  getContext() {
    return (this.context ??= new Context(this));
  }
  append(...nodes) {
    for (const node of nodes) if (node instanceof Element) node.parentElement = this;
    this.children.push(...nodes);
  }
  before(...nodes) {
    this.place(0, nodes);
  }
  after(...nodes) {
    this.place(1, nodes);
  }
  place(behind, nodes) {
    const { children } = this.parentElement;
    for (const node of nodes) children.splice(children.indexOf(node), 1);
    children.splice(children.indexOf(this) + behind, 0, ...nodes);
  }
  dispatchEvent(event) {
    this.fire(event.type);
  }
  replaceChildren(...nodes) {
    this.children = [];
    this.append(...nodes);
  }
  getAttribute(name) {
    return this.attributes[name] ?? null;
  }
  setAttribute(name, value) {
    this.attributes[name] = String(value);
    const read = { hidden: true, disabled: true, checked: true, open: true }[name] ?? value;
    if (!["style", "class", "width", "height", "viewBox"].includes(name)) this[name] = read;
    if (name === "viewBox") [, , this.viewBox.baseVal.width, this.viewBox.baseVal.height] = value.split(" ").map(Number); // prettier-ignore
  }
  toggleAttribute(name, on) {
    if (on) this.setAttribute(name, "");
    else this.removeAttribute(name);
  }
  removeAttribute(name) {
    delete this.attributes[name];
    if (typeof this[name] === "boolean") this[name] = false;
    else if (Object.hasOwn(this, name)) delete this[name];
  }
  addEventListener(name, react) {
    (this.listeners[name] ??= []).push(react);
  }
  removeEventListener(name, react) {
    this.listeners[name] = (this.listeners[name] ?? []).filter((other) => other !== react);
  }
  /** Call the listeners of an event. */
  fire(name, event = {}) {
    const given = { target: this, type: name, button: 0, isPrimary: true, preventDefault() {}, ...event };
    for (const react of this.listeners[name] ?? []) react(given);
  }
  click() {
    this.fire("click");
  }
  all() {
    return this.children.filter((child) => child instanceof Element).flatMap((child) => [child, ...child.all()]);
  }
  querySelectorAll(selector) {
    return this.all().filter((element) => selects(selector, element));
  }
  querySelector(selector) {
    return this.querySelectorAll(selector)[0] ?? null;
  }
  matches(selector) {
    return selects(selector, this);
  }
  closest() {
    return null;
  }
  cloneNode() {
    return Object.assign(new Element(this.tag), { attributes: { ...this.attributes } });
  }
  get outerHTML() {
    const attributes = Object.entries(this.attributes).map(([name, value]) => ` ${name}="${value}"`);
    return `<${this.tag}${attributes.join("")}/>`;
  }
  async decode() {
    const [width, height] = sides((await resolveObjectURL(this.src ?? "")?.text()) ?? "");
    Object.assign(this, { naturalWidth: width, naturalHeight: height });
  }
  focus() {}
  remove() {}
  showModal() {}
  close() {}
  setPointerCapture() {}
}

class OffscreenCanvas extends Element {
  constructor(width, height) {
    super("canvas");
    Object.assign(this, { width, height });
  }
  async convertToBlob({ type, quality = "" }) {
    return new Blob([`${this.width} ${this.height} ${quality}`], { type });
  }
}

const page = Object.assign(new Element("html"), {
  head: new Element("head"),
  body: new Element("body"),
  baseURI: "http://lab/",
  createElement: (tag) => new Element(tag),
  createElementNS: (_, tag) => new Element(tag),
  createTextNode: (text) => text,
  getElementById: (id) => page.querySelector(`#${id}`),
});
page.append(page.body);
function createStorage() {
  const values = new Map();
  return {
    getItem: (name) => values.get(name) ?? null,
    setItem: (name, value) => values.set(name, value),
    removeItem: (name) => values.delete(name),
  };
}
/** The browser's database, one table: items by id; `failure` ends its transactions, `closed` every access. */
export const kept = { items: new Map(), failure: null, closed: false };
const table = {
  put: (item) => kept.failure || kept.items.set(item.id, { ...item }),
  delete: (id) => kept.items.delete(id),
  clear: () => kept.items.clear(),
  getAll: () => ({ result: [...kept.items.keys()].sort().map((id) => kept.items.get(id)) }),
};
const database = {
  transaction() {
    const transaction = { objectStore: () => table, error: kept.failure };
    setImmediate(() => (kept.failure ? transaction["onabort"]() : transaction["oncomplete"]()));
    return transaction;
  },
};
const indexedDB = {
  open() {
    const request = { result: database };
    setImmediate(() => (kept.closed ? request["onerror"]() : request["onsuccess"]()));
    return request;
  },
};
/** Listeners of the window, and what a media query returns. */
export const windowEvents = new Element("window");
export const media = Object.assign(new Element("media"), { matches: false });
/** Answers of the server by path. @type {Record<string, BodyInit>} */
export const served = {};
Object.assign(globalThis, {
  document: page,
  window: globalThis,
  Document: class {
    static [Symbol.hasInstance](value) {
      return value === page;
    }
  },
  HTMLImageElement: class {},
  SVGSVGElement: class {},
  OffscreenCanvas,
  ResizeObserver: class {
    observe() {}
  },
  FileReader: class {
    async readAsDataURL(blob) {
      this.result = `data:${await blob.text()}`;
      this.onload();
    }
  },
  indexedDB,
  localStorage: createStorage(),
  sessionStorage: createStorage(),
  addEventListener: (name, react) => windowEvents.addEventListener(name, react),
  removeEventListener: (name, react) => windowEvents.removeEventListener(name, react),
  requestAnimationFrame: (draw) => (draw(), 1),
  cancelAnimationFrame() {},
  matchMedia: () => media,
  MutationObserver: class {
    constructor(react) {
      this.react = react;
    }
    observe(element) {
      element.changed = this.react;
    }
  },
  getComputedStyle: (element) => element.computed ?? {},
  createImageBitmap: async (blob) => {
    const address = await blob.text();
    if (address === "broken") throw new Error("no image");
    const [width, height] = sides(address);
    return { address, width, height, pixels: served.pixels, close() {} };
  },
  fetch: async (address) => {
    const { protocol, pathname } = new URL(address, page.baseURI);
    if (protocol === "data:") return new Response(decodeURI(pathname));
    const name = pathname.slice(1);
    return new Response(served[name] ?? null, { status: name in served ? 200 : 404 });
  },
});

/** Arguments of the constructor of a view, with what it emits. @returns {any} */
export function mounted(props, box = [0, 0, 0, 0]) {
  const emitted = [];
  const element = Object.assign(new Element("div"), { box });
  return { element, props, emitted, watch() {}, emit: (name, data) => emitted.push([name, data]) };
}

/** Wait until what a view loads is shown. */
export async function settled() {
  for (let turn = 0; turn < 8; turn++) await new Promise(setImmediate);
}
