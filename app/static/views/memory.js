// What was fetched and may be wanted again, bounded by bytes: the least recently used goes first.

/** @template T */
export class Memory {
  /** @param {number} most  bytes */
  constructor(most) {
    this.most = most;
    this.bytes = 0;
    /** @type {Map<string, { value: T, bytes: number }>} */
    this.entries = new Map();
  }

  /** @param {string} key @returns {T | undefined} */
  get(key) {
    const entry = this.entries.get(key);
    if (!entry) return undefined;
    this.entries.delete(key);
    this.entries.set(key, entry);
    return entry.value;
  }

  /** The newest is kept however large it is: somebody looks at it. @param {string} key @param {T} value @param {number} bytes */
  put(key, value, bytes) {
    this.forget(key);
    this.entries.set(key, { value, bytes });
    this.bytes += bytes;
    for (const oldest of this.entries.keys()) {
      if (this.bytes <= this.most || oldest === key) break;
      this.forget(oldest);
    }
    return value;
  }

  /** @param {string} key */
  forget(key) {
    this.bytes -= this.entries.get(key)?.bytes ?? 0;
    this.entries.delete(key);
  }

  clear() {
    this.entries.clear();
    this.bytes = 0;
  }
}
