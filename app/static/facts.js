// Terms and their descriptions, as text.

/**
 * @param {HTMLElement} list  a dl
 * @param {Array<[string, string]>} facts  terms with their descriptions
 */
export function listFacts(list, facts) {
  const entries = facts.map(([term, description]) => {
    const entry = document.createElement("div");
    const name = document.createElement("dt");
    const text = document.createElement("dd");
    name.textContent = term;
    text.textContent = description;
    entry.append(name, text);
    return entry;
  });
  list.replaceChildren(...entries);
}
