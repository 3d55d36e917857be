// What is shown, in the page's address: only what differs from how the page opens.

const ALLOWED = /** @type {Record<string, RegExp>} */ ({
  tab: /^[a-z-]{1,20}$/,
  photo: /^[A-Za-z0-9_]{1,64}$/,
  model: /^[^<>\u0000-\u001f]{1,200}$/,
  size: /^\d{2,4}$/,
  quantity: /^[a-z-]{1,20}$/,
  block: /^\d{1,3}$/,
  head: /^(heads|mean|max|\d{1,3})$/,
  layer: /^(light|heat|mask)$/,
  mass: /^([1-9]\d|100)$/,
  patch: /^\d{1,4},\d{1,4}$/,
  pins: /^\d{1,4},\d{1,4}(;\d{1,4},\d{1,4}){0,7}$/,
  step: /^\d$/,
});

/** The words of the address that are allowed. @returns {Record<string, string>} */
export function read() {
  const words = [...new URLSearchParams(location.search)];
  return Object.fromEntries(words.filter(([key, value]) => ALLOWED[key]?.test(value)));
}

/** Write some words; those that are empty, or as at the start, are left out. @param {Record<string, any>} words @param {Record<string, any>} start */
export function write(words, start = {}) {
  const query = new URLSearchParams(location.search);
  for (const [key, value] of Object.entries(words)) {
    if (value === "" || value === null || value === undefined || value === start[key]) query.delete(key);
    else query.set(key, String(value));
  }
  // What an address allows unescaped reads better.
  const text = query.toString().replace(/%2C/g, ",").replace(/%3A/g, ":").replace(/%3B/g, ";").replace(/%2F/g, "/");
  if (text !== location.search.slice(1)) history.replaceState(history.state, "", text ? `?${text}` : location.pathname);
}
