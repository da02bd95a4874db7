// What the server is asked: its models, their state, answers as they come.

let cards = []; // of the models

const key = () => sessionStorage.getItem("penstock.key") ?? "";

async function ask(path, options = {}) {
  const headers = { ...(options.body ? { "Content-Type": "application/json" } : {}), ...(key() ? { Authorization: `Bearer ${key()}` } : {}) };
  const reply = await fetch(path, { ...options, headers });
  if (reply.ok) return reply;
  throw failureOf(reply.status, await reply.json().then((body) => body.error?.message ?? "", () => undefined));
}

// The pieces of a stream. It ends with [DONE], or has broken off.
async function* events(path, body, signal) {
  const reply = await ask(path, { method: "POST", body: JSON.stringify(body), signal });
  const reader = reply.body.pipeThrough(new TextDecoderStream()).getReader();
  for (let rest = ""; ;) {
    const { value, done } = await reader.read();
    if (done) throw new Failure(BROKE_OFF);
    const told = (rest + value).split("\n\n");
    rest = told.pop();
    for (const each of told) {
      const data = each.slice(each.indexOf("data: ") + 6);
      if (data === "[DONE]") return;
      const piece = JSON.parse(data);
      if (piece.error) throw failureOf(Number(piece.error.code) || (piece.error.code === "request_stopped" ? 499 : 500), piece.error.message);
      yield piece;
    }
  }
}

async function askForKey() {
  const dialog = $("key-dialog");
  if (dialog.open) return false;
  $("key").value = "";
  dialog.showModal();
  await new Promise((resolve) => dialog.addEventListener("close", resolve, { once: true }));
  if (dialog.returnValue !== "given" || !$("key").value) return false;
  sessionStorage.setItem("penstock.key", $("key").value);
  return true;
}

const card = () => cards.find((each) => each.id === $("model").value);

async function listModels() {
  try {
    cards = (await (await ask("/v1/models")).json()).data;
    showModels();
    showWhatIsTaken();
    showDefaults();
    say(await stateOfModel());
  } catch (error) {
    say(sentenceOf(error), true);
    if (error.status === 401 && await askForKey()) await listModels();
  }
}

// Nobody knows of one that isn't loaded.
const writesText = (each) => each.architecture?.output_modalities?.includes("text") ?? true;

const labelOf = (each) => {
  if (!writesText(each)) return `${each.id} (gives ${each.architecture.output_modalities.join(", ")})`;
  return each.is_loaded ? each.id : `${each.id} (not loaded)`;
};

// Only what has changed, so that a list that is open stays open.
function showModels() {
  const chosen = $("model").value || localStorage.getItem("penstock.model");
  const labels = cards.map(labelOf);
  if ([...$("model").options].map((option) => option.textContent).join("\n") === labels.join("\n")) return;
  const options = cards.map((each, index) => make("option", { value: each.id, disabled: !writesText(each) }, labels[index]));
  $("model").replaceChildren(...options);
  const choice = cards.find((each) => each.id === chosen && writesText(each)) ?? cards.find(writesText);
  $("model").value = choice?.id ?? "";
}

// Nothing where it is ready, and where an older server doesn't tell.
async function stateOfModel() {
  const one = card();
  if (!one) return cards.length ? "No model here writes text." : "No model is served.";
  if (one.is_loaded) return "";
  const told = await fetch("/health").then((reply) => reply.json(), () => ({}));
  const state = told.models?.[one.id];
  if (state === "loading" || state === "restarting") return `${one.id} is loading`;
  if (state !== "failed") return "";
  return `${one.id} can't be loaded: ${told.reasons?.[one.id] ?? "see the server's log."}`;
}

function say(sentence, isWrong = false) {
  if ($("state").textContent !== sentence) $("state").textContent = sentence; // told once to who listens
  $("state").title = sentence;
  $("state").classList.toggle("wrong", isWrong);
}
