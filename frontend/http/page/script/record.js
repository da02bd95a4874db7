// Conversations as they may be trusted: whatever stands in a file or was stored before, each field is of the kind that this page
// expects, or left out. Nothing else reads what comes from outside.

const MOST_TITLE = 120; // as many characters as its field takes
const MOST_AMOUNT = 1e14; // milliseconds since 1970 are less

// Each gives a value of its kind, or nothing.
const asText = (value) => typeof value === "string" || typeof value === "boolean" || Number.isFinite(value) ? String(value).toWellFormed() : undefined;
const asContent = (value) => Array.isArray(value) ? value.map((part) => asText(part?.text ?? part)).filter(Boolean).join("\n") : asText(value) ?? "";
const asFlag = (value) => value === true || undefined;
const asAmount = (value) => typeof value === "number" && value >= 0 && value <= MOST_AMOUNT ? value : undefined;
const asId = (value) => asText(value) || newId();
const asCount = (value) => Number.isInteger(value) ? asAmount(value) : undefined;
const asTime = (value) => asAmount(value) <= Date.now() ? value : Date.now();
const asLogprob = (value) => typeof value === "number" && !Number.isNaN(value) ? Math.min(value, 0) : undefined;
const orElse = (kind, otherwise) => (value) => kind(value) ?? otherwise;
const listOf = (kind) => (value) => Array.isArray(value) ? Array.from(value, kind).filter((each) => each !== undefined) : undefined;
const objectOf = (kinds, needed = Object.keys(kinds)) => (value) => {
  const found = isObject(value) ? fieldsOf(kinds, value) : {};
  return needed.every((name) => name in found) ? found : undefined;
};

function fieldsOf(kinds, value) {
  const read = Object.entries(kinds).map(([name, kind]) => [name, kind(value[name])]);
  return Object.fromEntries(read.filter(([, each]) => each !== undefined));
}

// A picture, or the frames of a video.
const PICTURE_FIELDS = { name: orElse(asText, "picture"), url: asPicture };
function asShown(value) {
  const frames = isObject(value) && value.frames !== undefined ? listOf(asPicture)(value.frames) : undefined;
  if (!frames) return objectOf(PICTURE_FIELDS)(value);
  const rate = asAmount(value.rate);
  return frames.length && frames.length === value.frames.length && rate ? { name: asText(value.name) ?? "video", url: frames[0], frames, rate } : undefined;
}

const TOKEN = { token: asText, logprob: asLogprob };
const OF_EACH_MESSAGE = { content: asContent, created: asTime };
const OF_MESSAGES = {
  user: {
    ...OF_EACH_MESSAGE,
    files: listOf(objectOf({ name: asText, text: asText })), pictures: listOf(asShown),
  },
  assistant: {
    ...OF_EACH_MESSAGE,
    model: asText, thought: asText, ending: asText, error: asText,
    thoughtSeconds: asAmount, firstToken: asAmount, answerSeconds: asAmount,
    isOpen: asFlag, isRunning: asFlag,
    usage: objectOf({ prompt_tokens: asCount, completion_tokens: asCount }),
    calls: listOf(objectOf({ id: asId, name: asText, text: orElse(asText, "") })),
    tokens: listOf(objectOf({ ...TOKEN, top: orElse(listOf(objectOf(TOKEN)), []) })),
  },
  tool: { ...OF_EACH_MESSAGE, call: asText, name: orElse(asText, "a tool") },
};

// Nothing where there is no message in it.
function asConversation(value) {
  if (!isObject(value)) return undefined;
  const { messages, standsFor } = asMessages(value.messages);
  if (!messages.length) return undefined;
  const system = asText(value.system)?.trim();
  return {
    ...begun(), messages,
    ...(typeof value.id === "string" && value.id ? { id: value.id } : {}),
    ...(system ? { system } : {}),
    title: asText(value.title)?.slice(0, MOST_TITLE) || titleOf(messages[0]),
    isNamed: value.isNamed === true, created: asTime(value.created), updated: asTime(value.updated),
    leaf: standsFor.get(asText(value.leaf)) ?? messages.at(-1).id,
  };
}

// Each message stands behind the one that it follows, and behind the last one before it where that isn't there or isn't taken.
// What follows a later one isn't taken: a ring has no first, and would never be shown.
function asMessages(value) {
  const list = Array.isArray(value) ? value.filter(isObject) : [];
  const ids = new Set(list.map(({ id }) => asText(id)));
  const messages = [];
  const standsFor = new Map([[undefined, null]]); // messages that are taken, by the ids of all that were read
  for (const each of list) {
    const id = asId(each.id), follows = asText(each.parent);
    if (standsFor.has(id) || ids.has(follows) && !standsFor.has(follows)) continue;
    const parent = standsFor.has(follows) ? standsFor.get(follows) : messages.at(-1)?.id ?? null;
    const message = asMessage(each);
    standsFor.set(id, message ? id : parent);
    if (message) messages.push({ ...message, id, parent });
  }
  return { messages, standsFor };
}

function asMessage(value) {
  if (typeof value.role !== "string" || !Object.hasOwn(OF_MESSAGES, value.role)) return undefined;
  const message = { role: value.role, ...fieldsOf(OF_MESSAGES[value.role], value) };
  return message.role === "user" && !message.content && !message.files?.length && !message.pictures?.length ? undefined : message;
}

// What was still coming when a page was left, or an export was made, has ended there.
function endRunning(conversation) {
  for (const message of conversation.messages) {
    if (!message.isRunning) continue;
    delete message.isRunning;
    if (message.content || message.thought) message.ending = "left";
    else Object.assign(message, { ending: "error", error: "The page was closed before an answer came." });
  }
  return conversation;
}
