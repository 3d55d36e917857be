// Elements made by scripts, without a library.

const SVG = "http://www.w3.org/2000/svg";

/**
 * An element. Attributes are set as such; `onclick` and the like are listeners; `true` sets, `false` and null omit.
 * @param {string} tag @param {Record<string, any>} [attributes] @param {...(Node | string | null | false)} children
 * @returns {Part}
 */
export function el(tag, attributes = {}, ...children) {
  return /** @type {Part} */ (filled(document.createElement(tag), attributes, children));
}

/** The same in an SVG. @param {string} tag @param {Record<string, any>} [attributes] @param {...Node} children */
export function svg(tag, attributes = {}, ...children) {
  return filled(document.createElementNS(SVG, tag), attributes, children);
}

/** @template {Element} E @param {E} element @param {Record<string, any>} attributes @param {(Node | string | null | false)[]} children */
function filled(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) element.setAttribute(name, String(value));
  }
  element.append(...children.filter((child) => child !== null && child !== false));
  return element;
}

/** An element that is known to be there. @param {ParentNode} root @param {string} selector @returns {Part} */
export function find(root, selector) {
  const found = root.querySelector(selector);
  if (!found) throw new Error(`no element matches ${selector}`);
  return /** @type {Part} */ (found);
}

/** Load a style sheet beside a module, once per document or shadow tree. @param {Element} element @param {string} address */
export function style(element, address) {
  const root = /** @type {Document | ShadowRoot} */ (element.getRootNode());
  const place = root instanceof Document ? root.head : root;
  if (address.startsWith("bundle:")) return; // `book.live` brings the styles along
  if ([...place.querySelectorAll("link")].some(({ href }) => href === address)) return;
  place.append(el("link", { rel: "stylesheet", href: address }));
}
