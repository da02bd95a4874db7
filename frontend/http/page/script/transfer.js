// Conversations as files: Markdown to read, JSON to keep, to import again and for other programs.

function asMarkdown(conversation) {
  const parts = [`# ${conversation.title}`];
  for (const message of way(conversation)) {
    if (message.role === "user") parts.push("## Question", asTold(message).content);
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

// With the shown messages in OpenAI's form beside the whole tree.
const exported = (conversation) => ({ ...conversation, openai: way(conversation).filter((message) => !hasFailed(message)).map(asTold) });

const asJson = (list) => JSON.stringify({ penstock: 1, system: $("system").value, conversations: list.map(exported) }, null, 1);

function save(name, kind, text) {
  const address = URL.createObjectURL(new Blob([text], { type: kind }));
  make("a", { href: address, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(address), 10000);
}

const fileName = (conversation, ending) =>
  `${conversation.title.replace(/[^\p{L}\p{N}]+/gu, "-").replace(/^-|-$/g, "").slice(0, 50) || "conversation"}.${ending}`;

async function bringIn(files) {
  let number = 0;
  for (const file of files) {
    try {
      for (const each of read(JSON.parse(await file.text()))) {
        conversations.set(each.id, each);
        await keep(each);
        number++;
      }
    } catch {
      toast(`${file.name} holds no conversations that this page has exported, nor messages in OpenAI's form.`);
    }
  }
  if (number) toast(`${count(number, "conversation")} imported.`);
  forgetOldest();
  showSidebar();
}

// What this page has written, or a list of messages as OpenAI's clients keep them.
function read(body) {
  if (body?.penstock) return body.conversations.map(checked);
  const messages = Array.isArray(body) ? body : body.messages;
  const conversation = begun();
  for (const { role, content } of messages) if (["user", "assistant"].includes(role)) add(conversation, { role, content: contentText(content) });
  if (!conversation.leaf) throw new Failure("It is empty.");
  return [conversation];
}

// A content in parts is their text.
const contentText = (content) => Array.isArray(content) ? content.map((part) => part?.text ?? "").join("\n") : String(content ?? "");

// Only what this page knows, of the kinds that it expects. Each message stands behind the one that it follows: a ring has no
// first, and would never be shown.
function checked({ title, isNamed, created, updated, leaf, messages }) {
  const conversation = { ...begun(), title: String(title ?? ""), isNamed: isNamed === true, created: Number(created), updated: Number(updated), leaf: String(leaf) };
  const before = new Set([null]);
  conversation.messages = messages.map((message) => {
    if (!["user", "assistant", "tool"].includes(message.role)) throw new Failure("A message has no role.");
    if (!before.has(message.parent) || before.has(String(message.id))) throw new Failure("A message follows none.");
    before.add(String(message.id));
    const { isRunning, phase, tokens, usage, ...kept } = message;
    const files = Array.isArray(kept.files) ? { files: kept.files.map(({ name, text }) => ({ name: String(name), text: String(text) })) } : {};
    const calls = Array.isArray(kept.calls) ? { calls: kept.calls.map(({ id, name, text }) => ({ id: String(id), name: String(name), text: String(text) })) } : {};
    return { ...kept, ...files, ...calls, ...(usage?.prompt_tokens ? { usage } : {}), id: String(kept.id), content: String(kept.content ?? "") };
  });
  if (!byId(conversation, conversation.leaf)) throw new Failure("It has no newest message.");
  return conversation;
}

$("export-markdown").onclick = () => save(fileName(current, "md"), "text/markdown", asMarkdown(current));
$("export-json").onclick = () => save(fileName(current, "json"), "application/json", asJson([current]));
$("export-all").onclick = () => {
  if (conversations.size) save("penstock-conversations.json", "application/json", asJson([...conversations.values()]));
  else toast("There is no conversation yet.");
};
$("import").onclick = () => $("import-files").click();
$("import-files").onchange = () => {
  bringIn([...$("import-files").files]);
  $("import-files").value = "";
};
