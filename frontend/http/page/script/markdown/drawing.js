// Blocks as elements. What was drawn stays; drawn again are only blocks that are still open, and of those only what is new.

// A text that grows is drawn once it has grown by this share of what would be drawn again, so that all drawing together takes
// a time linear in its length, however small its pieces are. What is short is always drawn.
const WORTH_DRAWING = 1 / 32, SHORT = 300;

// Shows all of a text, the last line as if it ended there.
function showMarkdown(place, text) {
  const shown = markdownOf(place, text);
  shown.blocks.peek();
  drawParts(shown.blocks.root, place, shown.notes);
  shown.unseen = 0;
}

// The same for a text that will grow further: now and then.
function growMarkdown(place, text) {
  const { blocks, unseen } = markdownOf(place, text);
  const again = blocks.unsettled;
  if (again <= SHORT || unseen >= again * WORTH_DRAWING) showMarkdown(place, text);
}

function markdownOf(place, text) {
  if (!place.markdown || !text.startsWith(place.markdown.text)) {
    place.replaceChildren();
    place.markdown = { blocks: new Blocks(), notes: new Notes(), text: "", unseen: 0 };
  }
  const shown = place.markdown;
  const taken = text.endsWith("\r") ? text.slice(0, -1) : text; // with what follows it may be one end of a line
  const fresh = taken.slice(shown.text.length);
  if (fresh) shown.blocks.add(fresh.replace(/\r\n?/g, "\n"));
  Object.assign(shown, { text: taken, unseen: shown.unseen + fresh.length });
  return shown;
}

function drawParts(container, place, notes) {
  const { parts, view } = container;
  const drawn = (view.drawn ??= []);
  const settled = view.settled ?? 0;
  let same = settled;
  while (same < drawn.length && drawn[same] === parts[same]) same++;
  for (const gone of drawn.splice(same)) for (const node of gone.view.nodes) node.remove();
  for (let at = settled; at < parts.length; at++) {
    drawBlock(parts[at], place, notes, at === 0 && ["item", "note"].includes(container.kind));
    drawn[at] = parts[at];
  }
  view.settled = Math.min(container.firm, parts.length);
}

function drawBlock(block, place, notes, isTight) {
  const { view } = block;
  if (view.kind !== block.kind) Object.assign(view, { kind: block.kind, element: null, text: null, rows: null });
  const made = DRAWINGS[block.kind](block, notes, isTight);
  if (!made) return; // it has grown where it stands
  const before = view.nodes ?? [];
  view.nodes = made instanceof DocumentFragment ? [...made.childNodes] : [made];
  if (before.length) before[0].before(made);
  else place.append(made);
  for (const node of before) node.remove();
}

// Each gives what stands for the block now, or nothing where that stands there already.
const DRAWINGS = {
  paragraph(block, notes, isTight) {
    const text = linesOf(block);
    if (block.view.text === text) return null;
    block.view.text = text;
    const made = inline(text, notes);
    return isTight ? made : make("p", {}, made);
  },
  heading(block, notes) {
    const text = linesOf(block);
    if (block.view.text === text) return null;
    block.view.text = text;
    const made = make(`h${Math.min(6, block.level + 2)}`, block.isUnderlined ? {} : { class: `level${block.level}` }); // beneath the page's own
    made.append(inline(text, notes));
    return made;
  },
  formula(block, notes) {
    if (!block.isClosed) return DRAWINGS.paragraph(block, notes);
    if (block.view.text === true) return null;
    block.view.text = true;
    return make("p", { class: "formula" }, formulaNode(block.parts.join("\n").trim(), true));
  },
  rule: ({ view }) => view.nodes ? null : make("hr"),
  code: drawCode,
  table: drawTable,
  quote: (block, notes) => drawContainer(block, notes, () => make("blockquote")),
  list: (block, notes) => drawContainer(block, notes, () =>
    block.start ? make("ol", block.start === "1" ? {} : { start: block.start }) : make("ul")),
  item: (block, notes) => drawContainer(block, notes, () => block.task ? make("li", { class: "task" }, checkbox(block), " ") : make("li")),
  note: (block, notes) => drawContainer(block, notes, () => notes.place(block.label)),
};

const linesOf = ({ parts }) => parts.map((line) => line.trim()).join("\n");

const checkbox = ({ task }) => make("input", { type: "checkbox", disabled: true, checked: task !== " ", "aria-label": "Done" });

function drawContainer(block, notes, begin) {
  const isNew = !block.view.element;
  block.view.element ??= begin();
  drawParts(block, block.view.element, notes);
  return isNew ? block.view.element : null;
}

// Rows that were complete when they were drawn stay; those behind them are drawn again if they are others.
function drawRows({ parts, firm, view }, place, rowOf) {
  const rows = (view.rows ??= []);
  let same = view.settled ?? 0;
  while (same < rows.length && rows[same].line === parts[same]) same++;
  for (const { node } of rows.splice(same)) node.remove();
  for (const line of parts.slice(same)) {
    rows.push({ line, ...rowOf(line, rows.at(-1)) });
    place.append(rows.at(-1).node);
  }
  view.settled = Math.min(firm, parts.length);
}

function drawTable(block, notes) {
  const { view, sides } = block;
  // A row that is shorter than the head ends in one cell, so that there are no more cells than are written.
  const row = (kind, line) => {
    const found = cells(line).slice(0, sides.length);
    const missing = sides.length - found.length;
    const rest = missing ? [make(kind, { class: sides[found.length], ...(missing > 1 ? { colspan: String(missing) } : {}) })] : [];
    return make("tr", {}, ...found.map((cell, at) => make(kind, { class: sides[at] }, inline(cell, notes))), ...rest);
  };
  const isNew = !view.element;
  if (isNew) {
    view.settled = 0;
    view.body = make("tbody");
    view.element = make("div", { class: "scrolled", tabindex: "0" }, make("table", {}, make("thead", {}, row("th", block.head)), view.body));
  }
  drawRows(block, view.body, (line) => ({ node: row("td", line) }));
  return isNew ? view.element : null;
}

function drawCode(block) {
  const { view, language } = block;
  const isNew = !view.element;
  if (isNew) {
    view.inside = make("code");
    const button = make("button", { type: "button", class: "copy", "data-word": "Copy" }, icon("copy"), "Copy");
    button.onclick = () => copy(view.inside.textContent, button);
    view.element = make("figure", { class: "code" }, make("figcaption", {}, language || "text", button), make("pre", { tabindex: "0" }, view.inside));
  }
  // Each line begins in what the line before it left open: a comment, a string.
  drawRows(block, view.inside, (line, before) => {
    const { nodes, open } = coloured(line, language, before?.open);
    const node = make("span", {}, ...(before ? ["\n"] : []));
    for (const each of nodes) node.append(each);
    return { node, open };
  });
  return isNew ? view.element : null;
}
