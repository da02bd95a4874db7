// A conversation as it is seen: its messages in their order, each with what can be done with it.

const shown = new Map(); // elements by message

function showConversation() {
  shown.clear();
  $("messages").replaceChildren(...(current.system ? [systemPart()] : []), ...way(current).map(element));
  if (!current.leaf) $("messages").append(welcome());
  showBar();
  $("messages").scrollTop = $("messages").scrollHeight;
}

function welcome() {
  return make("div", { class: "welcome" }, make("p", { class: "large" }, "What would you like to ask?"),
    make("p", {}, "Conversations are stored in this browser. Drop or paste text files here, and pictures or videos if the model takes them."));
}

function showBar() {
  $("title").textContent = current.title || "New conversation";
  for (const name of ["rename", "export-markdown", "export-json"]) $(name).hidden = !current.leaf;
  const usage = way(current).findLast((message) => message.usage)?.usage;
  const most = card()?.max_model_len;
  const used = usage ? usage.prompt_tokens + usage.completion_tokens : 0;
  const whole = most ? `${used.toLocaleString("en")} of ${count(most, "token")}` : count(used, "token");
  $("context").textContent = !usage ? "" : isNarrow() && most ? `${figure(used)} / ${figure(most)}` : whole;
  $("context").title = `Context length: ${whole}`;
  $("context").classList.toggle("wrong", Boolean(most) && used > 0.9 * most);
  $("send").hidden = answering.has(current.id);
  $("stop").hidden = !answering.has(current.id);
}

function element(message) {
  const made = make("article", { class: `message ${message.role}`, "data-id": message.id });
  shown.set(message.id, made);
  fill(made, message);
  return made;
}

// Everything of a message anew, where it is on show.
function refresh(message) {
  const made = shown.get(message.id);
  if (made) fill(made, message);
}

function fill(made, message) {
  const parts = { user: userParts, assistant: answerParts, tool: resultParts }[message.role](message);
  made.setAttribute("aria-busy", String(Boolean(message.isRunning)));
  made.replaceChildren(...parts.filter(Boolean));
}

// Of a conversation that has one of its own.
function systemPart() {
  const leave = () => {
    delete current.system;
    keep(current);
    showConversation();
  };
  return make("details", { class: "message system" }, make("summary", {}, "System prompt of this conversation"), make("pre", {}, current.system),
    make("button", { type: "button", onclick: leave }, "Use the one from the settings instead"));
}

function userParts(message) {
  const files = (message.files ?? []).map(({ name, text }) =>
    make("details", { class: "file" }, make("summary", {}, `${name} · ${count(text.length, "character")}`), make("pre", {}, text)));
  const pictures = message.pictures?.length ? [make("div", { class: "pictures" }, ...message.pictures.map(pictureButton))] : [];
  const body = make("div", { class: "body" }, ...pictures, ...files, message.content);
  const actions = [copyButton(() => message.content), iconButton("pencil", "Edit and ask again", () => edit(message))];
  return [body, tools(message, actions)];
}

function resultParts(message) {
  return [make("details", { class: "result" }, make("summary", {}, `Result of ${message.name}`), make("pre", {}, message.content))];
}

function answerParts(message) {
  const body = shown.get(message.id)?.querySelector(":scope > .markdown") ?? make("div", { class: "body markdown" }); // drawn already
  showMarkdown(body, message.content);
  const isLast = current.leaf === message.id;
  return [
    message.thought ? thought(message) : null,
    body,
    ...(message.calls ?? []).map((call) => make("pre", { class: "call" }, `${call.name}(${call.text})`)),
    message.isRunning ? progress(message) : null,
    message.error ? complaint(message) : null,
    message.tokens?.length ? probabilities(message.tokens) : null,
    message.isRunning ? null : tools(message, actionsOn(message, isLast), make("small", {}, summary(message))),
    isLast && message.calls?.length && !message.isRunning ? resultForm(message) : null,
  ];
}

function actionsOn(message, isLast) {
  const isCut = isLast && !message.error && ["length", "stopped"].includes(message.ending) && message.content;
  return [
    message.content ? copyButton(() => message.content) : null,
    message.error ? null : iconButton("retry", "Try again", () => retry(message)),
    message.content ? iconButton("pencil", "Edit this answer", () => edit(message)) : null,
    isCut ? iconButton("forward", "Continue this answer", () => goOn(message)) : null,
  ];
}

function copyButton(textOf) {
  const button = iconButton("copy", "Copy", () => copy(textOf(), button));
  return button;
}

function tools(message, actions, ...further) {
  const all = branches(current, message);
  return make("footer", {}, ...(all.length > 1 ? [chooser(message, all)] : []), ...actions.filter(Boolean), ...further);
}

function chooser(message, all) {
  const at = all.indexOf(message);
  const to = (name, label, index) => {
    const button = iconButton(name, label, () => {
      if (answering.has(current.id)) return;
      choose(current, all[index]);
      keep(current);
      showConversation();
      shown.get(all[index].id)?.scrollIntoView({ block: "nearest" });
    });
    button.disabled = !all[index];
    return button;
  };
  return make("span", { class: "branches" }, to("left", "Previous version", at - 1), `${at + 1} / ${all.length}`, to("right", "Next version", at + 1));
}

function thought(message) {
  const words = message.thoughtSeconds === undefined ? "Thinking…" : `Thought for ${seconds(message.thoughtSeconds)}`;
  const details = make("details", { class: "thought", open: Boolean(message.isOpen) }, make("summary", {}, words), make("div", {}, message.thought));
  details.addEventListener("toggle", () => { message.isOpen = details.open; });
  return details;
}

function complaint(message) {
  const again = make("button", { type: "button", onclick: () => retry(message) }, icon("retry"), " Try again");
  return make("div", { class: "complaint", role: "alert" }, make("p", {}, message.error),
    make("p", { class: "note" }, "This question and its answer are not sent to the model later."), again);
}

function progress(message) {
  return make("p", { class: "progress" }, make("span", { class: "bar" }), make("span", { class: "words" }, message.phase ?? ""));
}

function summary({ content, thought, calls, usage, firstToken, answerSeconds, ending, model }) {
  const parts = [];
  if (model && cards.length > 1) parts.push(model);
  if (usage) {
    parts.push(`${count(usage.prompt_tokens, "token")} in, ${usage.completion_tokens.toLocaleString("en")} out`);
    if (usage.completion_tokens > 4 && answerSeconds > 0.02) parts.push(`${((usage.completion_tokens - 1) / answerSeconds).toFixed(0)} tokens/s`);
  }
  if (firstToken !== undefined) parts.push(`first token after ${seconds(firstToken)}`);
  const words = { stop: "", error: "", length: thought && !content && !calls?.length ? "stopped at max tokens, while thinking" : "stopped at max tokens", tool_calls: "calls a tool", left: "page closed" };
  parts.push(Object.hasOwn(words, ending) ? words[ending] : ending ?? "");
  return parts.filter(Boolean).join(" · ");
}

// --- what is seen of a long conversation -----------------------------------------------------------------------------

let isFollowing = true; // the newest line stays in view until a person scrolls up

const distance = () => $("messages").scrollHeight - $("messages").scrollTop - $("messages").clientHeight;

function follow() {
  if (isFollowing) $("messages").scrollTop = $("messages").scrollHeight;
  $("newest").hidden = isFollowing || distance() < 80;
}

$("messages").addEventListener("scroll", () => {
  isFollowing = distance() < 80;
  $("newest").hidden = isFollowing;
});
$("newest").onclick = () => {
  isFollowing = true;
  follow();
};
new ResizeObserver(follow).observe($("messages"));
