// Colours for code: comments, strings, numbers and keywords of the usual languages, line by line, so that code that still comes
// is coloured once. It reads words and quotes, not grammar.

const C_STYLE = { line: "//", block: ["/*", "*/"], quotes: `"'` };
const wordsOf = (text) => new Set(text.split(" "));
const C_WORDS = "auto bool break case char const constexpr continue default do double else enum extern false float for goto if inline int long namespace new nullptr private protected public return short signed sizeof static struct switch template this throw true try catch typedef typename union unsigned using virtual void volatile while class delete override #include #define #ifdef #ifndef #endif #if #else #pragma NULL";
const JAVASCRIPT_WORDS = "async await break case catch class const continue default delete do else export extends false finally for from function if import in instanceof let new null of return static super switch this throw true try typeof undefined var void while yield interface type enum implements readonly declare namespace abstract as private public protected string number boolean any never unknown";

const LANGUAGES = {
  python: { line: "#", longQuotes: ['"""', "'''"], quotes: `"'`, words: "and as assert async await break case class continue def del elif else except False finally for from global if import in is lambda match None nonlocal not or pass raise return self True try while with yield" },
  javascript: { ...C_STYLE, longQuotes: ["`"], words: JAVASCRIPT_WORDS },
  java: { ...C_STYLE, longQuotes: ['"""'], words: "abstract boolean break byte case catch char class const continue default do double else enum extends false final finally float for fun if implements import in instanceof int interface is long native new null object override package private protected public record return sealed short static super switch synchronized this throw throws true try val var void when while" },
  c: { ...C_STYLE, words: C_WORDS },
  csharp: { ...C_STYLE, words: `${C_WORDS} abstract async await base byte decimal event foreach get in interface internal is lock null object out params readonly ref sealed set string var where yield` },
  go: { ...C_STYLE, longQuotes: ["`"], words: "break case chan const continue default defer else fallthrough false for func go goto if import interface map nil package range return select struct switch true type var bool byte error float64 int int64 rune string" },
  rust: { ...C_STYLE, quotes: '"', words: "as async await break const continue crate dyn else enum extern false fn for if impl in let loop match mod move mut pub ref return self Self static struct super trait true type unsafe use where while bool char f32 f64 i32 i64 str u8 u32 u64 usize Option Result String Vec" },
  swift: { ...C_STYLE, quotes: '"', longQuotes: ['"""'], words: "as async await break case catch class continue default defer do else enum extension false for func guard if import in init inout is let nil private protocol public return self static struct super switch throw throws true try var where while" },
  php: { ...C_STYLE, line: "#|//", words: "abstract and array as break case catch class const continue default do echo else elseif extends false final finally fn for foreach function global if implements include interface match namespace new null or private protected public require return static switch this throw trait true try use var while yield" },
  ruby: { line: "#", quotes: `"'`, words: "alias and begin break case class def do else elsif end ensure false for if in module next nil not or puts redo require rescue retry return self super then true undef unless until when while yield" },
  bash: { line: "(?<![^\\s;])#", quotes: `"'`, words: "if then else elif fi for in do done while until case esac function return export local set unset source echo cd exit sudo" },
  sql: { line: "--", block: ["/*", "*/"], quotes: `"'`, isAnyCase: true, words: "add all alter and as asc avg begin between by case column commit count create cross delete desc distinct drop else end exists foreign from full group having if in index inner insert int integer into is join key left like limit max min not null offset on or order outer over partition primary references right rollback select set sum table text then timestamp union unique update values varchar view when where with" },
  json: { quotes: '"', words: "true false null", key: true },
  yaml: { line: "(?<!\\S)#", quotes: `"'`, words: "true false null yes no on off", key: true },
  toml: { line: "[#;]", quotes: `"'`, longQuotes: ['"""', "'''"], words: "true false", key: true },
  css: { block: ["/*", "*/"], quotes: `"'`, words: "!important @media @import @keyframes @font-face @supports @layer", key: true },
  html: { block: ["<!--", "-->"], quotes: `"'`, isMarkup: true, words: "" },
  diff: { isDiff: true },
};
const OTHER_NAMES = {
  py: "python", python3: "python", js: "javascript", jsx: "javascript", ts: "javascript", tsx: "javascript", typescript: "javascript", mjs: "javascript",
  kotlin: "java", kt: "java", scala: "java", cpp: "c", "c++": "c", h: "c", hpp: "c", cuda: "c", cs: "csharp", "c#": "csharp", golang: "go", rs: "rust",
  rb: "ruby", sh: "bash", shell: "bash", zsh: "bash", console: "bash", dockerfile: "bash", makefile: "bash", yml: "yaml", ini: "toml", xml: "html", svg: "html",
  vue: "html", scss: "css", less: "css", patch: "diff", jsonc: "json", json5: "json", postgresql: "sql", mysql: "sql", sqlite: "sql",
};

const readers = new Map(); // by language: its pattern and its words, once they were needed

function readerOf(language) {
  const wanted = language.toLowerCase();
  const name = Object.hasOwn(OTHER_NAMES, wanted) ? OTHER_NAMES[wanted] : wanted;
  if (!Object.hasOwn(LANGUAGES, name)) return null;
  if (!readers.has(name)) readers.set(name, makeReader(LANGUAGES[name]));
  return readers.get(name);
}

const literal = (text) => text.replace(/[\\^$.*+?()[\]{}|/]/g, "\\$&");

// Whatever isn't closed on its line ends with the line, or goes on below where its language has it so.
function makeReader(rules) {
  const { line, block, longQuotes = [], quotes = "", key, isMarkup } = rules;
  const long = [...(block ? [[block[0], block[1], "comment"]] : []), ...longQuotes.map((each) => [each, each, "string"])];
  const alternatives = [
    ...(line ? [`(?<comment>(?:${line}).*)`] : []),
    ...(long.length ? [`(?<long>${long.map(([open]) => literal(open)).join("|")})`] : []),
    ...(isMarkup ? ["(?<keyword></?[\\w:-]+|/?>)"] : []),
    ...[...quotes].map((quote, at) => `(?<string${at}>${quote}(?:[^${quote}\\\\]|\\\\.)*${quote}?)`),
    "(?<number>\\b(?:0[xX][\\da-fA-F_]+|\\d[\\d_]*(?:\\.\\d+)?(?:[eE][+-]?\\d+)?)\\w*)",
    "(?<word>[#@!]?[\\p{L}_$][\\p{L}\\p{N}_$-]*)".replace("-]*", key || isMarkup ? "-]*" : "]*"),
    "(?<other>[^])",
  ];
  return { ...rules, long, words: wordsOf(rules.words ?? ""), pattern: new RegExp(alternatives.join("|"), "yu") };
}

// Nodes of a line of code, and what it leaves open for the next one.
function coloured(line, language, open) {
  const reader = readerOf(language);
  if (!reader) return { nodes: [line] };
  if (reader.isDiff) return { nodes: [token({ "+": "added", "-": "removed", "@": "comment" }[line[0]], line)] };
  const found = { nodes: [], plain: "", open };
  let at = 0;
  while (at < line.length) at = found.open ? goOnWithOpen(found, line, at) : readToken(found, reader, line, at);
  if (found.plain) found.nodes.push(found.plain);
  return found;
}

const token = (kind, text) => kind ? make("span", { class: `code-${kind}` }, text) : text;

function addToken(found, kind, text) {
  if (!kind) {
    found.plain += text;
    return;
  }
  if (found.plain) found.nodes.push(found.plain);
  found.plain = "";
  found.nodes.push(token(kind, text));
}

function goOnWithOpen(found, line, at, from = at) {
  const [, close, kind] = found.open;
  const end = line.indexOf(close, from);
  const next = end < 0 ? line.length : end + close.length;
  if (end >= 0) found.open = undefined;
  addToken(found, kind, line.slice(at, next));
  return next;
}

function readToken(found, reader, line, at) {
  reader.pattern.lastIndex = at;
  const { 0: text, groups } = reader.pattern.exec(line);
  const [kind] = Object.entries(groups).find(([, each]) => each !== undefined);
  if (kind === "long") {
    found.open = reader.long.find(([opening]) => opening === text);
    return goOnWithOpen(found, line, at, at + text.length);
  }
  addToken(found, kindOf(reader, kind.replace(/\d$/, ""), text, line, at + text.length), text);
  return at + text.length;
}

function kindOf(reader, kind, text, line, end) {
  const isKey = reader.key && (kind === "string" || kind === "word") && /^[:=]/.test(line.slice(end, end + 9).trimStart());
  if (isKey) return "key";
  if (kind === "other") return null;
  if (kind !== "word") return kind;
  if (reader.isMarkup) return line[end] === "=" ? "key" : null;
  return reader.words.has(reader.isAnyCase ? text.toLowerCase() : text) ? "keyword" : null;
}
