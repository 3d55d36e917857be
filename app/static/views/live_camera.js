// The live camera: one frame after the other is encoded and shown, until the camera is stopped.

const RECENT = 10; // frames of the rate

/** @typedef {{ live: boolean, rate?: number, problem?: string }} CameraState  rate: frames per second */

export class LiveCamera {
  /** @type {HTMLVideoElement} */
  video = null; // element that plays the camera; null: stopped

  /**
   * @param {object} on
   * @param {(video: HTMLVideoElement) => Promise<any>} on.encode  returns the value of an attention view
   * @param {(value: any) => Promise<void> | void} on.show
   * @param {(state: CameraState) => void} on.change
   */
  constructor(on) {
    this.on = on;
  }

  /** Start, and return when the camera is stopped. A failure is a state with a problem. */
  async start() {
    let problem = "";
    try {
      const stream = await navigator.mediaDevices.getUserMedia({ video: { facingMode: "environment" } });
      const video = (this.video = document.createElement("video"));
      Object.assign(video, { srcObject: stream, muted: true, playsInline: true });
      await video.play();
      this.on.change({ live: true });
      await this.run(video);
    } catch (error) {
      problem = `The camera does not work: ${error.message ?? error}`;
    }
    this.stop(problem);
  }

  /** @param {HTMLVideoElement} video */
  async run(video) {
    const times = [performance.now()];
    while (this.video === video) {
      const value = await this.on.encode(video);
      if (this.video !== video) return;
      await this.on.show(value);
      times.push(performance.now());
      const recent = times.slice(-RECENT - 1);
      this.on.change({ live: true, rate: (1000 * (recent.length - 1)) / (times[times.length - 1] - recent[0]) });
      await new Promise(requestAnimationFrame); // lets the pointer through
    }
  }

  stop(problem = "") {
    const stream = /** @type {MediaStream} */ (this.video?.srcObject);
    for (const track of stream?.getTracks() ?? []) track.stop();
    if (this.video || problem) this.on.change({ live: false, problem });
    this.video = null;
  }
}

/** Return a frame as JPEG with a short side of at most `side` pixels. @param {HTMLVideoElement} video @param {number} side */
export async function frameOf(video, side = Infinity) {
  const { videoWidth, videoHeight } = video;
  const scale = Math.min(1, side / Math.min(videoWidth, videoHeight));
  const canvas = new OffscreenCanvas(Math.round(videoWidth * scale), Math.round(videoHeight * scale));
  canvas.getContext("2d").drawImage(video, 0, 0, canvas.width, canvas.height);
  return canvas.convertToBlob({ type: "image/jpeg", quality: 0.9 });
}
