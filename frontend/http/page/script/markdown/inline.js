// Markdown within a paragraph: emphasis, code, links, formulas. Everything else is text. One pass from left to right, in which
// whatever looks ahead remembers what it has found: a time linear in the length, whatever is written.

const TAIL = 999; // characters of the longest formula within a line
const LONGEST_LABEL = 40;
const MOST_BRACKETS = 32; // that are open at once; of more, the first are text
const PLAIN = /[^\\`*_~[\]!<&$h\n]+/y;
const ESCAPED = /[!-/:-@[-`{-~]/;
const ENTITY = /&(amp|lt|gt|quot|nbsp|#39);/y;
const BREAK = /<br\s{0,9}\/?>/iy;
const ENTITIES = { amp: "&", lt: "<", gt: ">", quot: '"', nbsp: "\u00a0", "#39": "'" };

function inline(text, notes) {
  const line = { text, notes, at: 0, items: [], brackets: [], ahead: new Map(), runs: null };
  while (line.at < text.length) {
    const plain = found(PLAIN, line);
    if (plain) put(line, plain[0], plain[0].length);
    else if (!READERS[text[line.at]]?.some((read) => read(line))) put(line, text[line.at], 1);
  }
  return emphasized(line.items);
}

function found(pattern, { text, at }) {
  pattern.lastIndex = at;
  return pattern.exec(text);
}

function put(line, item, length) {
  line.items.push(item);
  line.at += length;
  return true;
}

// Where a mark comes next. As a text is read forwards, it is searched once for each.
function next(line, mark, from) {
  const known = line.ahead.get(mark);
  if (known >= from) return known;
  const at = line.text.indexOf(mark, from);
  line.ahead.set(mark, at < 0 ? Infinity : at);
  return line.ahead.get(mark);
}

const formulaOf = (line, end) => put(line, formulaNode(line.text.slice(line.at, end), false), end - line.at);

// `$5 and $6` are prices: a formula has no space within its marks, and no digit behind them.
function dollars(line) {
  const { text, at } = line;
  const end = next(line, "$", at + 1);
  if (end === at + 1) return doubleDollars(line);
  if (end === Infinity || end - at > TAIL || /\d/.test(text[end + 1] ?? "") || isSpace(text[at + 1]) || /[\s\\]/.test(text[end - 1])) return false;
  return next(line, "\n", at) > end && formulaOf(line, end + 1);
}

function doubleDollars(line) {
  const end = next(line, "$", line.at + 2);
  if (end === Infinity || end - line.at > TAIL || line.text[end + 1] !== "$" || end === line.at + 2) return false;
  return formulaOf(line, end + 2);
}

function bracketFormula(line) {
  const closing = { "(": "\\)", "[": "\\]" }[line.text[line.at + 1]];
  if (!closing) return false;
  const end = next(line, closing, line.at + 3);
  if (end === Infinity || end - line.at > TAIL || closing === "\\)" && next(line, "\n", line.at) < end) return false;
  return formulaOf(line, end + 2);
}

const escaped = (line) => ESCAPED.test(line.text[line.at + 1] ?? "") && put(line, line.text[line.at + 1], 2);

// A row of backticks is closed by the next one of its length.
function code(line) {
  const { text, at } = line;
  const from = afterRow(text, at), size = from - at;
  line.runs ??= runsOf(text);
  const starts = line.runs.get(size) ?? [];
  while (starts.length && starts.at(-1) < from) starts.pop();
  const end = starts.at(-1);
  if (end === undefined) return put(line, text.slice(at, from), size);
  const inside = text.slice(from, end).replace(/\n/g, " ");
  const isPadded = inside.startsWith(" ") && inside.endsWith(" ") && !isBlank(inside);
  return put(line, make("code", {}, isPadded ? inside.slice(1, -1) : inside), end + size - at);
}

// By their length, where they begin, the next one last.
function runsOf(text) {
  const runs = new Map();
  for (const { 0: run, index } of text.matchAll(/`+/g)) {
    if (!runs.has(run.length)) runs.set(run.length, []);
    runs.get(run.length).push(index);
  }
  for (const starts of runs.values()) starts.reverse();
  return runs;
}

function afterRow(text, at) {
  let end = at;
  while (text[end] === text[at]) end++;
  return end;
}

// A row of *, _ or ~, which may open or close emphasis by what stands beside it.
function row(line) {
  const { text, at } = line;
  const mark = text[at], end = afterRow(text, at);
  const before = text[at - 1] ?? "", after = text[end] ?? "";
  const left = !isSpace(after) && (!isMark(after) || isSpace(before) || isMark(before));
  const right = !isSpace(before) && (!isMark(before) || isSpace(after) || isMark(after));
  const within = mark === "_";
  const opens = left && (!within || !right || isMark(before)), closes = right && (!within || !left || isMark(after));
  const size = end - at;
  if (mark === "~" && size > 2) return put(line, text.slice(at, end), size);
  return put(line, { mark, size, left: size, opens, closes, starts: [], ends: [] }, size);
}

function opening(line) {
  const { text, at, brackets, items } = line;
  const mark = text[at] === "!" ? "![" : "[";
  if (!text.startsWith(mark, at)) return false;
  if (brackets.length === MOST_BRACKETS) brackets.shift();
  brackets.push(items.length);
  return put(line, mark, mark.length);
}

function noteMark(line) {
  if (line.text[line.at + 1] !== "^") return false;
  const label = /^[^\s\[\]]+(?=\])/.exec(line.text.slice(line.at + 2, line.at + 3 + LONGEST_LABEL))?.[0];
  if (!label || line.text[line.at + 3 + label.length] === "(") return false;
  return put(line, line.notes.mark(label), label.length + 3);
}

function closing(line) {
  if (!line.brackets.length) return false;
  const start = line.brackets.pop();
  const target = line.text[line.at + 1] === "(" ? targetOf(line, line.at + 2) : null;
  if (!target) return false;
  const inside = line.items.splice(start);
  const isImage = inside.shift() === "![";
  const node = linked(target.address, inside, isImage);
  if (!isImage) line.brackets.length = 0; // links hold no links
  return put(line, node, target.end - line.at);
}

function angled(line) {
  const match = found(BREAK, line);
  if (match) return put(line, make("br"), match[0].length);
  const end = angledEnd(line);
  const inside = line.text.slice(line.at + 1, end);
  const address = hrefOf(inside);
  return address && line.text[end] === ">" ? put(line, link(address, inside), end + 1 - line.at) : false;
}

function bare(line) {
  const address = bareAddress(line);
  return address ? put(line, link(address, address), address.length) : false;
}

function entity(line) {
  const match = found(ENTITY, line);
  return match ? put(line, ENTITIES[match[1]], match[0].length) : false;
}

const READERS = {
  "\n": [(line) => put(line, make("br"), 1)],
  "\\": [bracketFormula, escaped],
  $: [dollars],
  "`": [code],
  "*": [row], _: [row], "~": [row],
  "[": [noteMark, opening], "!": [opening], "]": [closing],
  "<": [angled], h: [bare], "&": [entity],
};
