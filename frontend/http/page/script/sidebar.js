// The list of conversations: the newest first, searched, renamed, deleted and brought back.

const DAY = 86400000;

function showSidebar() {
  const wanted = $("search").value.trim().toLowerCase();
  const found = [...conversations.values()].filter((each) => !wanted || matches(each, wanted)).sort((one, other) => other.updated - one.updated);
  const rows = [];
  let title = "";
  for (const each of found) {
    const next = ageOf(each.updated);
    if (next !== title) rows.push(make("h3", {}, title = next));
    rows.push(sidebarRow(each));
  }
  if (!rows.length) rows.push(make("p", { class: "note" }, wanted ? "No matches." : "No conversations yet."));
  $("conversations").replaceChildren(...rows);
}

function matches(conversation, wanted) {
  return [conversation.title, ...conversation.messages.map((message) => message.content)].some((text) => text.toLowerCase().includes(wanted));
}

function ageOf(time) {
  const days = Math.floor((new Date().setHours(24, 0, 0, 0) - time) / DAY);
  return days < 1 ? "Today" : days < 2 ? "Yesterday" : days < 8 ? "This week" : "Earlier";
}

function sidebarRow(conversation) {
  const open = make("button", { type: "button", class: "open", "aria-current": String(conversation === current), onclick: () => show(conversation) },
    answering.has(conversation.id) ? make("span", { class: "dot", title: "Answering" }) : "", conversation.title || "Untitled");
  return make("div", { class: "conversation", role: "listitem", "data-id": conversation.id }, open,
    iconButton("pencil", `Rename ${conversation.title}`, () => rename(conversation)),
    iconButton("trash", `Delete ${conversation.title}`, () => remove(conversation)));
}

function show(conversation) {
  current = conversation;
  sessionStorage.setItem("penstock.conversation", current.id);
  showConversation();
  showSidebar();
  if (isNarrow()) toggleDrawer("sidebar", false);
  if (!isTouched()) $("text").focus();
}

function rename(conversation) {
  const row = document.querySelector(`.conversation[data-id="${conversation.id}"]`);
  const field = make("input", { "aria-label": "Conversation name", maxlength: "120" });
  field.value = conversation.title;
  const done = (isKept) => {
    field.onblur = null;
    if (isKept && field.value.trim()) Object.assign(conversation, { title: field.value.trim(), isNamed: true });
    keep(conversation);
    showSidebar();
    showBar();
  };
  field.onblur = () => done(true);
  field.onkeydown = (event) => {
    if (event.key !== "Enter" && event.key !== "Escape") return;
    event.stopPropagation();
    done(event.key === "Enter");
  };
  row.replaceChildren(field);
  field.select();
}

function remove(conversation) {
  answering.get(conversation.id)?.controller.abort();
  conversations.delete(conversation.id);
  forget(conversation.id);
  if (conversation === current) show(begun());
  showSidebar();
  toast("Conversation deleted.", "Undo", () => {
    conversations.set(conversation.id, conversation);
    keep(conversation);
    show(conversation);
  });
}

$("new").onclick = () => show(begun());
$("search").addEventListener("input", showSidebar);
$("rename").onclick = () => {
  toggleDrawer("sidebar", true);
  rename(current);
};
