// What scrolls sideways can be reached by the keyboard: code, tables and formulas that are wider than the screen.

function reach() {
  const boxes = /** @type {NodeListOf<HTMLElement>} */ (document.querySelectorAll("pre, .table-wrapper, div.math"));
  for (const box of boxes) {
    if (box.scrollWidth > box.clientWidth) box.tabIndex = 0;
    else box.removeAttribute("tabindex");
  }
}

addEventListener("load", reach);
addEventListener("resize", reach);
