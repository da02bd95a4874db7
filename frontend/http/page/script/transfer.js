// Conversations as files: Markdown to read, JSON to keep, to import again and for other programs.

const MOST_IMPORT_BYTES = 1 << 28;
const MOST_MESSAGES = 10000; // of a conversation: more can't be shown at once

function asMarkdown(conversation) {
  const parts = [`# ${conversation.title}`, ...systemMessages(conversation).flatMap(({ content }) => ["## System prompt", content])];
  for (const message of way(conversation)) {
    if (message.role === "user") parts.push("## Question", ...(message.pictures ?? []).map(asMarkdownPicture), asTold({ ...message, pictures: [] }).content);
    else if (message.role === "tool") parts.push(`## Result of ${message.name}`, asBlock({ name: "Result", text: message.content }));
    else {
      parts.push(`## Answer${message.model ? ` (${message.model})` : ""}`);
      if (message.thought) parts.push(message.thought.trim().split("\n").map((line) => `> ${line}`).join("\n"));
      for (const call of message.calls ?? []) parts.push(`\`${call.name}(${call.text})\``);
      parts.push(message.content.trim(), message.error ? `*${message.error}*` : "");
    }
  }
  return `${parts.filter(Boolean).join("\n\n")}\n`;
}

const asMarkdownPicture = ({ name, url }) => `![${name.replace(/[\\[\]]/g, "\\$&").replace(/\s+/g, " ")}](${url})`;

const inOpenAiForm = (conversation) => [...systemMessages(conversation), ...way(conversation).filter((message) => !hasFailed(message)).map(asTold)];

// With the shown messages in OpenAI's form beside the whole tree.
const exported = (conversation) => ({ ...conversation, system: systemOf(conversation), openai: inOpenAiForm(conversation) });

const asJson = (list) => JSON.stringify({ penstock: 1, conversations: list.map(exported) }, null, 1);

function save(name, kind, text) {
  const address = URL.createObjectURL(new Blob([text], { type: kind }));
  make("a", { href: address, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(address), 10000);
}

const fileName = (conversation, ending) =>
  `${conversation.title.replace(/[^\p{L}\p{N}]+/gu, "-").replace(/^-|-$/g, "").slice(0, 50) || "conversation"}.${ending}`;

// What came of all files is told at the end.
async function bringIn(files) {
  const failures = [], found = [];
  const leftOut = { conversations: 0, messages: 0, pictures: 0 };
  for (const file of files) {
    try {
      for (const each of takenFrom(await contentOf(file), file.name, leftOut)) found.push(each);
    } catch (error) {
      failures.push(sentenceOf(error));
    }
  }
  found.sort((one, other) => other.updated - one.updated);
  leftOut.conversations += found.splice(MOST_CONVERSATIONS).length;
  for (const each of found) conversations.set(each.id, each);
  const areKept = await Promise.all(found.map(keep));
  if (areKept.every(Boolean)) toast([...importedWords(found.length, leftOut), ...failures].join(" "));
  forgetOldest();
  showSidebar();
  if (found.length && conversations.has(found[0].id)) {
    view("talk");
    show(found[0]);
  }
}

function importedWords(number, leftOut) {
  const words = number ? [`${count(number, "conversation")} imported.`] : [];
  const parts = ["conversation", "message", "picture"].filter((noun) => leftOut[`${noun}s`]).map((noun) => count(leftOut[`${noun}s`], noun));
  if (!parts.length) return words;
  return [...words, `Left out: ${new Intl.ListFormat("en").format(parts)} that this page can't show or keep.`];
}

async function contentOf(file) {
  if (file.size > MOST_IMPORT_BYTES) throw new Failure(`${file.name} is larger than 256 MiB. Import its conversations one by one.`);
  const text = await file.text().catch(() => { throw new Failure(`${file.name} could not be read.`); });
  try {
    return JSON.parse(text);
  } catch {
    throw new Failure(`${file.name} is not JSON, as exported conversations are.`);
  }
}

function takenFrom(body, name, leftOut) {
  const found = [], all = conversationsIn(body);
  for (const each of all) {
    const conversation = asConversation(each);
    if (!conversation || conversation.messages.length > MOST_MESSAGES) continue;
    leftOut.messages += each.messages.length - conversation.messages.length;
    leftOut.pictures += numPictures(each.messages) - numPictures(conversation.messages);
    if (conversation.system === $("system").value.trim()) delete conversation.system;
    found.push({ ...endRunning(conversation), id: newId() });
  }
  if (!found.length) throw new Failure(`${name} contains neither conversations that this page exported nor messages in OpenAI's format.`);
  leftOut.conversations += all.length - found.length;
  return found;
}

const numPictures = (messages) => messages.reduce((sum, message) => sum + (Array.isArray(message?.pictures) ? message.pictures.length : 0), 0);

// What this page has written, or a list of messages as OpenAI's clients keep them. Nothing in it is known to be of its kind.
function conversationsIn(body) {
  if (isObject(body) && body.penstock) {
    const all = Array.isArray(body.conversations) ? body.conversations : [];
    return all.map((each) => isObject(each) ? { system: body.system, ...each } : each);
  }
  const list = isObject(body) ? body.messages : body;
  return Array.isArray(list) ? [fromOpenAi(list.map((each) => isObject(each) ? each : {}))] : [];
}

// The system prompt stands before a conversation, wherever it stood in the list.
function fromOpenAi(list) {
  const isSystem = ({ role }) => ["system", "developer"].includes(role);
  const names = new Map(); // of the tools, by the ids of their calls
  const messages = list.filter((each) => !isSystem(each)).map((each, number) => {
    const calls = (Array.isArray(each.tool_calls) ? each.tool_calls : []).map((call) => ({ id: call?.id, name: call?.function?.name, text: call?.function?.arguments }));
    for (const call of calls) names.set(call.id, call.name);
    return {
      id: number, parent: number ? number - 1 : null, role: each.role, content: each.content, pictures: picturesOf(each.content), thought: each.reasoning_content, calls,
      call: each.tool_call_id, name: each.name ?? names.get(each.tool_call_id),
    };
  });
  return { system: list.filter(isSystem).map(({ content }) => asContent(content)).filter(Boolean).join("\n\n"), messages };
}

// Of a message in parts: each that is no text. One without pixels of its own, such as an address, is left out later.
function picturesOf(content) {
  const parts = Array.isArray(content) ? content.filter((part) => isObject(part) && typeof part.type === "string" && part.text === undefined) : [];
  const asGiven = (part) => part.type === "video" ? { name: "video", frames: part.video ?? part.video_url, rate: part.sample_fps } : { name: "picture", url: part.image_url?.url ?? part.image_url ?? part.image };
  return parts.length ? parts.map(asGiven) : undefined;
}

$("export-markdown").onclick = () => save(fileName(current, "md"), "text/markdown", asMarkdown(current));
$("export-json").onclick = () => save(fileName(current, "json"), "application/json", asJson([current]));
$("export-all").onclick = () => {
  if (conversations.size) save("penstock-conversations.json", "application/json", asJson([...conversations.values()]));
  else toast("There are no conversations yet.");
};
$("import").onclick = () => $("import-files").click();
$("import-files").onchange = () => {
  bringIn([...$("import-files").files]);
  $("import-files").value = "";
};
