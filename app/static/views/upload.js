// Files to the server, through Gradio's own address for uploads, which its limits and passwords cover.

import { Refusal } from "./encoding.js";

/**
 * Send a file; returns its path on the server, which a handler takes. Throws Refusal, also if `signal` ends it.
 * @param {Blob} file @param {string} name @param {AbortSignal} [signal] @param {(share: number) => void} [progress]
 * @returns {Promise<string>}
 */
export function sendFile(file, name, signal, progress = () => {}) {
  return new Promise((resolve, reject) => {
    const body = new FormData();
    body.append("files", file, name);
    const request = new XMLHttpRequest();
    const refuse = (sentence) => reject(new Refusal(sentence));
    signal?.addEventListener("abort", () => request.abort());
    request.upload.onprogress = ({ loaded, total }) => progress(loaded / total);
    request.onabort = () => refuse(`${name} was not sent.`);
    request.onerror = () => refuse("The server does not answer. Try again in a moment.");
    request.onload = () => {
      const answer = request.getResponseHeader("content-type")?.includes("json")
        ? JSON.parse(request.responseText)
        : {};
      if (request.status === 200) return resolve(answer[0]);
      if (request.status === 413) return refuse(`${name} is larger than the server allows.`);
      refuse(answer.error ?? `The server answered with status ${request.status}. Try again in a moment.`);
    };
    request.open("POST", new URL("gradio_api/upload", document.baseURI));
    request.send(body);
  });
}
