// Of several questions only the newest is answered: an earlier one is given up, and its answer goes nowhere.

export class Newest {
  constructor() {
    /** @type {AbortController | null} */
    this.controller = null;
  }

  /**
   * What `work` brings; undefined where another was begun, or all was given up, before it was done.
   * @template T
   * @param {(signal: AbortSignal) => Promise<T>} work
   * @returns {Promise<T | undefined>}
   */
  async run(work) {
    this.stop();
    const controller = (this.controller = new AbortController());
    try {
      const brought = await work(controller.signal);
      return controller.signal.aborted ? undefined : brought;
    } catch (error) {
      if (controller.signal.aborted) return undefined;
      throw error;
    } finally {
      if (this.controller === controller) this.controller = null;
    }
  }

  get busy() {
    return this.controller !== null;
  }

  /** Give up what is on its way. */
  stop() {
    this.controller?.abort();
    this.controller = null;
  }
}

/** Calls `action` once nothing has called for `milliseconds`. @param {() => void} action @param {number} milliseconds */
export function rested(action, milliseconds) {
  let timer = 0;
  const call = () => {
    clearTimeout(timer);
    timer = window.setTimeout(action, milliseconds);
  };
  return Object.assign(call, { cancel: () => clearTimeout(timer) });
}
