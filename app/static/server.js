// Questions to the server: one sentence where it refuses, one line at a time where it is slow.

/** The server's refusal, in words for people; `status` as in HTTP, 0 where nothing answered. */
export class Refusal extends Error {
  /** @param {string} sentence @param {number} status */
  constructor(sentence, status = 0) {
    super(sentence);
    this.status = status;
  }
}

const SILENT = "The server cannot be reached: is it still running?";
const CUT_OFF = "The server's answer was cut off: try again.";

/**
 * An answer; a Refusal is thrown where there is none, an AbortError where nobody waits any more.
 * @param {string} address  relative to the page
 * @param {RequestInit} init
 */
export async function ask(address, init = {}) {
  const answer = await fetch(address, init).catch((error) => {
    throw init.signal?.aborted ? error : new Refusal(SILENT);
  });
  if (answer.ok) return answer;
  const told = await answer.json().catch(() => ({}));
  throw new Refusal(told.error ?? `The server answered with ${answer.status}: try again.`, answer.status);
}

/** An answer as data. @param {string} address @param {RequestInit} [init] */
export async function askData(address, init) {
  return whole(
    () => ask(address, init),
    (answer) => answer.json(),
    init?.signal,
  );
}

/** The bytes of an answer. @param {string} address @param {RequestInit} [init] @returns {Promise<ArrayBuffer>} */
export async function askBytes(address, init) {
  return whole(
    () => ask(address, init),
    (answer) => answer.arrayBuffer(),
    init?.signal,
  );
}

/**
 * A connection may also break in the middle of an answer.
 * @param {() => Promise<Response>} begin @param {(answer: Response) => Promise<any>} read
 * @param {AbortSignal | null} [signal]
 */
async function whole(begin, read, signal) {
  const answer = await begin();
  return read(answer).catch((error) => {
    throw signal?.aborted ? error : new Refusal(CUT_OFF);
  });
}

/** Ask for something slow: `told` hears every line before the last, which is returned. Aborting gives up the place.
 * @param {string} address @param {object} question @param {Listening} listening
 */
export async function askSlowly(address, question, { signal, told = () => {} } = {}) {
  const headers = { "Content-Type": "application/json", Accept: "application/x-ndjson" };
  const answer = await ask(address, { method: "POST", headers, body: JSON.stringify(question), signal });
  for await (const word of lines(answer, signal)) {
    if (word.state === "error") throw new Refusal(word.error, word.status);
    if (word.state === "done") return word;
    told(word);
  }
  throw new Refusal(CUT_OFF);
}

/** Lines of JSON, as they come. @param {Response} answer @param {AbortSignal} [signal] */
async function* lines(answer, signal) {
  const reader = /** @type {ReadableStream<Uint8Array>} */ (answer.body).getReader();
  const decoder = new TextDecoder();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read().catch((error) => {
      throw signal?.aborted ? error : new Refusal(CUT_OFF);
    });
    rest += decoder.decode(value, { stream: !done });
    const whole = rest.split("\n");
    rest = done ? "" : (whole.pop() ?? "");
    for (const line of whole) if (line.trim()) yield JSON.parse(line);
    if (done) return;
  }
}

/**
 * Send a file; "photos" and "clips" answer with what they call it.
 * @param {"photos" | "clips"} where @param {File} file @param {AbortSignal} [signal]
 */
export function sendFile(where, file, signal) {
  return askData(`api/${where}?${new URLSearchParams({ name: file.name })}`, { method: "POST", body: file, signal });
}

/**
 * Fetch a file and hand it to the browser to keep, under the server's name for it.
 * @param {string} address @param {string} name  where the server gives none @param {RequestInit} [init]
 */
export async function keep(address, name, init) {
  const answer = await ask(address, init);
  const told = /filename="([^"]+)"/.exec(answer.headers.get("Content-Disposition") ?? "")?.[1];
  keepBlob(await answer.blob(), told ?? name);
}

/** Have a file made of a question, and hand it to the browser to keep. @param {string} address @param {object} question @param {AbortSignal} [signal] */
export function keepDrawn(address, question, signal) {
  const headers = { "Content-Type": "application/json" };
  return keep(address, "file", { method: "POST", headers, body: JSON.stringify(question), signal });
}

/** Hand a file to the browser to keep. @param {Blob} content @param {string} name */
export function keepBlob(content, name) {
  const link = Object.assign(document.createElement("a"), { download: name, href: URL.createObjectURL(content) });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
}

/** A picture that has arrived. @param {string} address */
export async function askPicture(address) {
  const picture = new Image();
  picture.src = address;
  await picture.decode().catch(() => {
    throw new Refusal("A picture did not arrive: is the server still running?", 404);
  });
  return picture;
}
