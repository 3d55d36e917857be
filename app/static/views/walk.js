// A pin that walks over the first image once, so that the page explains itself. It ends when somebody points.

const STAY = 1300; // milliseconds at each place
const MOVE = 400; // as in the style sheet
const STOPS = ["pointerdown", "keydown", "focusin"]; // anywhere on the page

/**
 * Walk over places, and stay at the first. With reduced motion the pin does not move.
 * @param {import("./attention_view.js").AttentionView} view @param {[number, number][]} places
 * @returns {() => void} ends the walk and removes the pin
 */
export function walk(view, places) {
  const { element } = view.stage;
  const still = window.matchMedia("(prefers-reduced-motion: reduce)").matches;
  const path = (still ? places.slice(0, 1) : [...places, places[0]]).map(([x, y]) => ({ x, y }));
  let timer = 0;
  const step = () => {
    view.guide(path.shift());
    if (path.length) timer = window.setTimeout(step, STAY);
    else timer = window.setTimeout(() => (view.element.dataset.walk = "over"), MOVE); // tests wait for it
  };
  const end = () => {
    clearTimeout(timer);
    for (const name of STOPS) window.removeEventListener(name, end, true);
    element.removeEventListener("pointermove", end);
    view.element.dataset.walk = "over";
    view.endWalk = null;
    if (view.encoding) view.guide(null);
  };
  for (const name of STOPS) window.addEventListener(name, end, true);
  element.addEventListener("pointermove", end);
  view.element.dataset.walk = "on";
  step();
  return end;
}
