// Light, dark, or as the system has it: the style sheet follows the root's colour scheme.

const WORDS = /** @type {Record<string, string>} */ ({
  "": "Colours: system",
  light: "Colours: light",
  dark: "Colours: dark",
});
const NAMES = Object.keys(WORDS);
const CHANGE = "schemechange";

/** Do something when the colours have changed: what is drawn on a canvas does not follow the style sheet. @param {() => void} action */
export function onScheme(action) {
  addEventListener(CHANGE, action);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", action);
}

/** Let a button go through the schemes, and remember the one chosen. @param {HTMLElement} button */
export function themeButton(button) {
  const kept = () => Math.max(0, NAMES.indexOf(localStorage.getItem("scheme") ?? ""));
  const show = () => {
    const name = NAMES[kept()];
    document.documentElement.style.colorScheme = name;
    button.textContent = WORDS[name];
    dispatchEvent(new Event(CHANGE));
  };
  button.addEventListener("click", () => {
    localStorage.setItem("scheme", NAMES[(kept() + 1) % NAMES.length]);
    show();
  });
  show();
}
