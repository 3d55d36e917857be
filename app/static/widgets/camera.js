// The visitor's camera: what it sees, once a button is pressed, goes the way of a chosen file.

import { find } from "../dom.js";
import { Refusal } from "../server.js";
import { html, render } from "../vendor/lit-html.js";

/** Whether there may be one: browsers hand it to pages of this machine and to those behind TLS. */
export const hasCamera = Boolean(navigator.mediaDevices?.getUserMedia);

/** A picture by the camera; null where the visitor closes it. Throws a Refusal. @returns {Promise<File | null>} */
export async function takePicture() {
  const film = await navigator.mediaDevices.getUserMedia({ video: { facingMode: "environment" } }).catch(() => {
    throw new Refusal("There is no camera here, or this page was not allowed to use it.");
  });
  const dialog = document.createElement("dialog");
  dialog.className = "lab-camera";
  dialog.setAttribute("aria-label", "Camera");
  document.body.append(dialog);
  render(
    html`<video autoplay playsinline .muted=${true} .srcObject=${film}></video>
      <form method="dialog"><button class="lab-primary" value="take">Take the picture</button><button class="lab-primary lab-secondary">Close</button></form>`,
    dialog,
  );
  const closed = new Promise((resolve) => dialog.addEventListener("close", resolve));
  dialog.showModal();
  await closed;
  const taken = dialog.returnValue === "take" ? await frame(find(dialog, "video")) : null;
  for (const track of film.getTracks()) track.stop();
  dialog.remove();
  return taken;
}

/** What a film shows now, as a file. @param {HTMLElement} film */
async function frame(film) {
  const video = /** @type {HTMLVideoElement} */ (film);
  const canvas = new OffscreenCanvas(video.videoWidth, video.videoHeight);
  canvas.getContext("2d")?.drawImage(video, 0, 0);
  return new File([await canvas.convertToBlob({ type: "image/jpeg", quality: 0.95 })], "camera.jpg");
}
