// A document without a browser: elements with boxes, listeners and canvases, as far as the views use them.

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
    const data = this.drawn.at(-1)[0].pixels ?? new Uint8ClampedArray(4 * width * height);
    if (x || y || data.length !== 4 * width * height) throw new Error("pixels of another size");
    return { width, height, data };
  }
  save() {}
  restore() {}
  clip() {}
  rect(...box) {
    this.clipped = box;
  }
}

/** One step of a selector: `tag`, `.class`, `[name=value]`, `:checked`, `:is(a, b)`, or several of them. */
function fits(element, step) {
  const parts = step.match(/:is\(.*?\)|:[a-z-]+|\.[\w-]+|\[[^\]]+\]|[\w*-]+/g);
  return parts.every((part) => {
    if (part.startsWith(":is")) return part.slice(4, -1).split(", ").some((one) => fits(element, one)); // prettier-ignore
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

export class Element {
  children = [];
  attributes = {};
  listeners = {};
  dataset = {};
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
  async decode() {}
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
  baseURI: "http://lab/",
  createElement: (tag) => new Element(tag),
  createElementNS: (_, tag) => new Element(tag),
  createTextNode: (text) => text,
  getElementById: () => null,
});
const storage = { getItem: () => null, setItem() {}, removeItem() {} };
const windowListeners = new Element("window");
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
  localStorage: storage,
  sessionStorage: storage,
  addEventListener: (name, react) => windowListeners.addEventListener(name, react),
  removeEventListener: (name, react) => windowListeners.removeEventListener(name, react),
  requestAnimationFrame: (draw) => (draw(), 1),
  cancelAnimationFrame() {},
  matchMedia: () => ({ matches: false }),
  getComputedStyle: (element) => element.computed ?? {},
  createImageBitmap: async (blob) => ({ address: await blob.text(), pixels: served.pixels }),
  fetch: async (address) => new Response(served[address.pathname.slice(1)] ?? null, { status: address.pathname.slice(1) in served ? 200 : 404 }), // prettier-ignore
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
