// The lab: what is open, pinned and set, for all tabs; the one way to a photograph as a model sees it.

import { find } from "./dom.js";
import { held, read, written } from "./address.js";
import { Encoding } from "./encoding.js";
import { Memory } from "./memory.js";
import { Newest, rested } from "./newest.js";
import { Refusal, askData, askSlowly, sendFile } from "./server.js";
import { Drawings } from "./widgets/brush.js";
import { Messages } from "./widgets/messages.js";
import { Waits } from "./widgets/waits.js";

const FILES_HELD = 100e6; // bytes of visitors' files, to be sent again where the server has forgotten them
const OTHER_MODELS = ["random:embedded", "embedded"];
const SPEAK_AFTER = 500; // milliseconds of rest before a readout is spoken

/** How the page opens. @param {Facts} facts @returns {State} */
function startOf({ start }) {
  const { model, size, example, clip, map } = start;
  const other = OTHER_MODELS.find((name) => name !== model) ?? model;
  const shown = { photo: example, name: "", second: "", secondName: "", clip, clipName: "" };
  const opened = { tab: "explore", ...shown, model, other, size, map, run: "", beside: "" };
  const asked = { quantity: "likeness", block: 0, head: "mean", layer: "light", mass: 60, patch: "", pins: "" };
  return { ...opened, ...asked, method: "click", step: 1 };
}

export class Lab {
  /** @param {Facts} facts @param {Document} page */
  constructor(facts, page) {
    this.facts = facts;
    this.start = startOf(facts);
    this.messages = new Messages(find(page, "#messages"));
    this.waits = new Waits(find(page, "#waits"));
    const spoken = find(page, "#spoken");
    this.speaking = rested(() => (spoken.textContent = this.sentence), SPEAK_AFTER);
    this.sentence = "";
    /** @type {Map<string, Encoding>} */
    this.encodings = new Map();
    /** @type {Memory<File>} */
    this.files = new Memory(FILES_HELD);
    /** @type {Map<string, string>} */
    this.renamed = new Map(); // what a file that was sent again was called before -> is called now
    this.drawings = new Drawings();
    /** @type {{ photo: string, name: string }[]} */
    this.own = []; // photographs that the visitor brought
    /** @type {Question | null} */
    this.seen = null; // what was last brought to a screen
    this.changed = () => {}; // called after every change but those that a tab notes of itself
    this.state = this.readAddress();
  }

  // ---- the address

  readAddress() {
    const { missing, ...state } = read(location.search, this.start, history.state);
    const what = missing === "clip" ? "clip" : "photograph";
    this.messages.say(
      missing ? `This address is about a ${what} that stayed with its sender: choose one of your own.` : "",
      "address",
    );
    return /** @type {State} */ (state);
  }

  /** Open, choose or set something; Back returns to what was. @param {Partial<State>} change */
  change(change) {
    if (!this.differs(change)) return;
    Object.assign(this.state, change);
    history.pushState(held(this.state), "", this.address);
    this.messages.clear();
    this.changed();
  }

  /** Write down what a tab shows already; Back does not stop here. @param {Partial<State>} change */
  note(change) {
    if (!this.differs(change)) return;
    Object.assign(this.state, change);
    history.replaceState(held(this.state), "", this.address);
  }

  /** Back and forward. */
  travel() {
    this.messages.clear();
    this.state = this.readAddress();
    this.changed();
  }

  get address() {
    return written(this.state, this.start) || location.pathname;
  }

  /** @param {Partial<State>} change */
  differs(change) {
    return Object.entries(change).some(([key, value]) => this.state[/** @type {keyof State} */ (key)] !== value);
  }

  // ---- photographs and encodings

  /** What the header asks for. @returns {Question} */
  get question() {
    const { photo, name, model, size } = this.state;
    return { photo, name, model, size };
  }

  /** The photograph of the header as its model sees it. Throws a Refusal. @param {Listening} listening */
  async open(listening) {
    const { question } = this;
    const encoding = await this.encode(question, listening);
    this.seen = { ...question, photo: encoding.photo };
    return encoding;
  }

  /**
   * A photograph as a model sees it; asked once for all tabs. Throws a Refusal.
   * @param {Question} question @param {Listening} listening
   */
  async encode({ photo, name, model, size }, listening = {}) {
    const key = JSON.stringify([photo, model, size]);
    const known = this.encodings.get(key);
    if (known) return known;
    const told = await this.about(
      photo,
      (here) => askSlowly("api/encode", { photo: here, model, size }, listening),
      listening.signal,
    );
    const pin = this.facts.examples.find((one) => one.photo === photo)?.pin;
    const encoding = new Encoding(told, name || photo, pin);
    this.encodings.set(key, encoding);
    return encoding;
  }

  /**
   * A photograph as a model sees it, with queries and keys of a block, the last where none is named. Throws a Refusal.
   * @param {Question} question @param {Listening} listening @param {number} [number]
   */
  async see(question, listening, number) {
    const encoding = await this.encode(question, listening);
    return { encoding, block: await encoding.block(number, listening.signal) };
  }

  /**
   * Ask about a photograph, or a clip; one that the server has forgotten is sent again first. Throws a Refusal.
   * @template T @param {string} named @param {(named: string) => Promise<T>} question @param {AbortSignal} [signal]
   * @param {"photo" | "clip"} kind
   */
  async about(named, question, signal, kind = "photo") {
    try {
      return await question(named);
    } catch (error) {
      const again = error instanceof Refusal && error.status === 404 && (await this.sendAgain(kind, named, signal));
      if (!again) throw error;
      return question(again);
    }
  }

  /**
   * Send something forgotten again, where its file is still here; what it is called now, else null.
   * @param {"photo" | "clip"} kind @param {string} named @param {AbortSignal} [signal]
   */
  async sendAgain(kind, named, signal) {
    const file = this.files.get(named);
    if (!file) return null;
    const sent = await this.send(kind, file, signal);
    this.renamed.set(named, sent[kind]);
    for (const key of /** @type {const} */ (["photo", "second", "clip"]))
      if (this.state[key] === named) this.note({ [key]: sent[kind] });
    return /** @type {string} */ (sent[kind]);
  }

  /** Send a file, and hold it in case the server forgets it. @param {"photo" | "clip"} kind @param {File} file @param {AbortSignal} [signal] */
  async send(kind, file, signal) {
    const sent = await sendFile(kind === "clip" ? "clips" : "photos", file, signal);
    this.files.put(sent[kind], file, file.size);
    return sent;
  }

  /** Look again which models there are; without an answer the list stays as it is. */
  async refreshFacts() {
    this.facts = await askData("api/facts").catch(() => this.facts);
  }

  /** What the server told may be forgotten there: ask for it anew. */
  forget() {
    this.encodings.clear();
  }

  /**
   * What could not be had gives way, in header and address, to what is seen; without that, to the model and the size
   * that the page opens with. Nothing ever takes the place of a visitor's photograph.
   * @param {Question} refused
   */
  giveWay(refused) {
    const asked = { ...refused, photo: this.renamed.get(refused.photo) ?? refused.photo };
    if (JSON.stringify(asked) !== JSON.stringify(this.question)) return; // another was chosen meanwhile
    const { model, size } = this.start;
    const instead = this.seen ?? { model, size };
    if (!this.differs(instead)) return;
    this.note(instead);
    this.changed();
  }

  // ---- what is said

  /** Tell those who do not see the screen, once it rests. @param {string} sentence */
  speak(sentence) {
    this.sentence = sentence;
    this.speaking();
  }

  /** A tab's way of asking. @param {string} about  the tab's name */
  asker(about) {
    return new Asker(this, about);
  }
}

/** Questions of one tab: the newest wins, a refusal is said, a wait is shown with a way out. */
export class Asker {
  /** @param {Lab} lab @param {string} about */
  constructor(lab, about) {
    this.lab = lab;
    this.about = about;
    this.newest = new Newest();
  }

  /**
   * What `work` brings; undefined where it was refused, cancelled, or another was asked meanwhile. What the server has
   * forgotten is asked for once more.
   * @template T
   * @param {(listening: { signal: AbortSignal, told: (word: Word) => void }) => Promise<T>} work
   * @param {(refused: boolean) => void} undone  called where the visitor cancels, or the server refuses
   * @returns {Promise<T | undefined>}
   */
  async ask(work, undone = () => {}) {
    const wait = this.lab.waits.begin(() => {
      this.newest.stop();
      undone(false);
    });
    try {
      return await this.newest.run(async (signal) => {
        const listening = { signal, told: wait.told };
        try {
          return await work(listening);
        } catch (error) {
          if (!(error instanceof Refusal) || error.status !== 404) throw error;
          this.lab.forget();
          return work(listening);
        }
      });
    } catch (error) {
      if (!(error instanceof Refusal)) throw error;
      this.lab.messages.say(error.message, this.about);
      undone(true);
      return undefined;
    } finally {
      wait.end();
    }
  }

  /** Do something whose refusal is said, beside other questions. @param {() => Promise<unknown>} action */
  async attempt(action) {
    this.lab.messages.say("", this.about);
    try {
      await action();
    } catch (error) {
      if (!(error instanceof Refusal)) throw error;
      this.lab.messages.say(error.message, this.about);
    }
  }

  stop() {
    this.newest.stop();
  }
}
