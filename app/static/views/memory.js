// A cache bounded by bytes: the least recently used entries are dropped first.

export class Memory {
  bytes = 0;
  entries = new Map();

  /** @param {number} most  bytes */
  constructor(most) {
    this.most = most;
  }

  get(key) {
    const entry = this.entries.get(key);
    if (!entry) return undefined;
    this.entries.delete(key);
    this.entries.set(key, entry);
    return entry.value;
  }

  /** Add an entry. The newest is kept whatever its size. @param {string} key @param {number} bytes */
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

  /** Return a promise of an entry; `make` is called if it is missing, and again after a failure. */
  remembered(key, bytes, make) {
    if (this.entries.has(key)) return this.get(key);
    const made = make();
    made.catch(() => this.forget(key));
    return this.put(key, made, bytes);
  }

  forget(key) {
    this.bytes -= this.entries.get(key)?.bytes ?? 0;
    this.entries.delete(key);
  }

  clear() {
    for (const key of [...this.entries.keys()]) this.forget(key);
  }
}
