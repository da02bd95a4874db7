// Conversations are trees of messages: an edit or another try is a branch beside the first, and one way down is shown.

const conversations = new Map(); // by id
let current = null;

const newId = () => Array.from(crypto.getRandomValues(new Uint8Array(9)), (byte) => byte.toString(36).padStart(2, "0")).join("");

const begun = () => ({ id: newId(), title: "", isNamed: false, created: Date.now(), updated: Date.now(), leaf: null, messages: [] });

function add(conversation, message) {
  const made = { id: newId(), parent: conversation.leaf, content: "", created: Date.now(), ...message };
  conversation.messages.push(made);
  conversation.leaf = made.id;
  conversation.updated = Date.now();
  if (!conversation.isNamed && message.role === "user" && !conversation.title) conversation.title = titleOf(message);
  if (!conversations.has(conversation.id)) {
    conversations.set(conversation.id, conversation);
    forgetOldest();
  }
  return made;
}

function titleOf({ content, files, pictures }) {
  const line = content.trim().split("\n")[0] || ([...(files ?? []), ...(pictures ?? [])][0]?.name ?? "");
  return line.length > 60 ? `${line.slice(0, 58)}…` : line;
}

function forgetOldest() {
  const byAge = [...conversations.values()].sort((one, other) => one.updated - other.updated);
  for (const each of byAge.slice(0, Math.max(0, byAge.length - MOST_CONVERSATIONS))) {
    conversations.delete(each.id);
    forget(each.id);
  }
}

const byId = (conversation, id) => conversation.messages.find((message) => message.id === id);

// From the first message to one of them, the newest by default.
function way(conversation, last = conversation.leaf) {
  const messages = new Map(conversation.messages.map((message) => [message.id, message]));
  const found = [];
  for (let message = messages.get(last); message; message = messages.get(message.parent)) found.push(message);
  return found.reverse();
}

const branches = (conversation, message) => conversation.messages.filter((each) => each.parent === message.parent);

// Show another branch, down to its newest message.
function choose(conversation, message) {
  let last = message;
  for (let next = last; next; next = conversation.messages.findLast((each) => each.parent === last.id)) last = next;
  conversation.leaf = last.id;
}

const hasFailed = (message) => message.role === "assistant" && (Boolean(message.error) || !(message.content || message.calls?.length || message.thought) && message.ending === "stopped");
