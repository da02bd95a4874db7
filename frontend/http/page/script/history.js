// What a model is told of a conversation: its messages in OpenAI's form, without turns that failed.

function historyOf(conversation, last) {
  const told = [];
  for (const message of way(conversation, last)) {
    if (hasFailed(message)) while (told.length && told.at(-1).role !== "assistant") told.pop();
    else told.push(message);
  }
  return [...systemMessages(conversation), ...told.map(asTold)];
}

// The one that a conversation was imported with, else that of the settings.
const systemOf = (conversation) => conversation.system ?? $("system").value.trim();

const systemMessages = (conversation) => [systemOf(conversation)].filter(Boolean).map((content) => ({ role: "system", content }));

function asTold({ role, content, files, pictures, calls, call }) {
  if (role === "tool") return { role, content, tool_call_id: call };
  if (role === "user") {
    const text = [...(files ?? []).map(asBlock), content].filter(Boolean).join("\n\n");
    return { role, content: pictures?.length ? [...pictures.map(picturePart), ...(text ? [{ type: "text", text }] : [])] : text };
  }
  if (!calls?.length) return { role, content };
  return { role, content, tool_calls: calls.map(({ id, name, text }) => ({ id, type: "function", function: { name, arguments: text } })) };
}

// Fenced by more backticks than stand in it.
function asBlock({ name, text }) {
  const longest = Math.max(2, ...(text.match(/`+/g) ?? []).map((row) => row.length));
  const mark = "`".repeat(longest + 1);
  return `${name}:\n${mark}\n${text.replace(/\n$/, "")}\n${mark}`;
}
