// The state of the page in its address; values that the page opens with are left out.

const SPACES = "https://huggingface.co"; // shows a Space in a frame, whose address it must be told

const ALLOWED = {
  tab: /^[a-z-]{1,20}$/,
  image: /^[A-Za-z0-9_]{1,64}$/,
  second: /^[A-Za-z0-9_]{1,64}$/, // image of Match
  model: /^[^<>\u0000-\u001f]{1,200}$/,
  other: /^[^<>\u0000-\u001f]{1,200}$/, // model of Compare
  size: /^\d{2,4}$/,
  method: /^[a-z-]{1,20}$/, // of Segment
  quantity: /^[a-z-]{1,20}$/,
  block: /^\d{1,3}$/,
  head: /^(heads|mean|max|\d{1,3})$/,
  layer: /^(light|heat|mask)$/,
  colormap: /^[a-z]{1,20}$/,
  outline: /^true$/,
  opacity: /^(\d{1,2}|100)$/,
  mass: /^([1-9]\d|100)$/,
  patch: /^\d{1,4},\d{1,4}$/,
  pins: /^\d{1,4},\d{1,4}(;\d{1,4},\d{1,4}){0,7}$/,
};

/** Read the valid parameters of the address. @returns {Record<string, string>} */
export function read() {
  const parameters = [...new URLSearchParams(location.search)];
  return Object.fromEntries(parameters.filter(([key, value]) => ALLOWED[key]?.test(value)));
}

let last = globalThis.location?.search ?? ""; // what is on the screen, while an earlier entry of the history is opened

/**
 * Write parameters; those equal to `start` and those that no address may have, as uploaded images, are removed.
 * @param {Record<string, any>} parameters @param {boolean} [push]  as a new entry of the history
 */
export function write(parameters, start = {}, push = false) {
  const query = new URLSearchParams(location.search);
  for (const [key, value] of Object.entries(parameters)) {
    if (value === start[key] || !ALLOWED[key].test(String(value))) query.delete(key);
    else query.set(key, String(value));
  }
  const text = query.toString().replace(/%(2C|3A|3B|2F)/g, decodeURIComponent); // , : ; / are readable
  if (text === location.search.slice(1)) return;
  const address = text ? `?${text}` : location.pathname;
  if (push) history.pushState(null, "", address);
  else history.replaceState(history.state, "", address);
  last = location.search;
  if (location.hostname?.endsWith(".hf.space")) window.parent.postMessage({ queryString: text }, SPACES);
}

/** Give an entry of the history what is on the screen, with other parameters. @param {Record<string, any>} parameters */
export function restoreQuery(parameters, start) {
  history.replaceState(history.state, "", last || location.pathname);
  write(parameters, start);
}
