// The class map: classes near those whose features are similar.

import { ClassMapView } from "../../app/static/views/class_map_view.js";
import { el } from "../../app/static/views/dom.js";

/** @param {HTMLElement} root @param {any} data */
export async function classes(root, { classes: drawn }) {
  const element = el("div", { class: "lab-view" });
  const help = "Point at a class or use the arrow keys; click or Enter lists its neighbors; plus and minus zoom.";
  root.replaceChildren(element, el("p", {}, help));
  const props = { map: "caltech101", data: drawn, value: {} };
  const view = new ClassMapView({ element, props, watch: () => {}, emit: () => {} });
  await view.reload();
  Object.assign(root, { view }); // for tests
}
