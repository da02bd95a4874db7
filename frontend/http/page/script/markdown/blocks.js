// Markdown's blocks, read line by line as they come: paragraphs, headings, lists, quotes, tables, code, formulas, footnotes.
//
// A line is read once, whatever follows. The last line of a text that still grows is read as if it ended there (`peek`), and
// what that changed is taken back before more comes. So a block's `parts` before its `firm` one never change again, and only
// blocks that are open are looked at; `drawing.js` draws what isn't drawn yet. Each line costs its length times the depth of
// containers, which is bounded.

const MOST_CONTAINERS = 24; // a list within a list counts two; deeper ones are text
const MOST_COLUMNS = 100; // a wider table is text
const LONGEST_FORMULA = 40; // lines

const isBlank = (line) => !/\S/.test(line);
const block = (kind, fields) => ({ kind, parts: [], firm: Infinity, view: {}, ...fields });

class Blocks {
  root = block("root");
  open = [this.root]; // containers, from the outermost in
  leaf = null; // the block of text that the next line may go on with
  line = ""; // the last one, not ended yet
  spine = []; // the blocks that more text may change
  undo = null;

  add(text) {
    this.takeBack();
    const lines = text.split("\n");
    lines[0] = this.line + lines[0];
    this.line = lines.pop();
    for (const line of lines) this.take(line);
    for (const each of this.spine) each.firm = Infinity;
    this.spine = [...this.open, ...(this.leaf ? [this.leaf] : [])];
    for (const each of this.spine) each.firm = Math.max(0, each.parts.length - (each === this.leaf ? 0 : 1));
  }

  // As if the last line ended here.
  peek() {
    if (this.undo || !this.line) return;
    const saved = this.spine.map((each) => ({ each, fields: { ...each }, length: each.parts.length }));
    this.undo = { saved, open: [...this.open], leaf: this.leaf };
    this.take(this.line);
  }

  takeBack() {
    if (!this.undo) return;
    for (const { each, fields, length } of this.undo.saved) {
      Object.assign(each, fields);
      each.parts.length = length;
    }
    Object.assign(this, { open: this.undo.open, leaf: this.undo.leaf, undo: null });
  }

  // Characters that are drawn again when the last line has grown.
  get unsettled() {
    return this.line.length + (this.leaf && !["code", "table"].includes(this.leaf.kind) ? this.leaf.size ?? 0 : 0);
  }

  take(line) {
    let { rest, depth } = this.enter(line);
    const isInside = depth === this.open.length;
    if (isInside && this.leaf && this.leaf.kind in GOES_ON) return GOES_ON[this.leaf.kind](this, rest);
    if (isBlank(rest)) return this.closeTo(depth);
    for (;;) {
      const indent = columns(rest), text = unindented(rest, indent);
      const here = { rest, indent, text, depth, continues: depth === this.open.length ? this.leaf?.kind : undefined };
      const inner = this.open.length < MOST_CONTAINERS || depth < this.open.length ? this.start(here) : null;
      if (inner === null) return this.takeText(here);
      if (isBlank(inner)) return;
      [rest, depth] = [inner, this.open.length];
    }
  }

  // Into the containers that the line goes on with.
  enter(line) {
    let rest = line, depth = 1;
    for (; depth < this.open.length; depth++) {
      const inner = INSIDE[this.open[depth].kind](this.open[depth], rest);
      if (inner === null) break;
      rest = inner;
    }
    return { rest, depth };
  }

  start(here) {
    for (const begin of STARTS) {
      const inner = begin(this, here);
      if (inner !== null) return inner;
    }
    return null;
  }

  takeText({ rest, depth, continues }) {
    if (this.leaf?.kind === "paragraph") return lengthen(this.leaf, rest); // within its container, or lazily without its marks
    if (continues === "table" && rest.includes("|")) return lengthen(this.leaf, rest);
    lengthen(this.addLeaf(depth, "paragraph"), rest);
  }

  closeTo(depth) {
    this.open.length = depth;
    this.leaf = null;
  }

  // A list ends with the first thing that is none of its items.
  closeFor(depth) {
    this.closeTo(this.open[depth - 1].kind === "list" ? depth - 1 : depth);
  }

  addLeaf(depth, kind, fields) {
    this.closeFor(depth);
    this.leaf = block(kind, { size: 0, ...fields });
    this.open.at(-1).parts.push(this.leaf);
    return this.leaf;
  }

  addContainer(kind, fields) {
    const made = block(kind, fields);
    this.open.at(-1).parts.push(made);
    this.open.push(made);
  }
}

function lengthen(leaf, line) {
  leaf.parts.push(line);
  leaf.size += line.length + 1;
}

// Of a line's white space: a tab is four columns wherever it stands, and stays a tab where it isn't taken away.
function columns(line) {
  let wide = 0;
  for (let at = 0; line[at] === " " || line[at] === "\t"; at++) wide += line[at] === " " ? 1 : 4;
  return wide;
}

function unindented(line, most) {
  let at = 0, left = most;
  for (; left > 0 && (line[at] === " " || line[at] === "\t"); at++) left -= line[at] === " " ? 1 : 4;
  return " ".repeat(Math.max(0, -left)) + line.slice(at);
}

// What a line has inside of an open container; null where it isn't inside.
const within = ({ least, inner }, rest) => isBlank(rest) ? "" : columns(rest) >= least ? unindented(rest, inner) : null;
const INSIDE = {
  quote: (_, rest) => /^\s{0,3}>/.test(rest) ? unquoted(rest) : null,
  list: (_, rest) => rest,
  item: within,
  note: within,
};

const unquoted = (rest) => rest.slice(rest.indexOf(">") + 1).replace(/^ /, "");

// Leaves that take lines as they are, until they end.
const GOES_ON = {
  code(blocks, rest) {
    const { mark, length, indent } = blocks.leaf;
    const text = rest.trim();
    if (text.length >= length && columns(rest) < 4 && isAll(text, mark)) blocks.leaf = null;
    else blocks.leaf.parts.push(unindented(rest, indent));
  },
  formula(blocks, rest) {
    lengthen(blocks.leaf, rest);
    const at = rest.indexOf(blocks.leaf.closing);
    blocks.leaf.isClosed = at >= 0 && at === rest.trimEnd().length - 2;
    if (at >= 0 || isBlank(rest) || blocks.leaf.parts.length === LONGEST_FORMULA) blocks.leaf = null; // a paragraph, if not closed
  },
};

function isAll(text, mark) {
  for (let at = 0; at < text.length; at++) if (text[at] !== mark) return false;
  return true;
}

// --- what begins a block ---------------------------------------------------------------------------------------------
// Each gives what remains of the line inside of a container that it opened, DONE with the line, or null.

const DONE = "";

function fence(blocks, { indent, text, depth }) {
  const [row] = /^(?:`{3,}|~{3,})/.exec(text) ?? [];
  if (!row || indent > 3 || text.includes("`", row.length)) return null;
  const language = text.slice(row.length).trim().split(/[\s{:]/, 1)[0];
  blocks.addLeaf(depth, "code", { mark: row[0], length: row.length, indent, language });
  return DONE;
}

function formula(blocks, { text, depth }) {
  const closing = { "$$": "$$", "\\[": "\\]" }[text.slice(0, 2)];
  if (!closing) return null;
  const at = text.indexOf(closing, 2);
  const isClosed = at >= 0 && at === text.trimEnd().length - 2;
  if (at >= 0 && !isClosed) return null;
  lengthen(blocks.addLeaf(depth, "formula", { closing, isClosed }), text);
  if (isClosed) blocks.leaf = null;
  return DONE;
}

function heading(blocks, { indent, text, depth }) {
  const [row] = /^#{1,6}(?!\S)/.exec(text) ?? [];
  if (!row || indent > 3) return null;
  blocks.addLeaf(depth, "heading", { level: row.length });
  lengthen(blocks.leaf, withoutHashes(text.slice(row.length).trim()));
  blocks.leaf = null;
  return DONE;
}

function withoutHashes(text) {
  let end = text.length;
  while (text[end - 1] === "#") end--;
  return end === 0 || /\s/.test(text[end - 1]) ? text.slice(0, end).trimEnd() : text;
}

// The last line of a paragraph is a table's head, if below it stands a row of as many dashes.
function table(blocks, { text, continues }) {
  const { leaf } = blocks;
  if (continues !== "paragraph" || !/^[|:-]/.test(text) || !leaf.parts.at(-1).includes("|")) return null;
  const marks = cells(text), head = leaf.parts.at(-1);
  if (marks.length > MOST_COLUMNS || !marks.every((mark) => /^:?-+:?$/.test(mark)) || cells(head).length !== marks.length) return null;
  const sides = marks.map((mark) => (mark.endsWith(":") ? (mark.startsWith(":") ? "center" : "right") : "left"));
  const fields = { head, sides };
  if (leaf.parts.length === 1) Object.assign(leaf, { kind: "table", parts: [], ...fields });
  else {
    leaf.parts = leaf.parts.slice(0, -1); // another list: the first is needed to take this back
    blocks.addLeaf(blocks.open.length, "table", fields);
  }
  return DONE;
}

const cells = (line) =>
  line.trim().replace(/^\||(?<!\\)\|$/g, "").split(/(?<!\\)\|/).map((cell) => cell.trim().replaceAll("\\|", "|"));

function underline(blocks, { indent, text, continues }) {
  if (continues !== "paragraph" || indent > 3 || !/^(?:={3,}|-{3,})\s*$/.test(text)) return null;
  Object.assign(blocks.leaf, { kind: "heading", level: text[0] === "=" ? 1 : 2, isUnderlined: true });
  blocks.leaf = null;
  return DONE;
}

function rule(blocks, { indent, text, depth }) {
  if (indent > 3 || !"-*_".includes(text[0])) return null;
  let marks = 0;
  for (const each of text) {
    if (each === text[0]) marks++;
    else if (each !== " " && each !== "\t") return null;
  }
  if (marks < 3) return null;
  blocks.addLeaf(depth, "rule");
  blocks.leaf = null;
  return DONE;
}

function quote(blocks, { rest, indent, text, depth }) {
  if (indent > 3 || text[0] !== ">") return null;
  blocks.closeFor(depth);
  blocks.addContainer("quote");
  return unquoted(rest);
}

function item(blocks, { indent, text, depth, continues }) {
  const [mark] = /^(?:[-*+]|\d{1,9}[.)])(?=[ \t]|$)/.exec(text) ?? [];
  if (!mark) return null;
  const isNumbered = mark.length > 1;
  const rest = unindented(text.slice(mark.length), 1);
  // Within a paragraph a number may be one, and a dash a dash.
  if (continues === "paragraph" && (isBlank(rest) || isNumbered && mark.slice(0, -1) !== "1")) return null;
  const kind = mark.at(-1), outer = blocks.open[depth - 1];
  if (outer.kind === "list" && outer.mark === kind) blocks.closeTo(depth);
  else {
    blocks.closeFor(depth);
    blocks.addContainer("list", { mark: kind, start: isNumbered ? mark.slice(0, -1) : "" });
  }
  const task = /^\[([ xX])\] +/.exec(rest);
  const inner = indent + mark.length + 1;
  blocks.addContainer("item", { inner, least: Math.min(inner, indent + 2), task: task?.[1] });
  return task ? rest.slice(task[0].length) : rest;
}

function note(blocks, { indent, text, depth }) {
  const match = /^\[\^([^\s\[\]]{1,40})\]:/.exec(text);
  if (!match || indent > 3) return null;
  blocks.closeFor(depth);
  blocks.addContainer("note", { label: match[1], inner: 4, least: 2 });
  return text.slice(match[0].length);
}

const STARTS = [fence, formula, heading, table, underline, rule, quote, note, item];
