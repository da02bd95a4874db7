// Addresses in Markdown, and links to them. Nothing is fetched from elsewhere: an image is a link, too.

const SAFE_ADDRESS = /^(?:https?:\/\/|mailto:)/i;
const MAIL_ADDRESS = /^[\w.+-]{1,99}@[\w-]+(?:\.[\w-]+)+$/;
const BARE_ADDRESS = /https?:\/\/[^\s<>"'`[\]]+/y;
const ANGLED = /[^\s<>]*/y;

const hrefOf = (text) => SAFE_ADDRESS.test(text) ? text : MAIL_ADDRESS.test(text) ? `mailto:${text}` : null;

function link(href, ...children) {
  return make("a", { href, target: "_blank", rel: "noopener noreferrer" }, ...children);
}

function linked(address, items, isImage) {
  // Within a link there are none, and what describes an image is text.
  const plain = items.map((item) => item instanceof Node && (isImage || item.localName === "a") ? item.textContent : item);
  const inside = emphasized(plain);
  if (!SAFE_ADDRESS.test(address)) return make("span", {}, inside);
  return link(address, isImage && !plain.length ? address : inside);
}

function angledEnd({ text, at }) {
  ANGLED.lastIndex = at + 1;
  return at + 1 + ANGLED.exec(text)[0].length;
}

// What stands in the round brackets of a link: an address, perhaps in angles, perhaps with a title behind it, which isn't shown.
function targetOf(line, from) {
  const { text } = line;
  let end = afterSpace(text, from), address;
  if (text[end] === "<") {
    const close = next(line, ">", end);
    if (next(line, "\n", end) < close || close === Infinity) return null;
    address = text.slice(end + 1, close);
    end = close + 1;
  } else {
    const start = end;
    end = endOfTarget(text, start);
    if (end < 0) return null;
    address = text.slice(start, end);
  }
  const behind = afterSpace(text, end);
  const quote = behind > end && `"'`.includes(text[behind] ?? " ") ? text[behind] : null;
  if (quote) {
    const close = next(line, quote, behind + 1);
    if (close === Infinity) return null;
    end = afterSpace(text, close + 1);
  } else end = behind;
  return text[end] === ")" ? { address: address.replace(/\\([!-/:-@[-`{-~])/g, "$1"), end: end + 1 } : null;
}

function afterSpace(text, from) {
  let at = from;
  while (at < text.length && isSpace(text[at])) at++;
  return at;
}

// Round brackets in an address come in pairs, not within one another.
function endOfTarget(text, start) {
  let isOpen = false;
  for (let at = start; at < text.length; at++) {
    const each = text[at];
    if (each === "\\" && at + 1 < text.length) at++;
    else if (isSpace(each)) return isOpen ? -1 : at;
    else if (each === "(" && isOpen) return -1;
    else if (each === "(") isOpen = true;
    else if (each === ")" && !isOpen) return at;
    else if (each === ")") isOpen = false;
  }
  return -1;
}

// Without the marks that end a sentence, and without a bracket that was opened before it.
function bareAddress({ text, at }) {
  BARE_ADDRESS.lastIndex = at;
  const found = BARE_ADDRESS.exec(text)?.[0];
  if (!found) return null;
  let unopened = 0;
  for (const each of found) unopened += each === ")" ? 1 : each === "(" ? -1 : 0;
  let end = found.length;
  for (; end > 0; end--) {
    if (found[end - 1] === ")" && unopened > 0) unopened--;
    else if (!".,;:!?*_~".includes(found[end - 1])) break;
  }
  return /^https?:\/\/./.test(found.slice(0, end)) ? found.slice(0, end) : null;
}
