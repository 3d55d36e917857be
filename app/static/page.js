// The page: it reads the facts, draws the header, and opens tabs. A tab is a folder of three files, loaded when it is
// first shown; what its module exports is a `Tab`.

import { find, findAll } from "./dom.js";
import { Lab } from "./lab.js";
import { about } from "./widgets/about.js";
import { Header } from "./widgets/header.js";
import { themeButton } from "./widgets/theme.js";
import { html, render } from "./vendor/lit-html.js";

/** @type {Record<string, string>} */
const TABS = {
  explore: "Explore",
  segment: "Segment",
  compare: "Compare",
  match: "Match",
  "class-map": "Class map",
  video: "Video",
  training: "Training",
  learn: "Learn",
};
const STEPS = /** @type {Record<string, number>} */ ({ ArrowLeft: -1, ArrowRight: 1 });

class Page {
  /** @param {Document} page */
  constructor(page) {
    this.find = (/** @type {string} */ selector) => find(page, selector);
    this.lab = new Lab(JSON.parse(this.find("#facts").textContent ?? ""), page);
    this.header = new Header(this.find("#header"), this.lab);
    themeButton(this.find("#theme"));
    about(this.find("#footer"), this.lab.facts);
    /** @type {Map<string, Promise<import("./tab.js").Tab>>} */
    this.tabs = new Map();
    this.shown = "";
    this.lab.changed = () => this.show();
    addEventListener("popstate", () => this.lab.travel());
    this.show();
  }

  get tab() {
    const { tab } = this.lab.state;
    return tab in TABS ? tab : this.lab.start.tab;
  }

  async show() {
    const { tab } = this;
    this.header.show();
    render(
      Object.entries(TABS).map(([name, title]) => this.button(name, title)),
      this.find("#tabs"),
    );
    for (const panel of findAll(document, "[role=tabpanel]")) panel.hidden = panel.id !== tab;
    this.find("[aria-selected=true]").scrollIntoView({ block: "nearest", inline: "nearest" });
    document.title = `${TABS[tab]} · DINO attention lab`;
    if (this.shown !== tab) this.leave(this.shown);
    this.shown = tab;
    if (!this.tabs.has(tab)) this.tabs.set(tab, this.mount(tab));
    try {
      const opened = await this.tabs.get(tab);
      if (this.shown === tab) opened?.look();
    } catch {
      this.tabs.delete(tab);
      this.lab.messages.say(`${TABS[tab]} could not be fetched: reload the page.`, "address");
    }
  }

  /** One that is still on its way, or failed, holds up no other. @param {string} name */
  leave(name) {
    this.tabs.get(name)?.then(
      (tab) => tab.leave(),
      () => {},
    );
  }

  /** @param {string} name @param {string} title */
  button(name, title) {
    const chosen = name === this.tab;
    return html`<button
      type="button" role="tab" id=${`tab-${name}`} aria-controls=${name} aria-selected=${chosen}
      tabindex=${chosen ? 0 : -1}
      @click=${() => this.lab.change({ tab: name })}
      @keydown=${(event) => this.step(event, name)}
    >${title}</button>`;
  }

  /** @param {KeyboardEvent} event @param {string} name */
  step({ key }, name) {
    const names = Object.keys(TABS);
    const by = STEPS[key];
    if (!by) return;
    const next = names[(names.indexOf(name) + by + names.length) % names.length];
    this.lab.change({ tab: next });
    this.find(`#tab-${next}`).focus();
  }

  /** Fetch a tab and let it draw itself. @param {string} name */
  async mount(name) {
    const file = name.replace("-", "_");
    const [module, markup] = await Promise.all([
      import(`./tabs/${file}/${file}.js`),
      fetch(new URL(`./tabs/${file}/${file}.html`, import.meta.url)).then((answer) => {
        if (!answer.ok) throw new Error(answer.statusText);
        return answer.text();
      }),
      styled(new URL(`./tabs/${file}/${file}.css`, import.meta.url)),
    ]);
    const panel = this.find(`#${name}`);
    panel.innerHTML = markup;
    if (matchMedia("(max-width: 560px)").matches) for (const fold of findAll(panel, ".lab-fold")) fold.open = false;
    return new module.default(panel.firstElementChild, this.lab);
  }
}

/** Resolves once a style sheet counts. @param {URL} address */
function styled(address) {
  const link = Object.assign(document.createElement("link"), { rel: "stylesheet", href: address.href });
  return new Promise((resolve, reject) => {
    link.onload = resolve;
    link.onerror = reject;
    document.head.append(link);
  });
}

// For the browser's console, and for tests.
Object.assign(window, { page: new Page(document) });
