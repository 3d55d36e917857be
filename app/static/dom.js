// Elements of the page's own markup, which are known to be there. Their type has what any of them may have: a script
// knows whether it asked for a button, an output or a canvas.

/** @param {ParentNode} root @param {string} selector @returns {Part} */
export function find(root, selector) {
  const found = root.querySelector(selector);
  if (!found) throw new Error(`the markup has no ${selector}`);
  return /** @type {Part} */ (found);
}

/** @param {ParentNode} root @param {string} selector @returns {Part[]} */
export function findAll(root, selector) {
  return [...root.querySelectorAll(selector)].map((found) => /** @type {Part} */ (found));
}

/** The controls of a form, by name. @param {Element} form @returns {Record<string, Part>} */
export function controls(form) {
  return /** @type {any} */ (/** @type {HTMLFormElement} */ (form).elements);
}

/** What was typed or chosen. @param {Event} event */
export function valueOf({ target }) {
  return /** @type {Part} */ (target).value;
}
