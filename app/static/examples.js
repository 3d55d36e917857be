// Photographs that are one click away: the examples, and the one that lies open in Explore.

/**
 * @param {HTMLElement} strip  where the buttons go
 * @param {Array<{name: string, title: string, thumbnail: string}>} examples
 * @param {(example: {name: string}) => void} open
 */
export function offerExamples(strip, examples, open) {
  for (const example of examples) {
    const { name, title, thumbnail } = example;
    const picture = document.createElement("img");
    picture.src = thumbnail;
    picture.alt = title;
    const made = button(() => open(example));
    made.className = "lab-example";
    made.dataset.example = name;
    made.title = title;
    made.append(picture);
    strip.append(made);
  }
}

/**
 * The examples, and what lies open in Explore.
 * @param {(asked: {example?: string, token?: string}) => void} open
 */
export function offerPhotographs(strip, examples, open) {
  offerExamples(strip, examples, ({ name }) => open({ example: name }));
  const explored = button(() => open({ token: tokenInExplore() }));
  explored.className = "lab-quiet";
  explored.textContent = "Photograph from Explore";
  strip.append(explored);
}

/** Mark the example that is open; null marks none. */
export function markExample(strip, name) {
  for (const example of strip.querySelectorAll(".lab-example")) {
    example.setAttribute("aria-pressed", String(example.dataset.example === name));
  }
}

/** What Explore shows; undefined before it shows anything. */
export function tokenInExplore() {
  return document.querySelector("#explore .lab")?.dataset.token;
}

function button(onClick) {
  const made = document.createElement("button");
  made.type = "button";
  made.addEventListener("click", onClick);
  return made;
}
