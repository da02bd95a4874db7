// Pictures beside a question: made small in the browser, shown, sent as `data:` URLs. What a camera wrote into a file
// (where, when, with what) stays behind, since the pixels alone are taken.

const LONGEST_SIDE = 1568; // pixels; models see no more of most pictures
const MOST_PNG_BYTES = 1 << 20; // beyond, a JPEG
const JPEG_QUALITY = 0.9;
const MOST_ADDRESS = 1 << 24; // characters of a data: URL
const PICTURE = /^data:image\/(?:png|jpeg|gif|webp);base64,(?=.)/;

// Text that is the address of a picture in itself; nothing else, for what isn't here would have to be fetched.
const asPicture = (value) =>
  typeof value === "string" && value.length <= MOST_ADDRESS && PICTURE.test(value) && !/[^A-Za-z0-9+/=]/.test(value.slice(value.indexOf(",") + 1))
    ? value : undefined;

// An unloaded model is given the benefit of the doubt; the server says what it is.
const seesPictures = () => card()?.architecture?.input_modalities.includes("image") ?? true;

const isPicture = (file) => file.type.startsWith("image/") && file.type !== "image/svg+xml";

async function pictureOf(file) {
  if (!seesPictures()) throw new Failure(`${$("model").value} can't see pictures. Choose a model that can, or ask without ${file.name}.`);
  const bitmap = await createImageBitmap(file).catch(() => { throw new Failure(`${file.name} can't be read as a picture.`); });
  const scale = Math.min(1, LONGEST_SIDE / Math.max(bitmap.width, bitmap.height));
  const [width, height] = [bitmap.width, bitmap.height].map((side) => Math.max(1, Math.round(side * scale)));
  return { name: file.name, url: addressOf(make("canvas", { width, height }), bitmap, file.type) };
}

// A photograph becomes a JPEG, anything else a PNG unless that is long.
function addressOf(canvas, bitmap, type) {
  if (type !== "image/jpeg") {
    const url = painted(canvas, bitmap).toDataURL("image/png");
    if (url.length * 3 / 4 <= MOST_PNG_BYTES) return url;
  }
  return painted(canvas, bitmap, "white").toDataURL("image/jpeg", JPEG_QUALITY);
}

// A JPEG knows no transparency: what shines through is white there.
function painted(canvas, bitmap, ground) {
  const brush = canvas.getContext("2d");
  if (ground) {
    brush.fillStyle = ground;
    brush.fillRect(0, 0, canvas.width, canvas.height);
  }
  brush.imageSmoothingQuality = "high";
  brush.drawImage(bitmap, 0, 0, canvas.width, canvas.height);
  return canvas;
}

// Small, and large while it is pressed in.
function pictureButton({ name, url, frames, rate }) {
  const button = make("button", { type: "button", class: "picture", "aria-pressed": "false", title: `${name}: enlarge or shrink` }, make("img", { src: url, alt: name }),
    ...(frames ? [make("small", {}, `${name} · ${count(frames.length, "frame")}`)] : []));
  button.onclick = () => {
    const isPressed = button.getAttribute("aria-pressed") !== "true";
    button.setAttribute("aria-pressed", String(isPressed));
    if (isPressed && frames) play(button, { frames, rate });
  };
  return button;
}

// As OpenAI's API has them; a video, which it hasn't, as its frames.
const picturePart = ({ url, frames, rate }) => frames ? { type: "video", video: frames, sample_fps: rate } : { type: "image_url", image_url: { url } };

// The messages; a `Failure` where the model can't be sent them.
function unlessUnseen(messages) {
  const has = (type) => messages.some(({ content }) => Array.isArray(content) && content.some((part) => part.type === type));
  for (const [kind, isUnseen] of [["pictures", has("image_url") && !seesPictures()], ["videos", has("video") && !seesVideos()]]) {
    if (isUnseen) throw new Failure(`${$("model").value} can't see ${kind}, and this conversation contains some. Choose a model that can, or start a new conversation.`);
  }
  return messages;
}
