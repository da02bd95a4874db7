// Markdown within a line: emphasis, code, links. Formulas stay as they are written. Everything else is text.

const SAFE_ADDRESS = /^(?:https?:\/\/|mailto:)/i;
const BARE_ADDRESS = /https?:\/\/[^\s<>"'`]+/y;
const ANGLED_ADDRESS = /<((?:https?:\/\/|mailto:)[^\s<>]+|[\w.+-]+@[\w-]+(?:\.[\w-]+)+)>/y;
const LINK_TARGET = /\(\s*(<[^<>\n]*>|(?:[^\s()\\]|\\.|\([^\s()]*\))*)(?:\s+(?:"[^"]*"|'[^']*'))?\s*\)/y;
const ESCAPED = /\\([!-/:-@[-`{-~])/y;
const FORMULA = /\$\$[^$]+\$\$|\$(?![\s$])[^$\n]*[^\s$\\]\$(?!\d)|\\\([^\n]{1,999}?\\\)|\\\[[^]{1,999}?\\\]/y;
const ENTITY = /&(amp|lt|gt|quot|nbsp|#39);/y;
const BREAK = /<br\s*\/?>/iy;
const PLAIN = /[^\\`*_~[\]!<&$h\n]+/y;
const ENTITIES = { amp: "&", lt: "<", gt: ">", quot: '"', nbsp: "\u00a0", "#39": "'" };
const TAGS = { "*1": "em", "*2": "strong", _1: "em", _2: "strong", "~2": "del", "~1": "del" };

const isSpace = (character) => character === "" || /\s/.test(character);
const isMark = (character) => /[\p{P}\p{S}]/u.test(character);

function found(pattern, text, at) {
  pattern.lastIndex = at;
  return pattern.exec(text);
}

// Nodes for a text of one paragraph.
function inline(text) {
  const items = [];
  const brackets = []; // where in `items` links may begin
  const unclosed = new Set(); // lengths of rows of backticks that nothing closes
  for (let at = 0; at < text.length;) at = step(text, at, items, brackets, unclosed);
  return emphasized(items);
}

function step(text, at, items, brackets, unclosed) {
  const character = text[at];
  let match;
  if ((match = found(PLAIN, text, at))) return put(items, match[0], at + match[0].length);
  if (character === "\n") return put(items, make("br"), at + 1);
  if ("\\$".includes(character) && (match = found(FORMULA, text, at)))
    return put(items, make("span", { class: "formula" }, match[0]), at + match[0].length);
  if (character === "\\" && (match = found(ESCAPED, text, at))) return put(items, match[1], at + 2);
  if (character === "`") return code(text, at, items, unclosed);
  if ("*_~".includes(character)) return row(text, at, items);
  if (character === "&" && (match = found(ENTITY, text, at))) return put(items, ENTITIES[match[1]], at + match[0].length);
  if (character === "<" && (match = found(BREAK, text, at))) return put(items, make("br"), at + match[0].length);
  if (character === "<" && (match = found(ANGLED_ADDRESS, text, at))) {
    const address = SAFE_ADDRESS.test(match[1]) ? match[1] : `mailto:${match[1]}`;
    return put(items, link(address, [match[1]]), at + match[0].length);
  }
  if (character === "h" && (match = found(BARE_ADDRESS, text, at))) {
    const address = trimmed(match[0]);
    return put(items, link(address, [address]), at + address.length);
  }
  if (character === "[" || (character === "!" && text[at + 1] === "[")) {
    const mark = character === "[" ? "[" : "![";
    brackets.push(items.length);
    return put(items, mark, at + mark.length);
  }
  if (character === "]" && brackets.length) return closing(text, at, items, brackets);
  return put(items, character, at + 1);
}

function put(items, item, next) {
  items.push(item);
  return next;
}

function code(text, at, items, unclosed) {
  let end = at;
  while (text[end] === "`") end++;
  const size = end - at;
  for (let next = end; !unclosed.has(size);) {
    next = text.indexOf("`", next);
    if (next < 0) break;
    let last = next;
    while (text[last] === "`") last++;
    if (last - next === size) {
      const inside = text.slice(end, next).replace(/\n/g, " ");
      return put(items, make("code", {}, /^ .*[^ ].* $/.test(inside) ? inside.slice(1, -1) : inside), last);
    }
    next = last;
  }
  unclosed.add(size);
  return put(items, text.slice(at, end), end);
}

// A row of *, _ or ~, which may open or close emphasis by what stands beside it.
function row(text, at, items) {
  const mark = text[at];
  let end = at;
  while (text[end] === mark) end++;
  const before = text[at - 1] ?? "", after = text[end] ?? "";
  const left = !isSpace(after) && (!isMark(after) || isSpace(before) || isMark(before));
  const right = !isSpace(before) && (!isMark(before) || isSpace(after) || isMark(after));
  const within = mark === "_";
  const opens = left && (!within || !right || isMark(before)), closes = right && (!within || !left || isMark(after));
  const size = end - at;
  if (mark === "~" && size > 2) return put(items, text.slice(at, end), end);
  return put(items, { mark, size, left: size, opens, closes, starts: [], ends: [] }, end);
}

function closing(text, at, items, brackets) {
  const match = text[at + 1] === "(" ? found(LINK_TARGET, text, at + 1) : null;
  const start = brackets.pop();
  if (!match) return put(items, "]", at + 1);
  const inside = emphasized(items.slice(start + 1));
  const address = match[1].replace(/^<|>$/g, "").replace(/\\(.)/g, "$1");
  const isImage = items[start] === "![";
  items.length = start;
  // Nothing is fetched from elsewhere: an image is a link to it.
  items.push(SAFE_ADDRESS.test(address) ? link(address, isImage && !inside.length ? [address] : inside) : make("span", {}, ...inside));
  if (!isImage) brackets.length = 0; // links hold no links
  return at + 1 + match[0].length;
}

const link = (href, children) => make("a", { href, target: "_blank", rel: "noopener noreferrer" }, ...children);

// Without the marks that end a sentence, and without a bracket that was opened before it.
function trimmed(address) {
  for (;;) {
    const last = address.at(-1);
    const isOpenedBefore = last === ")" && address.split(")").length > address.split("(").length;
    if (!isOpenedBefore && !".,;:!?*_~]".includes(last)) return address;
    address = address.slice(0, -1);
  }
}

// Pairs up rows of marks, as CommonMark does, and wraps what stands between them.
function emphasized(items) {
  const openers = [];
  const open = { "*": 0, _: 0, "~": 0 };
  for (const item of items) {
    if (!item.mark) continue;
    while (item.closes && item.left && open[item.mark]) {
      const at = openers.findLastIndex((each) => pairs(each, item));
      if (at < 0) break;
      for (const passed of openers.splice(at + 1)) open[passed.mark]--;
      const opener = openers[at];
      const size = Math.min(2, opener.left, item.left);
      opener.starts.unshift(TAGS[item.mark + size]);
      item.ends.push(size);
      opener.left -= size;
      item.left -= size;
      if (!opener.left) open[openers.pop().mark]--;
    }
    if (item.opens && item.left) {
      openers.push(item);
      open[item.mark]++;
    }
  }
  return wrapped(items);
}

function pairs(opener, closer) {
  if (opener.mark !== closer.mark) return false;
  if (opener.mark === "~") return opener.left === closer.left;
  const isOdd = (opener.closes || closer.opens) && (opener.size + closer.size) % 3 === 0;
  return !isOdd || (opener.size % 3 === 0 && closer.size % 3 === 0);
}

function wrapped(items) {
  const top = document.createDocumentFragment();
  let place = top;
  let text = ""; // one node for all of it, however many pieces it came in
  const put = (node) => {
    if (text) place.append(text);
    text = "";
    place.append(node);
  };
  for (const item of items) {
    if (typeof item === "string") text += item;
    else if (!item.mark) put(item);
    else {
      for (const _ of item.ends) {
        put("");
        place = place.parentNode;
      }
      text += item.mark.repeat(item.left);
      for (const tag of item.starts) {
        const inner = make(tag);
        put(inner);
        place = inner;
      }
    }
  }
  put("");
  top.normalize();
  return [...top.childNodes];
}
