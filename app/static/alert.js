// The sentence on a tab that tells what cannot be had, and why.

import { Refusal } from "./encoding.js";

export class Alert {
  /** @param {HTMLElement} element  where it stands */
  constructor(element) {
    this.element = element;
  }

  /** One sentence; an empty one takes it away. */
  say(sentence) {
    this.element.textContent = sentence;
    this.element.hidden = !sentence;
  }

  /** What `action` brings, or null after saying why there is nothing. */
  async attempt(action) {
    try {
      return (await action()) ?? null;
    } catch (error) {
      if (!(error instanceof Refusal)) throw error;
      this.say(error.message);
      return null;
    }
  }

  /** An attempt that a visitor asked for: what was said of an earlier one goes. */
  afresh(action) {
    this.say("");
    return this.attempt(action);
  }
}
