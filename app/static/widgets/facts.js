// Terms and their descriptions, as text.

import { html, render } from "../vendor/lit-html.js";

/** @param {HTMLElement} list  a dl @param {[string, string][]} facts */
export function listFacts(list, facts) {
  render(
    facts.map(([term, words]) => html`<div><dt>${term}</dt><dd>${words}</dd></div>`),
    list,
  );
}
