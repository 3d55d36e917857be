// What is open, pinned and set, as the page's address says it: only what differs from how the page opens.

/**
 * @typedef {object} State
 * @property {string} tab
 * @property {string} photo  an example's name, or what the server calls a visitor's own photograph
 * @property {string} name  of a visitor's own photograph; "" for an example
 * @property {string} model
 * @property {string} other  model on the right of Compare
 * @property {number} size
 * @property {string} quantity
 * @property {number} block  counted from 1; 0 is the last
 * @property {string} head  "heads", "mean", "max" or a number
 * @property {string} layer  "light", "heat" or "mask"
 * @property {number} mass  per cent
 * @property {string} patch  the active pin as "row,column"; "" is [CLS]
 * @property {string} pins  all of them, as "row,column;row,column"
 * @property {string} method  of Segment
 * @property {string} clip  as `photo`
 * @property {string} clipName  as `name`
 * @property {string} map
 * @property {string} run
 * @property {number} step  of the tour, from 1
 */

export const OWN = "own"; // in the place of a photograph that only its visitor has

const OWNED = /** @type {const} */ ([
  ["photo", "name"],
  ["clip", "clipName"],
]);

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

/**
 * The query of a state, "" where nothing differs from `start`.
 * @param {State} state @param {State} start
 */
export function written(state, start) {
  const query = new URLSearchParams();
  for (const [key, value] of Object.entries(state)) {
    if (key === "name" || key === "clipName" || value === start[/** @type {keyof State} */ (key)]) continue;
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
 * @returns {State & { missing?: "photo" | "clip" }}  missing: whatever else was sent along stayed with its sender
 */
export function read(query, start, held) {
  /** @type {any} */
  const state = { ...start };
  for (const [key, value] of new URLSearchParams(query)) {
    if (!(key in start) || key === "name" || key === "clipName") continue;
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
export function held({ photo, name, clip, clipName }) {
  return { ...(name && { photo, name }), ...(clipName && { clip, clipName }) };
}
