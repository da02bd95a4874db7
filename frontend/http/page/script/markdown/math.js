// Formulas: the usual subset of LaTeX as MathML, which browsers show and read aloud. One with anything else stays as it is written.

const MATHML = "http://www.w3.org/1998/Math/MathML";
const DEEPEST_FORMULA = 24; // groups within groups
const MOST_LATEX = 5000; // characters

class Unknown extends Error {}

function math(name, attributes = {}, ...children) {
  const made = document.createElementNS(MATHML, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

// With its marks, which say whether it has lines of its own.
function formulaNode(source, isBlock) {
  const size = /^\$(?!\$)/.test(source) ? 1 : 2;
  try {
    return mathOf(source.slice(size, -size), isBlock || source.startsWith("$$") || source.startsWith("\\["));
  } catch (error) {
    if (!(error instanceof Unknown)) throw error;
    return make("span", { class: "formula" }, source);
  }
}

function mathOf(latex, isBlock) {
  if (latex.length > MOST_LATEX) throw new Unknown();
  const parts = latex.match(/\\(?:[A-Za-z]+|[^])|\d+(?:\.\d+)?|\s+|[^]/gu) ?? [];
  const reader = { parts, at: 0, depth: 0, isBlock };
  const rows = grid(reader, null);
  if (reader.at < parts.length) throw new Unknown();
  const inside = rows.length === 1 && rows[0].length === 1 ? rows[0] : [gridNode(rows, "right left")];
  return math("math", { display: isBlock ? "block" : "inline", alttext: latex.trim() }, ...inside);
}

const peek = (reader) => reader.parts[reader.at];

function skipSpace(reader) {
  while (/^\s/.test(peek(reader) ?? "")) reader.at++;
  return peek(reader);
}

function expect(reader, part) {
  if (skipSpace(reader) !== part) throw new Unknown();
  reader.at++;
}

const rowOf = (nodes) => nodes.length === 1 ? nodes[0] : math("mrow", {}, ...nodes);

// Rows of cells, up to the end of what they stand in.
function grid(reader, ending) {
  const rows = [[]];
  for (;;) {
    rows.at(-1).push(rowOf(sequence(reader)));
    const mark = peek(reader);
    if (mark === "&") reader.at++;
    else if (mark === "\\\\") {
      reader.at++;
      rows.push([]);
    } else if (mark === ending || ending === null && mark === undefined) return rows;
    else throw new Unknown();
  }
}

function gridNode(rows, sides = "center") {
  const cell = (node, at) => math("mtd", { class: sides.split(" ").at(at % sides.split(" ").length) }, node);
  return math("mtable", { displaystyle: "true" }, ...rows.map((row) => math("mtr", {}, ...row.map(cell))));
}

// What stands between two marks of structure.
function sequence(reader) {
  if (++reader.depth > DEEPEST_FORMULA) throw new Unknown();
  const nodes = [];
  for (let part = skipSpace(reader); part !== undefined && !ENDS.has(part); part = skipSpace(reader)) nodes.push(scripted(reader));
  reader.depth--;
  return nodes;
}

const ENDS = new Set(["}", "&", "\\\\", "\\right", "\\end"]);

// One thing, with what stands below and above it.
function scripted(reader) {
  const base = "^_'".includes(peek(reader)) ? { node: math("mrow") } : atom(reader);
  const scripts = {};
  let primes = 0;
  for (; skipSpace(reader) === "'"; reader.at++) primes++;
  if (primes) scripts["^"] = math("mo", {}, "′".repeat(primes));
  for (let mark = skipSpace(reader); mark === "^" || mark === "_"; mark = skipSpace(reader)) {
    if (scripts[mark] && !primes) throw new Unknown(); // two of one kind
    reader.at++;
    scripts[mark] = scripts[mark] ? math("mrow", {}, scripts[mark], argument(reader)) : argument(reader);
    if (mark === "^") primes = 0;
  }
  const { "_": below, "^": above } = scripts;
  if (!below && !above) return base.node;
  const [both, under, over] = base.hasLimits && reader.isBlock ? ["munderover", "munder", "mover"] : ["msubsup", "msub", "msup"];
  if (below && above) return math(both, {}, base.node, below, above);
  return below ? math(under, {}, base.node, below) : math(over, {}, base.node, above);
}

// A group, or the next thing by itself.
function argument(reader) {
  const part = skipSpace(reader);
  if (part === undefined || ENDS.has(part)) throw new Unknown();
  if (/^\d\d/.test(part)) { // of a number without a group only its first digit
    reader.parts[reader.at] = part.slice(1);
    return math("mn", {}, part[0]);
  }
  if (++reader.depth > DEEPEST_FORMULA) throw new Unknown();
  const { node } = atom(reader);
  reader.depth--;
  return node;
}

function group(reader) {
  const nodes = sequence(reader);
  expect(reader, "}");
  return math("mrow", {}, ...nodes);
}

function atom(reader) {
  const part = peek(reader);
  reader.at++;
  if (part === "{") return { node: group(reader) };
  if (/^\d/.test(part)) return { node: math("mn", {}, part) };
  if (part[0] === "\\" && part.length > 1) return command(reader, part.slice(1));
  if (part === "~") return { node: math("mspace", { width: "0.33em" }) };
  if (/^\p{L}/u.test(part)) return { node: math("mi", {}, part) };
  if ("\\^_#%$".includes(part)) throw new Unknown();
  return { node: math("mo", "()[]|/".includes(part) ? { stretchy: "false" } : {}, part === "-" ? "−" : part) };
}

function command(reader, name) {
  if (LETTERS.has(name)) return { node: math("mi", {}, LETTERS.get(name)) };
  if (OPERATORS.has(name)) return { node: math("mo", { stretchy: "false" }, OPERATORS.get(name)) };
  if (LARGE.has(name)) return { node: math("mo", {}, LARGE.get(name)), hasLimits: true };
  if (INTEGRALS.has(name)) return { node: math("mo", {}, INTEGRALS.get(name)) };
  if (LIMITS.has(name)) return { node: math("mi", {}, name.replace(/^arg(?=m)/, "arg ").replace(/^lim(?=[si])/, "lim ")), hasLimits: true };
  if (FUNCTIONS.has(name)) return { node: math("mi", {}, name) };
  if (SPACES.has(name)) return { node: math("mspace", { width: SPACES.get(name) }) };
  if (ACCENTS.has(name)) return { node: math("mover", { accent: "true" }, argument(reader), math("mo", {}, ACCENTS.get(name))), hasLimits: name === "overbrace" };
  if (BELOW.has(name)) return { node: math("munder", {}, argument(reader), math("mo", {}, BELOW.get(name))), hasLimits: name === "underbrace" };
  if (Object.hasOwn(ALPHABETS, name)) return { node: inAlphabet(argument(reader), ALPHABETS[name]) };
  if (Object.hasOwn(COMMANDS, name)) return { node: COMMANDS[name](reader) };
  throw new Unknown();
}

function inAlphabet(node, [capitals, smalls, elsewhere]) {
  const other = (letter) => elsewhere[letter] ?? String.fromCodePoint(letter.charCodeAt() + (letter < "a" ? capitals - 65 : smalls - 97));
  const leaves = node.localName === "mi" ? [node] : node.querySelectorAll("mi");
  for (const leaf of leaves) leaf.textContent = leaf.textContent.replace(/[A-Za-z]/g, other);
  return node;
}

// --- commands that take arguments --------------------------------------------------------------------------------------

const fraction = (reader) => math("mfrac", {}, argument(reader), argument(reader));
const ignored = () => math("mrow"); // sizes and places of things, which MathML chooses itself

const COMMANDS = {
  frac: fraction, dfrac: fraction, tfrac: fraction, cfrac: fraction,
  binom: (reader) => math("mrow", {}, math("mo", {}, "("), math("mfrac", { linethickness: "0" }, argument(reader), argument(reader)), math("mo", {}, ")")),
  sqrt(reader) {
    if (skipSpace(reader) !== "[") return math("msqrt", {}, argument(reader));
    reader.at++;
    const index = [];
    for (let part = skipSpace(reader); part !== "]"; part = skipSpace(reader)) {
      if (part === undefined || ENDS.has(part)) throw new Unknown();
      index.push(scripted(reader));
    }
    reader.at++;
    return math("mroot", {}, argument(reader), rowOf(index));
  },
  left(reader) {
    const open = delimiter(reader), inside = sequence(reader);
    expect(reader, "\\right");
    return math("mrow", {}, ...fenced(open, inside, delimiter(reader)));
  },
  middle: (reader) => math("mo", { stretchy: "true" }, delimiter(reader)),
  begin(reader) {
    const name = braced(reader);
    if (!FENCES.has(name)) throw new Unknown();
    if (name === "array") braced(reader);
    const rows = grid(reader, "\\end");
    reader.at++;
    if (braced(reader) !== name) throw new Unknown();
    if (rows.length > 1 && rows.at(-1).length === 1 && !rows.at(-1)[0].textContent) rows.pop();
    const [open, close] = FENCES.get(name);
    const sides = name === "cases" ? "left" : /^(align|split)/.test(name) ? "right left" : "center";
    return math("mrow", {}, ...fenced(open, [gridNode(rows, sides)], close));
  },
  text: (reader) => words(reader), textrm: (reader) => words(reader), mbox: (reader) => words(reader),
  textbf: (reader) => words(reader, "bold"), textit: (reader) => words(reader, "italic"), texttt: (reader) => words(reader),
  mathrm: (reader) => math("mi", { mathvariant: "normal" }, braced(reader)),
  operatorname: (reader) => math("mi", { mathvariant: "normal" }, braced(reader)),
  mathit: (reader) => argument(reader),
  pmod: (reader) => math("mrow", {}, math("mo", {}, "("), math("mi", {}, "mod"), math("mspace", { width: "0.33em" }), argument(reader), math("mo", {}, ")")),
  bmod: () => math("mo", {}, "mod"),
  overset: (reader) => swapped("mover", reader), stackrel: (reader) => swapped("mover", reader), underset: (reader) => swapped("munder", reader),
  boxed: (reader) => math("mrow", { class: "boxed" }, argument(reader)),
  tag: (reader) => math("mtext", {}, `\u2003(${braced(reader)})`),
  not: (reader) => math("mo", {}, `${argument(reader).textContent}\u0338`),
  displaystyle: ignored, textstyle: ignored, limits: ignored, nolimits: ignored, nonumber: ignored, notag: ignored,
  big: ignored, Big: ignored, bigg: ignored, Bigg: ignored, bigl: ignored, bigr: ignored, Bigl: ignored, Bigr: ignored,
};

const swapped = (name, reader) => {
  const script = argument(reader);
  return math(name, {}, argument(reader), script);
};

const fenced = (open, inside, close) => {
  const fence = (mark) => mark && mark !== "." ? [math("mo", { stretchy: "true" }, mark)] : [];
  return [...fence(open), ...inside, ...fence(close)];
};

function delimiter(reader) {
  const part = skipSpace(reader);
  reader.at++;
  const mark = part?.[0] === "\\" ? OPERATORS.get(part.slice(1)) : part;
  if (!mark || !"()[]{}|‖/\\.<>⟨⟩⌊⌋⌈⌉↑↓".includes(mark)) throw new Unknown();
  return mark;
}

// The characters of a group, as they are written.
function braced(reader) {
  expect(reader, "{");
  const from = reader.at;
  while (peek(reader) !== "}") {
    if (peek(reader) === undefined || /^[{$\\]/.test(peek(reader)) && !/^\\[ ,_&%$#]/.test(peek(reader))) throw new Unknown();
    reader.at++;
  }
  return reader.parts.slice(from, reader.at++).join("").replace(/\\(.)/g, "$1");
}

const words = (reader, kind = "words") => math("mtext", { class: kind }, braced(reader).replaceAll(" ", "\u00a0"));
