// Pairs up rows of marks, as CommonMark does, and wraps what stands between them.

const TAGS = { "*1": "em", "*2": "strong", _1: "em", _2: "strong", "~2": "del", "~1": "del" };
const DEEPEST_EMPHASIS = 16; // within one another; what is deeper looks no different

const isSpace = (character) => character === "" || /\s/.test(character);
const isMark = (character) => /[\p{P}\p{S}]/u.test(character);

// Items are texts, nodes and rows of marks.
function emphasized(items) {
  pairUp(items.filter((item) => item.mark));
  return wrapped(items);
}

function pairUp(rows) {
  const openers = [];
  const searched = new Map(); // by kind of closer: the newest opener when none was found; older ones needn't be looked at again
  for (const [number, row] of rows.entries()) {
    row.number = number;
    while (row.closes && row.left) {
      const kind = `${row.mark}${row.mark === "~" ? row.left : row.size % 3}${row.opens}`;
      const oldest = searched.get(kind) ?? -1;
      let at = openers.length - 1;
      while (at >= 0 && openers[at].number > oldest && !pairs(openers[at], row)) at--;
      if (at < 0 || openers[at].number <= oldest) {
        searched.set(kind, openers.at(-1)?.number ?? -1);
        break;
      }
      const opener = openers[at];
      const size = Math.min(2, opener.left, row.left);
      opener.starts.push(TAGS[row.mark + size]);
      row.ends.push(size);
      opener.left -= size;
      row.left -= size;
      openers.length = opener.left ? at + 1 : at; // those between can't pair across it
    }
    if (row.opens && row.left) openers.push(row);
  }
}

function pairs(opener, closer) {
  if (opener.mark !== closer.mark) return false;
  if (opener.mark === "~") return opener.left === closer.left;
  const isOdd = (opener.closes || closer.opens) && (opener.size + closer.size) % 3 === 0;
  return !isOdd || (opener.size % 3 === 0 && closer.size % 3 === 0);
}

function wrapped(items) {
  const top = document.createDocumentFragment();
  const places = [top];
  let text = ""; // one node for all of it, however many pieces it came in
  const put = (node) => {
    if (text) places.at(-1).append(text);
    text = "";
    if (node) places.at(-1).append(node);
  };
  for (const item of items) {
    if (typeof item === "string") text += item;
    else if (!item.mark) put(item);
    else {
      for (const _ of item.ends) {
        put();
        places.pop();
      }
      text += item.mark.repeat(item.left);
      for (const tag of item.starts.reverse()) {
        put();
        const inner = places.length <= DEEPEST_EMPHASIS ? make(tag) : places.at(-1);
        if (inner !== places.at(-1)) put(inner);
        places.push(inner);
      }
    }
  }
  put();
  return top;
}
