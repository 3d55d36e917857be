// Only the newest request counts: it aborts earlier requests and drops their responses.

export class Newest {
  controller = null;

  cancel() {
    this.controller?.abort();
  }

  /**
   * Run `work`; undefined if another request began before its end.
   * @template T @param {(signal: AbortSignal) => Promise<T>} work @returns {Promise<T>}
   */
  async run(work) {
    this.cancel();
    const controller = (this.controller = new AbortController());
    try {
      const answer = await work(controller.signal);
      return controller.signal.aborted ? undefined : answer;
    } catch (error) {
      if (controller.signal.aborted) return undefined;
      throw error;
    }
  }
}

/** Delay `action` until it has not been called for some milliseconds. @param {() => void} action */
export function rested(action, milliseconds = 150) {
  let timer = 0;
  const call = () => {
    clearTimeout(timer);
    timer = window.setTimeout(action, milliseconds);
  };
  return Object.assign(call, { cancel: () => clearTimeout(timer) });
}
