// The footer: what this is, whose the photographs are, and where to read on.

import { html, render } from "../vendor/lit-html.js";

const PAPER = "https://arxiv.org/abs/2104.14294";

/** @param {HTMLElement} footer @param {Facts} facts */
export function about(footer, { examples, credits, card }) {
  const away = (/** @type {string} */ address, /** @type {string} */ words) =>
    html`<a href=${address} target="_blank" rel="noopener noreferrer">${words}</a>`;
  render(
    html`<details>
      <summary>About this page, its model and its photographs</summary>
      <p>
        DINO (${away(PAPER, "Caron et al. 2021")}) trains a vision transformer to agree with itself on crops of a
        picture, without any label. What the network learned to tell apart can be seen: every patch of a photograph has
        a key, and patches of one object have keys alike. The page asks the model once for each photograph; all else is
        computed in this browser. Photographs stay in the server's memory until others take their place; nothing is
        stored.
      </p>
      <h2>The model</h2>
      <p>${card}</p>
      <h2>The photographs</h2>
      <ul>
        ${[...examples, ...credits].map(({ title, author, licence, source }) => html`<li>${away(source, title)}, by ${author}, ${licence}</li>`)}
      </ul>
      <h2>For programs</h2>
      <p>
        A few addresses answer in JSON: encode, attention, mask, discover, match, propagate.
        <a href="api/openapi.json">Their description as OpenAPI</a>; the source and its licence, Apache 2.0, come with the
        page's package.
      </p>
    </details>`,
    footer,
  );
}
