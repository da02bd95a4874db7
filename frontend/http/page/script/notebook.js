// A text that the model goes on with as it stands, without a chat template: written on by both, undone step by step.

const KEPT_TEXT = "penstock.notebook";
const NOTEBOOK_TOKENS = 128; // where the settings name none
const earlier = [];
let notebookStop = null;

function tellNotebook(sentence, isWrong = false) {
  $("page-state").textContent = sentence;
  $("page-state").classList.toggle("wrong", isWrong);
}

async function writeOn() {
  const area = $("page-text");
  if (notebookStop || !area.value) return;
  earlier.push(area.value);
  notebookStop = new AbortController();
  showNotebook();
  const start = performance.now();
  let usage = null, ending = "";
  try {
    const body = { ...(card() ? { model: card().id } : {}), prompt: area.value, max_tokens: NOTEBOOK_TOKENS, stream: true,
      stream_options: { include_usage: true }, ...sampling() };
    tellNotebook(card()?.is_loaded === false ? `${card().id} is loading…` : "Reading…");
    for await (const piece of events("/v1/completions", body, notebookStop.signal)) {
      usage = piece.usage ?? usage;
      const choice = piece.choices[0];
      if (!choice) continue;
      ending = choice.finish_reason ?? ending;
      const isAtEnd = area.scrollHeight - area.scrollTop - area.clientHeight < 80;
      area.setRangeText(choice.text, area.value.length, area.value.length, "preserve");
      if (isAtEnd) area.scrollTop = area.scrollHeight;
      tellNotebook("Writing…");
    }
    const took = (performance.now() - start) / 1000;
    tellNotebook(`${count(usage.prompt_tokens, "token")} in, ${usage.completion_tokens} out in ${seconds(took)}${ending === "length" ? "" : " · the model ended the text"}`);
  } catch (error) {
    const isStopped = notebookStop.signal.aborted;
    tellNotebook(isStopped ? "Stopped." : sentenceOf(error, true), !isStopped);
    if (error.status === 401 && await askForKey()) listModels();
  }
  notebookStop = null;
  store(KEPT_TEXT, area.value);
  showNotebook();
}

function showNotebook() {
  $("continue").hidden = Boolean(notebookStop);
  $("halt").hidden = !notebookStop;
  $("undo").disabled = Boolean(notebookStop) || !earlier.length;
  $("page-text").readOnly = Boolean(notebookStop);
}

$("continue").onclick = writeOn;
$("halt").onclick = () => notebookStop?.abort();
$("undo").onclick = () => {
  $("page-text").value = earlier.pop();
  store(KEPT_TEXT, $("page-text").value);
  showNotebook();
};
$("page-text").addEventListener("keydown", (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) writeOn();
});
$("page-text").addEventListener("change", () => store(KEPT_TEXT, $("page-text").value));
$("page-text").value = asText(stored(KEPT_TEXT)) ?? "";
