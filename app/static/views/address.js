// The state of the page in its address; values that the page opens with are left out.

const ALLOWED = {
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
};

/** Read the valid parameters of the address. @returns {Record<string, string>} */
export function read() {
  const words = [...new URLSearchParams(location.search)];
  return Object.fromEntries(words.filter(([key, value]) => ALLOWED[key]?.test(value)));
}

/** Write parameters; empty ones and those equal to `start` are removed. @param {Record<string, any>} words */
export function write(words, start = {}) {
  const query = new URLSearchParams(location.search);
  for (const [key, value] of Object.entries(words)) {
    if (value === "" || value === null || value === undefined || value === start[key]) query.delete(key);
    else query.set(key, String(value));
  }
  const text = query.toString().replace(/%(2C|3A|3B|2F)/g, decodeURIComponent); // , : ; / are readable
  if (text !== location.search.slice(1)) history.replaceState(history.state, "", text ? `?${text}` : location.pathname);
}
