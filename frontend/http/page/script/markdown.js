// Markdown in blocks: paragraphs, headings, lists, quotes, tables, code. Drawn again while it grows, from where it changed.

const FENCE = /^ {0,3}(`{3,}|~{3,})\s*([^`]*)$/;
const HEADING = /^ {0,3}(#{1,6})(?:\s+(.*?))??(?:\s+#+)?\s*$/;
const RULE = /^ {0,3}(?:(?:-\s*){3,}|(?:\*\s*){3,}|(?:_\s*){3,})$/;
const QUOTE = /^ {0,3}> ?/;
const ITEM = /^( *)([-*+]|\d{1,9}[.)])(?: (\s*)(.*))?$/;
const UNDERLINE = /^ {0,3}(={3,}|-{3,})\s*$/;
const DELIMITERS = /^\s*\|?\s*:?-+:?\s*(?:\|\s*:?-+:?\s*)*\|?\s*$/;
const FORMULA_START = /^\s*(\$\$|\\\[)/;
// Deeper lists and quotes are text.
const DEEPEST = 12;
const LONGEST_FORMULA = 40; // lines

const isBlank = (line) => /^\s*$/.test(line);
const indentOf = (line) => line.length - line.trimStart().length;

// Draws what has changed since the last time.
function showMarkdown(place, text) {
  const parts = blocks(text.replace(/\r\n?/g, "\n").replace(/\t/g, "    ").split("\n"), 0);
  const before = place.parts ?? [];
  let same = 0;
  while (same < Math.min(before.length, parts.length) && before[same].source === parts[same].source) same++;
  const last = before[same], next = parts[same];
  if (last?.kind === "code" && next?.kind === "code" && next.language === last.language) {
    place.childNodes[same].querySelector("code").textContent = next.text; // its copy button stays
    same++;
  }
  while (place.childNodes.length > same) place.lastChild.remove();
  place.append(...parts.slice(same).map((part) => part.node()));
  place.parts = parts;
}

// Each with its source, and a function that makes its node.
function blocks(lines, depth) {
  const made = [];
  for (let at = 0; at < lines.length;) {
    if (isBlank(lines[at])) {
      at++;
      continue;
    }
    const start = at;
    const block = blockAt(lines, at, depth);
    at = block.end;
    made.push({ ...block, source: lines.slice(start, at).join("\n") });
  }
  return made;
}

function blockAt(lines, at, depth) {
  for (const read of READERS) {
    const block = read(lines, at, depth);
    if (block) return block;
  }
  return paragraph(lines, at);
}

const nodes = (lines, depth) =>
  depth < DEEPEST ? blocks(lines, depth).map((block) => block.node()) : [make("p", {}, lines.join("\n"))];

function fence(lines, at) {
  const match = FENCE.exec(lines[at]);
  if (!match) return null;
  const closing = new RegExp(`^ {0,3}${match[1][0]}{${match[1].length},}\\s*$`);
  let end = at + 1;
  while (end < lines.length && !closing.test(lines[end])) end++;
  const indent = indentOf(lines[at]);
  const text = lines.slice(at + 1, end).map((line) => line.slice(Math.min(indent, indentOf(line)))).join("\n");
  const language = match[2].trim().split(/[\s{:]/)[0];
  return { kind: "code", language, text, end: end + 1, node: () => codeBlock(language, text) };
}

function codeBlock(language, text) {
  const inside = make("code", {}, text);
  const button = make("button", { type: "button", class: "copy", "data-word": "Copy" }, icon("copy"), "Copy");
  button.onclick = () => copy(inside.textContent, button);
  return make("figure", { class: "code" }, make("figcaption", {}, language || "text", button), make("pre", { tabindex: "0" }, inside));
}

function formula(lines, at) {
  const match = FORMULA_START.exec(lines[at]);
  if (!match) return null;
  const closing = match[1] === "$$" ? "$$" : "\\]";
  let end = at;
  let from = match[0].length;
  while (end < Math.min(lines.length, at + LONGEST_FORMULA) && !isBlank(lines[end]) && lines[end].indexOf(closing, from) < 0) {
    end++;
    from = 0;
  }
  if (!lines[end]?.trimEnd().endsWith(closing)) return null;
  return { end: end + 1, node: () => make("p", { class: "formula" }, lines.slice(at, end + 1).join("\n")) };
}

function heading(lines, at) {
  const match = HEADING.exec(lines[at]);
  // Beneath the page's own headings.
  return match && { end: at + 1, node: () => make(`h${Math.min(6, match[1].length + 2)}`, { class: `level${match[1].length}` }, ...inline(match[2] ?? "")) };
}

const rule = (lines, at) => RULE.test(lines[at]) ? { end: at + 1, node: () => make("hr") } : null;

function quote(lines, at, depth) {
  if (!QUOTE.test(lines[at])) return null;
  let end = at;
  while (end < lines.length && (QUOTE.test(lines[end]) || (!isBlank(lines[end]) && !begins(lines, end)))) end++;
  const inside = lines.slice(at, end).map((line) => line.replace(QUOTE, ""));
  return { end, node: () => make("blockquote", {}, ...nodes(inside, depth + 1)) };
}

function list(lines, at, depth) {
  const first = ITEM.exec(lines[at]);
  if (!first || RULE.test(lines[at])) return null;
  const indent = first[1].length, kind = first[2].at(-1);
  const items = [];
  let end = at;
  for (let match; (match = ITEM.exec(lines[end] ?? "")) && match[1].length < indent + 2 && match[2].at(-1) === kind && !RULE.test(lines[end]);) {
    const start = end;
    const inner = match[1].length + match[2].length + 1;
    end = endOfItem(lines, end + 1, match[1].length, inner);
    const rest = lines.slice(start + 1, end).map((line) => line.slice(Math.min(inner, indentOf(line))));
    items.push([(match[3] ?? "") + (match[4] ?? ""), ...rest]);
    let next = end;
    while (next < lines.length && isBlank(lines[next])) next++;
    if (ITEM.test(lines[next] ?? "")) end = next;
  }
  const isOrdered = kind === "." || kind === ")";
  const attributes = isOrdered && first[2].slice(0, -1) !== "1" ? { start: first[2].slice(0, -1) } : {};
  return { end, node: () => make(isOrdered ? "ol" : "ul", attributes, ...items.map((item) => listItem(item, depth))) };
}

// Lines that are indented belong to it, blank ones between them, and plain text that follows at once.
function endOfItem(lines, at, indent, inner) {
  const least = Math.min(inner, indent + 2);
  let end = at;
  for (let next = at; next < lines.length; next++) {
    if (isBlank(lines[next])) continue;
    const isInside = indentOf(lines[next]) >= least;
    if (!isInside && (next > end || begins(lines, next) || ITEM.test(lines[next]))) break;
    end = next + 1;
  }
  return end;
}

function listItem(lines, depth) {
  const task = /^\[([ xX])\] +/.exec(lines[0]);
  const inside = nodes(task ? [lines[0].slice(task[0].length), ...lines.slice(1)] : lines, depth + 1);
  if (inside[0]?.localName === "p") inside.splice(0, 1, ...inside[0].childNodes);
  const box = task ? [make("input", { type: "checkbox", disabled: true, checked: task[1] !== " ", "aria-label": "Done" }), " "] : [];
  return make("li", task ? { class: "task" } : {}, ...box, ...inside);
}

function table(lines, at) {
  if (!lines[at].includes("|") || !DELIMITERS.test(lines[at + 1] ?? "")) return null;
  const head = cells(lines[at]), marks = cells(lines[at + 1]);
  if (head.length !== marks.length) return null;
  const sides = marks.map((mark) => (mark.endsWith(":") ? (mark.startsWith(":") ? "center" : "right") : "left"));
  let end = at + 2;
  while (end < lines.length && !isBlank(lines[end]) && lines[end].includes("|")) end++;
  const row = (kind, line) => make("tr", {}, ...sides.map((side, index) => make(kind, { class: side }, ...inline(cells(line)[index] ?? ""))));
  const body = lines.slice(at + 2, end);
  return {
    end,
    node: () => make("div", { class: "scrolled", tabindex: "0" },
      make("table", {}, make("thead", {}, row("th", lines[at])), make("tbody", {}, ...body.map((line) => row("td", line))))),
  };
}

const cells = (line) =>
  line.trim().replace(/^\||(?<!\\)\|$/g, "").split(/(?<!\\)\|/).map((cell) => cell.trim().replaceAll("\\|", "|"));

function paragraph(lines, at) {
  let end = at + 1;
  while (end < lines.length && !isBlank(lines[end]) && !begins(lines, end)) {
    const line = UNDERLINE.exec(lines[end]);
    if (line) {
      const text = lines.slice(at, end).join("\n");
      return { end: end + 1, node: () => make(line[1][0] === "=" ? "h3" : "h4", {}, ...inline(text)) };
    }
    end++;
  }
  const text = lines.slice(at, end).map((line) => line.trim()).join("\n");
  return { end, node: () => make("p", {}, ...inline(text)) };
}

// What ends a paragraph without a blank line before it.
function begins(lines, at) {
  const item = ITEM.exec(lines[at]);
  return Boolean(FENCE.test(lines[at]) || HEADING.test(lines[at]) || QUOTE.test(lines[at]) || table(lines, at)
    || (RULE.test(lines[at]) && !UNDERLINE.test(lines[at])) || FORMULA_START.test(lines[at]) && formula(lines, at)
    || (item && item[4] && (!/\d/.test(item[2]) || /^1\D$/.test(item[2]))));
}

const READERS = [fence, formula, heading, rule, quote, list, table];
