// A user's own images and clips, kept by the browser: they survive a reload, the way back, and a restart of the server.

const DATABASE = "dino-attention-lab";
const TABLE = "own";
const SWITCH = "dino-attention-lab-forget"; // in localStorage: files are not kept
const PRIVATE =
  "This browser keeps no files for pages, as in a private window: yours are gone when the page is closed.";

export class OwnStore extends EventTarget {
  /** @type {Map<string, Own>} */
  items = new Map(); // in the order of opening
  /** @type {Promise<IDBDatabase>} */
  opening = null; // the database, from its first use on
  problem = ""; // a sentence, if files are not kept although they should be
  loading = this.load();

  /** True if files are kept when the page is closed. */
  get keeps() {
    try {
      return localStorage.getItem(SWITCH) === null;
    } catch {
      return false; // storage is blocked
    }
  }

  /** Keep files from now on, or remove the kept ones and keep them no longer than the page is open. @param {boolean} keeps */
  async setKeeps(keeps) {
    try {
      if (keeps) localStorage.removeItem(SWITCH);
      else localStorage.setItem(SWITCH, "1");
    } catch {
      this.problem = PRIVATE;
    }
    for (const item of keeps ? this.items.values() : []) await this.run("readwrite", (table) => table.put(item));
    if (!keeps) await this.run("readwrite", (table) => table.clear());
    this.changed();
  }

  async load() {
    if (!this.keeps) return;
    const kept = await this.run("readonly", (table) => table.getAll());
    for (const item of kept ?? []) this.items.set(item.id, item);
    this.changed();
  }

  /** Return the own files of a kind, the newest first. @param {string} kind */
  list(kind) {
    return [...this.items.values()].filter((item) => item.kind === kind).reverse();
  }

  /** Add a file or replace its entry. @param {Own} item */
  async put(item) {
    this.items.set(item.id, item);
    if (this.keeps) await this.run("readwrite", (table) => table.put(item), item.title);
    this.changed();
  }

  /** Remove one file, or all of a kind. @param {Own[]} items */
  async remove(items) {
    for (const { id } of items) this.items.delete(id);
    await this.run("readwrite", (table) => items.forEach(({ id }) => table.delete(id)));
    this.changed();
  }

  changed() {
    this.dispatchEvent(new Event("change"));
  }

  /** Use the table; a failure becomes `problem`. @param {IDBTransactionMode} mode @param {(table: IDBObjectStore) => any} action */
  async run(mode, action, title = "") {
    try {
      const database = await (this.opening ??= open());
      const transaction = database.transaction(TABLE, mode);
      const request = action(transaction.objectStore(TABLE));
      await finished(transaction);
      return request?.result;
    } catch (error) {
      const isFull = /** @type {any} */ (error)?.name === "QuotaExceededError";
      const full = `The browser's space for this page is full: ${title} is gone when the page is closed. Remove others first.`;
      this.problem = isFull ? full : PRIVATE;
    }
  }
}

export const store = new OwnStore();

/** @returns {Promise<IDBDatabase>} */
function open() {
  return new Promise((resolve, reject) => {
    const request = indexedDB.open(DATABASE);
    request.onupgradeneeded = () => request.result.createObjectStore(TABLE, { keyPath: "id" });
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
  });
}

/** @param {IDBTransaction} transaction */
function finished(transaction) {
  return new Promise((resolve, reject) => {
    transaction.oncomplete = resolve;
    transaction.onabort = () => reject(transaction.error);
  });
}
