// The class map: classes near those that the model finds alike.

import { find } from "../../app/static/dom.js";
import { html, render } from "../../app/static/vendor/lit-html.js";
import { Scatter } from "../../app/static/widgets/scatter.js";

const NEIGHBOURS = 5;

/** @param {HTMLElement} root @param {any} data */
export function classes(root, { classes: drawn }) {
  render(
    html`
      <canvas class="live-map" tabindex="0" role="application" aria-label="Map of classes"></canvas>
      <p class="live-said" aria-live="polite"></p>
      <p>Point at a class or use the arrow keys; click or Enter draws lines to those it is nearest to; plus and minus zoom.</p>
    `,
    root,
  );
  const said = find(root, ".live-said");
  const number = new Map(drawn.groups.map((/** @type {any} */ { name }, /** @type {number} */ index) => [name, index]));
  const points = drawn.classes.map((/** @type {any} */ one) => {
    const group = number.get(one.group) ?? drawn.groups.length - 1;
    return { ...one, group, groupName: one.group, color: drawn.groups[group].color };
  });
  const nearest = (/** @type {number} */ index) => points[index].neighbours.slice(0, NEIGHBOURS);
  const tell = (/** @type {number | null} */ index) => {
    if (index === null) return;
    const names = nearest(index).map((/** @type {[number, number]} */ [other]) => points[other].name);
    said.textContent = `${points[index].name} (${points[index].groupName}): nearest are ${names.join(", ")}.`;
  };
  const scatter = new Scatter(/** @type {any} */ (find(root, "canvas")), {
    hover: (index) => tell(index ?? scatter.shown.chosen),
    pick: (index) => {
      const neighbours = index === null ? [] : nearest(index).map((/** @type {[number, number]} */ [other]) => other);
      scatter.show({ chosen: index, neighbours });
      tell(index);
    },
  });
  scatter.open(points, null);
  Object.assign(root, { scatter });
}
