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

  /** Return an entry; a missing one is made. @param {string} key @param {() => Promise<[any, number]>} make  value and bytes */
  async remembered(key, make) {
    return this.get(key) ?? this.put(key, ...(await make()));
  }

  forget(key) {
    this.bytes -= this.entries.get(key)?.bytes ?? 0;
    this.entries.delete(key);
  }

  clear() {
    for (const key of [...this.entries.keys()]) this.forget(key);
  }
}
