// The live figures of the book: each element .live of a page gets the one it names. They are the page's own views and
// arithmetic, bundled by `make docs` into one classic script, over data that other scripts have left in
// `window.dinoFigures`: a page on a disk has no server.

import views from "../../app/static/views/views.css";
import figures from "./figures.css";
import { classes } from "./classes.js";
import { collapse } from "./collapse.js";
import { heads, opening, point } from "./maps.js";
import { video } from "./video.js";

const FIGURES = /** @type {Record<string, (root: HTMLElement, data: any) => Promise<void>>} */ ({
  heads,
  point,
  opening,
  classes,
  collapse,
  video,
});
// In a shadow tree the style of the views is the figure's own and nobody else's.
const STYLE = [figures, views].join("\n").replaceAll(":root", ":host");

for (const place of /** @type {NodeListOf<HTMLElement>} */ (document.querySelectorAll(".live"))) {
  const shadow = place.attachShadow({ mode: "open" });
  const style = document.createElement("style");
  style.textContent = STYLE;
  const root = document.createElement("div");
  root.className = "live-root";
  shadow.append(style, root);
  FIGURES[place.dataset.figure ?? ""](root, /** @type {any} */ (window).dinoFigures).then(
    () => (place.dataset.ready = ""),
  );
}
