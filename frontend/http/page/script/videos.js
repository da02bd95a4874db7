// Videos beside a question: the browser takes single frames out of them, which are sent as `data:` URLs with their rate.
// So a film of any length and format that the browser plays fits into a request, and the server decodes pictures alone.

const MOST_FRAMES = 32;
const FRAMES_A_SECOND = 2; // of a short one
const LONGEST_FRAME_SIDE = 640; // pixels
const MOST_FRAME_CHARACTERS = 1 << 21; // of all frames' addresses together
const MOST_SEEKING_SECONDS = 60; // to one frame, on a busy machine, too
const MOST_SHOWN_A_SECOND = 4;

const seesVideos = () => card()?.architecture?.input_modalities.includes("video") ?? true;

const isVideo = (file) => file.type.startsWith("video/");

async function videoOf(file) {
  if (!seesVideos()) throw new Failure(`${$("model").value} can't see videos. Choose a model that can, or attach single pictures.`);
  const video = make("video", { preload: "auto" }), address = URL.createObjectURL(file);
  Object.assign(video, { muted: true, src: address });
  try {
    await happened(video, "loadeddata");
    const seconds = await duration(video), frames = [];
    const number = Math.min(MOST_FRAMES, Math.max(1, Math.round(seconds * FRAMES_A_SECOND)));
    for (let frame = 0; frame < number; frame++) frames.push(await frameAt(video, frame * seconds / number));
    const urls = addressesOf(frames);
    return { name: file.name, url: urls[0], frames: urls, rate: number / seconds };
  } catch {
    throw new Failure(`This browser can't play ${file.name}. Attach it in another format, or attach single pictures.`);
  } finally {
    video.removeAttribute("src");
    URL.revokeObjectURL(address);
  }
}

function happened(video, event) {
  return new Promise((resolve, reject) => {
    video.addEventListener(event, resolve, { once: true });
    video.addEventListener("error", reject, { once: true });
    setTimeout(reject, MOST_SEEKING_SECONDS * 1000);
  });
}

async function seek(video, seconds) {
  const isThere = happened(video, "seeked");
  video.currentTime = seconds;
  await isThere;
}

// Recordings of browsers don't say how long they are until somebody has looked for their end.
async function duration(video) {
  if (!Number.isFinite(video.duration)) await seek(video, 1e9);
  return Math.max(video.duration, 0.01);
}

async function frameAt(video, seconds) {
  if (video.currentTime !== seconds) await seek(video, seconds);
  const scale = Math.min(1, LONGEST_FRAME_SIDE / Math.max(video.videoWidth, video.videoHeight));
  const [resizeWidth, resizeHeight] = [video.videoWidth, video.videoHeight].map((side) => Math.max(1, Math.round(side * scale)));
  return createImageBitmap(video, { resizeWidth, resizeHeight, resizeQuality: "high" });
}

// All of one size: smaller, until they aren't too long together.
function addressesOf(frames) {
  for (let scale = 1; ; scale *= 0.7) {
    const [width, height] = [frames[0].width, frames[0].height].map((side) => Math.max(1, Math.round(side * scale)));
    const urls = frames.map((frame) => painted(make("canvas", { width, height }), frame, "white").toDataURL("image/jpeg", JPEG_QUALITY));
    if (Math.max(width, height) === 1 || urls.reduce((sum, url) => sum + url.length, 0) <= MOST_FRAME_CHARACTERS) return urls;
  }
}

// Its frames follow one another while it is shown large.
function play(button, { frames, rate }) {
  const picture = button.querySelector("img");
  let frame = 0;
  const timer = setInterval(() => {
    const isShown = button.isConnected && button.getAttribute("aria-pressed") === "true";
    frame = isShown ? (frame + 1) % frames.length : 0;
    picture.src = frames[frame];
    if (!isShown) clearInterval(timer);
  }, 1000 / Math.min(rate, MOST_SHOWN_A_SECOND));
}
