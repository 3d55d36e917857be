// Elements made by scripts.

const SVG = "http://www.w3.org/2000/svg";

/**
 * Create an element. `onclick` and the like become listeners; `true` sets an attribute, `false` and null omit it.
 * @param {string} tag @param {Record<string, any>} [attributes] @param {...(Node | string | false)} children
 * @returns {Part}
 */
export function el(tag, attributes = {}, ...children) {
  return /** @type {Part} */ (fill(document.createElement(tag), attributes, children));
}

/** Create an SVG element. @param {string} tag @param {Record<string, any>} [attributes] @param {...Node} children @returns {any} */
export function svg(tag, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value !== false && value !== null && value !== undefined)
      element.setAttribute(name, value === true ? "" : String(value));
  }
  element.append(...children.filter(Boolean));
  return element;
}

/** Create a button. @param {string} label @param {() => void} onclick @param {Record<string, any>} [attributes] */
export function button(label, onclick, attributes = {}) {
  return el("button", { type: "button", onclick, ...attributes }, label);
}

/** Open a dialog; it is removed when it is closed. @param {Element} place @param {string} title @param {...any} children */
export function openDialog(place, title, ...children) {
  const close = button("Close", () => dialog.close(), { class: "lab-close" });
  const header = el("header", {}, el("h3", {}, title), close);
  const attributes = { class: "lab-dialog", "aria-label": title, onclose: () => dialog.remove() };
  const dialog = /** @type {any} */ (el("dialog", attributes, header, ...children));
  place.append(dialog);
  dialog.showModal();
  return dialog;
}

/** Load the style sheet of the views once per document or shadow tree. @param {Element} element */
export function loadStyle(element) {
  const root = /** @type {Document | ShadowRoot} */ (element.getRootNode());
  const place = root instanceof Document ? root.head : root;
  const { href } = new URL("views.css", import.meta.url);
  if (href.startsWith("bundle:")) return; // the bundle of the book contains the style
  if (![...place.querySelectorAll("link")].some((link) => link.href === href))
    place.append(el("link", { rel: "stylesheet", href }));
}
