// The field in which a question is written, and what its keys do.

$("ask").onsubmit = (event) => {
  event.preventDefault();
  const content = $("text").value.trim();
  if ((!content && !attached.length) || answering.has(current.id)) return;
  const pictures = attached.filter((file) => file.url), files = attached.filter((file) => !file.url);
  add(current, { role: "user", content, ...(files.length ? { files } : {}), ...(pictures.length ? { pictures } : {}) });
  $("text").value = "";
  attached = [];
  showFiles();
  fit();
  answer(current);
};

$("text").addEventListener("input", fit);
$("text").addEventListener("keydown", (event) => {
  if (event.isComposing) return;
  if (event.key === "Enter" && !event.shiftKey) {
    event.preventDefault();
    $("ask").requestSubmit();
  }
  if (event.key === "ArrowUp" && !$("text").value && !answering.has(current.id)) {
    const last = way(current).findLast((message) => message.role === "user");
    if (!last) return;
    event.preventDefault();
    edit(last);
  }
});
$("stop").onclick = stop;

// As high as what is written, up to a third of the window.
function fit() {
  $("text").style.height = "auto";
  $("text").style.height = `${Math.min($("text").scrollHeight + 2, innerHeight / 3)}px`;
}
