// Elements of the page: found, made, copied from. Text becomes text nodes only, so nothing that anybody writes is markup.

const $ = (id) => document.getElementById(id);

function make(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  dress(made, attributes);
  made.append(...children);
  return made;
}

function dress(element, attributes) {
  for (const [key, value] of Object.entries(attributes)) {
    if (typeof value === "function" || key in element && typeof value !== "string") element[key] = value;
    else if (value !== null && value !== undefined) element.setAttribute(key, value);
  }
}

const SVG = "http://www.w3.org/2000/svg";

function draw(name, attributes = {}, ...children) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

const ICONS = {
  menu: "M4 6h16M4 12h16M4 18h16",
  plus: "M12 5v14M5 12h14",
  sliders: "M4 7h9M17 7h3M4 17h3M11 17h9M15 4.5v5M9 14.5v5",
  up: "M12 19V5M6 11l6-6 6 6",
  down: "M12 5v14M6 13l6 6 6-6",
  square: "M7 7h10v10H7z",
  play: "M8 5l11 7-11 7z",
  copy: "M9 9h11v11H9zM5 15H4V4h11v1",
  check: "M5 12.5l4.5 4.5L19 7.5",
  pencil: "M4 20l1-4L16 5l3 3L8 19zM14 7l3 3",
  retry: "M4 12a8 8 0 1 0 2.5-5.8M4 4v4h4",
  forward: "M5 5l7 7-7 7M13 5l7 7-7 7",
  trash: "M5 7h14M10 7V4h4v3M7 7l1 13h8l1-13",
  download: "M12 4v11M7 11l5 5 5-5M5 20h14",
  upload: "M12 16V5M7 9l5-5 5 5M5 20h14",
  document: "M6 3h8l4 4v14H6zM14 3v4h4M9 12h6M9 16h6",
  clip: "M19 11l-8 8a5 5 0 0 1-7-7l8-8a3.4 3.4 0 0 1 5 5l-8 8a1.8 1.8 0 0 1-2.5-2.5l7-7",
  left: "M14 6l-6 6 6 6",
  right: "M10 6l6 6-6 6",
  close: "M6 6l12 12M18 6L6 18",
  facts: "M12 11v6M12 7v.5M12 3a9 9 0 1 0 .01 0",
};

const icon = (name) => draw("svg", { viewBox: "0 0 24 24", class: "drawn", "aria-hidden": "true" }, draw("path", { d: ICONS[name] }));

const iconButton = (name, label, onclick) =>
  make("button", { type: "button", class: "icon", "aria-label": label, title: label, onclick }, icon(name));

for (const place of document.querySelectorAll("[data-icon]")) place.prepend(icon(place.dataset.icon));

const count = (number, noun) => `${number.toLocaleString("en")} ${noun}${number === 1 ? "" : "s"}`;

const seconds = (value) =>
  value < 0.95 ? `${Math.round(value * 1000)} ms`
  : value < 60 ? `${value.toFixed(value < 10 ? 1 : 0)} s`
  : `${Math.floor(value / 60)} min ${Math.round(value % 60)} s`;

const SHORTEST_TOAST = 5000, TOAST_PER_CHARACTER = 60; // milliseconds
let toastTimer;

// A sentence that goes by itself once it can have been read, with at most one thing to do about it. It stays while it is pointed
// at or has the focus, and can be sent away.
function toast(sentence, action, work) {
  const button = action && make("button", { type: "button", onclick: () => { endToast(); work(); } }, action);
  $("toast").replaceChildren(make("span", {}, sentence), ...(button ? [button] : []), iconButton("close", "Dismiss", endToast));
  timeToast();
}

function timeToast() {
  clearTimeout(toastTimer);
  toastTimer = setTimeout(() => {
    if ($("toast").matches(":hover, :focus-within")) timeToast();
    else endToast();
  }, SHORTEST_TOAST + TOAST_PER_CHARACTER * $("toast").textContent.length);
}

// Whether there was one.
function endToast() {
  const isShown = $("toast").hasChildNodes();
  clearTimeout(toastTimer);
  $("toast").replaceChildren();
  return isShown;
}

async function copy(text, button) {
  const done = await copied(text);
  button.replaceChildren(icon(done ? "check" : "close"), ...(button.dataset.word ? [done ? "Copied" : "Copy failed"] : []));
  button.focus({ preventScroll: true });
  setTimeout(() => button.replaceChildren(icon("copy"), ...(button.dataset.word ? [button.dataset.word] : [])), 1500);
}

// Browsers give no clipboard to pages that came over plain HTTP from another machine; those copy the old way.
async function copied(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    const place = make("textarea", { class: "unseen" });
    place.value = text;
    document.body.append(place);
    place.select();
    const done = document.execCommand("copy");
    place.remove();
    return done;
  }
}
