// Light, dark, or as the system has it: the style sheet follows the root's colour scheme.

const SCHEMES = /** @type {Record<string, string>} */ ({ "": "light dark", light: "light", dark: "dark" });
const WORDS = /** @type {Record<string, string>} */ ({
  "": "Colours: system",
  light: "Colours: light",
  dark: "Colours: dark",
});

/** Let a button go through the schemes, and remember the one chosen. @param {HTMLElement} button */
export function themeButton(button) {
  const show = (/** @type {string} */ chosen) => {
    document.documentElement.style.colorScheme = chosen && SCHEMES[chosen];
    button.textContent = WORDS[chosen];
  };
  const read = () => {
    const kept = localStorage.getItem("scheme") ?? "";
    return kept in SCHEMES ? kept : "";
  };
  button.addEventListener("click", () => {
    const names = Object.keys(SCHEMES);
    const next = names[(names.indexOf(read()) + 1) % names.length];
    localStorage.setItem("scheme", next);
    show(next);
  });
  show(read());
}
