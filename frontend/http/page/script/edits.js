// Messages written anew: a question is asked again from there, an answer stands as it was corrected. What was stays beside it.

function edit(message) {
  if (answering.has(current.id)) return;
  const made = shown.get(message.id);
  const area = make("textarea", { class: "edited", "aria-label": "Message" });
  area.value = message.content;
  const isQuestion = message.role === "user";
  const done = () => area.value.trim() ? (isQuestion ? askAgain : correct)(message, area.value.trim()) : refresh(message);
  area.onkeydown = (event) => {
    if (event.key === "Escape") refresh(message);
    else if (event.key === "Enter" && (event.ctrlKey || event.metaKey || (isQuestion && !event.shiftKey)) && !event.isComposing) done();
    else return;
    event.preventDefault();
    event.stopPropagation();
  };
  made.replaceChildren(area, make("div", { class: "row" },
    make("button", { type: "button", class: "main", onclick: done }, isQuestion ? "Ask again" : "Save"),
    make("button", { type: "button", onclick: () => refresh(message) }, "Cancel")));
  area.focus();
}

function askAgain(message, content) {
  current.leaf = message.parent;
  add(current, { role: "user", content, files: message.files, pictures: message.pictures });
  answer(current);
}

function correct(message, content) {
  current.leaf = message.parent;
  add(current, { role: "assistant", content, thought: message.thought, thoughtSeconds: message.thoughtSeconds, calls: message.calls, model: message.model, ending: "edited" });
  keep(current);
  showConversation();
}

// What a tool would have answered: a person gives it, and the model goes on.
function resultForm(message) {
  const areas = message.calls.map((call) => make("textarea", { rows: "2", "aria-label": `Result of ${call.name}`, placeholder: `What ${call.name} returned` }));
  const give = make("button", { class: "main" }, "Send the result");
  return make("form", {
    class: "results",
    onsubmit: (event) => {
      event.preventDefault();
      if (answering.has(current.id)) return;
      message.calls.forEach((call, index) => add(current, { role: "tool", content: areas[index].value, call: call.id, name: call.name }));
      answer(current);
    },
  }, ...areas, give);
}
