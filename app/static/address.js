// What is open, pinned and set, as the page's address says it: only what differs from how the page opens.

export const OWN = "own"; // in the place of a photograph that only its visitor has

const OWNED = /** @type {const} */ ([
  ["photo", "name"],
  ["second", "secondName"],
  ["clip", "clipName"],
]);
/** @type {readonly string[]} */
const NAMES = OWNED.map(([, name]) => name);

/** @type {Record<string, RegExp>} */
const ALLOWED = {
  tab: /^[a-z-]{1,20}$/,
  quantity: /^[a-z-]{1,20}$/,
  method: /^[a-z]{1,20}$/,
  block: /^\d{1,3}$/,
  head: /^(heads|mean|max|best|\d{1,3})$/,
  layer: /^(light|heat|mask)$/,
  mass: /^([1-9]\d|100)$/,
  patch: /^\d{1,4},\d{1,4}$/,
  pins: /^\d{1,4},\d{1,4}(;\d{1,4},\d{1,4}){0,7}$/,
  size: /^\d{2,4}$/,
  step: /^\d$/,
};
const ANYTHING = /^[^<>\u0000-\u001f]{1,200}$/;

/** The query of a state, "" where nothing differs from `start`. @param {State} state @param {State} start */
export function written(state, start) {
  const query = new URLSearchParams();
  for (const [key, value] of Object.entries(state)) {
    if (NAMES.includes(key) || value === start[/** @type {keyof State} */ (key)]) continue;
    query.set(key, String(value));
  }
  for (const [key, name] of OWNED) if (state[name]) query.set(key, OWN);
  // What an address allows unwritten reads better: commas, colons and semicolons of patches and models.
  const text = query.toString().replace(/%2C/g, ",").replace(/%3A/g, ":").replace(/%3B/g, ";").replace(/%2F/g, "/");
  return text && `?${text}`;
}

/**
 * The state of an address; what cannot be is left as at the start. A visitor's own photograph is not in the address:
 * `held` says what it was, where the browser still knows.
 * @param {string} query @param {State} start @param {Partial<State> | null} held
 * @returns {State & { missing?: "photo" | "second" | "clip" }}  missing: whatever else was sent along stayed with its sender
 */
export function read(query, start, held) {
  /** @type {any} */
  const state = { ...start };
  for (const [key, value] of new URLSearchParams(query)) {
    if (!(key in start) || NAMES.includes(key)) continue;
    if (!(ALLOWED[key] ?? ANYTHING).test(value)) continue;
    state[key] = typeof start[/** @type {keyof State} */ (key)] === "number" ? Number(value) : value;
  }
  for (const [key, name] of OWNED) {
    if (state[key] !== OWN) continue;
    if (held?.[name]) Object.assign(state, { [key]: held[key], [name]: held[name] });
    else Object.assign(state, { [key]: start[key], missing: key });
  }
  return state;
}

/** What the browser is asked to remember beside the address. @param {State} state @returns {Partial<State>} */
export function held(state) {
  const own = OWNED.filter(([, name]) => state[name]).flat();
  return Object.fromEntries(own.map((key) => [key, state[key]]));
}
