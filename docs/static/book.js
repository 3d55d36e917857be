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

// In a lesson, the results of the cells that follow a prediction, and the text about them, are shown when the reader
// asks for them.
function hideResults() {
  for (const word of document.querySelectorAll("p > strong")) {
    if (word.textContent !== "Prediction.") continue;
    let element = word.closest("p")?.nextElementSibling;
    while (element && !element.matches(".cell")) element = element.nextElementSibling;
    let details;
    for (; element?.matches(".cell"); element = element.nextElementSibling) {
      const output = element.querySelector(".cell_output");
      if (output) details = fold(output);
    }
    // The text ends before a section, a cell or a paragraph with a title, such as an exercise.
    while (element && !element.matches("section, .cell") && element.firstChild?.nodeName !== "STRONG") {
      const next = element.nextElementSibling;
      details?.append(element);
      element = next;
    }
  }
}

/** @param {Element} output */
function fold(output) {
  const details = document.createElement("details");
  const summary = document.createElement("summary");
  summary.textContent = "Show the result";
  output.before(details);
  details.append(summary, output);
  return details;
}

addEventListener("DOMContentLoaded", hideResults);
