// The live camera of a rail: one frame after the other is encoded and shown, until the camera is stopped.

import { button } from "./dom.js";
import { Refusal } from "./encoding.js";
import { dataAddress } from "./picture.js";

const LIVE_SIDE = 224; // pixels of the short side of a frame that is encoded

/** Return the buttons of a camera, whose frames the view of the rail's prop `camera` shows. @param {import("./rail_view.js").RailView} rail */
export function camera(rail) {
  /** @type {HTMLVideoElement} */
  let video = null; // plays the camera; null: stopped
  const view = () => document.querySelector(`#${rail.props.camera} .lab-view`)?.["view"];
  const toggle = button("Camera", () => (video ? stop() : start()), { class: "rail-camera", "aria-pressed": "false" });
  const take = async () => rail.take([new File([await frameOf(video)], "camera.jpg")]);
  const shoot = button("Take", take, { class: "rail-camera", hidden: true });
  const start = async () => {
    rail.turn += 1;
    document.querySelector("#tabs [role=tab]")?.["click"](); // the first tab has the view
    let problem = "";
    try {
      const srcObject = await navigator.mediaDevices.getUserMedia({ video: { facingMode: "environment" } });
      video = Object.assign(document.createElement("video"), { srcObject, muted: true, playsInline: true });
      await video.play();
      toggle.setAttribute("aria-pressed", "true");
      shoot.hidden = false;
      await run(video);
    } catch (error) {
      problem = `The camera does not work: ${error.message ?? error}`;
    }
    stop(problem);
  };
  const run = async (playing) => {
    while (video === playing && view().element.checkVisibility()) {
      const image = await dataAddress(await frameOf(playing, LIVE_SIDE));
      const { model } = view().value;
      const value = await rail.server.frame({ image, model, block: view().state.block });
      if (value.error) throw new Refusal(value.error);
      if (video !== playing) return;
      await view().showFrame({ ...value, image });
      await new Promise(requestAnimationFrame); // lets the pointer through
    }
  };
  const stop = (problem = "") => {
    if (!video && !problem) return;
    for (const track of /** @type {MediaStream} */ (video?.srcObject)?.getTracks() ?? []) track.stop();
    video = null;
    toggle.setAttribute("aria-pressed", "false");
    shoot.hidden = true;
    rail.say(problem);
    view()?.showFrame(null);
  };
  rail.stopCamera = () => stop();
  return [toggle, shoot];
}

/** Return a frame as JPEG with a short side of at most `side` pixels. @param {HTMLVideoElement} video @param {number} side */
async function frameOf(video, side = Infinity) {
  const { videoWidth, videoHeight } = video;
  const scale = Math.min(1, side / Math.min(videoWidth, videoHeight));
  const canvas = new OffscreenCanvas(Math.round(videoWidth * scale), Math.round(videoHeight * scale));
  canvas.getContext("2d").drawImage(video, 0, 0, canvas.width, canvas.height);
  return canvas.convertToBlob({ type: "image/jpeg", quality: 0.9 });
}
