// The dialog of the chosen model: its facts, and buttons to load or unload it.

const STATES_OF_MODELS = { ok: "ready", ready: "ready", unloaded: "not loaded; loads on first use", loading: "loading", restarting: "restarting", failed: "failed to load", silent: "not responding", unloading: "unloading" };
const MODELS_EVERY = 1000; // milliseconds between two looks while the dialog is open

async function showModel() {
  const one = card();
  if (!one) return;
  const dialog = $("model-dialog");
  $("model-told").textContent = "";
  if (!dialog.open) dialog.showModal();
  while (dialog.open) {
    await listModels();
    await fillModel(card() ?? one);
    await new Promise((resolve) => setTimeout(resolve, MODELS_EVERY));
  }
}

async function fillModel(one) {
  const health = await fetch("/health").then((reply) => reply.json(), () => ({}));
  const state = health.models?.[one.parent ?? one.id] ?? (one.is_loaded ? "ok" : "unloaded");
  $("model-title").textContent = one.id;
  const defaults = Object.entries(one.default_parameters ?? {}).map(([name, value]) => `${name} ${value}`).join(", ");
  const facts = {
    State: STATES_OF_MODELS[state] ?? state,
    Reason: health.reasons?.[one.parent ?? one.id],
    Context: one.max_model_len && count(one.max_model_len, "token"),
    Input: one.architecture?.input_modalities.join(", "),
    "Adapter of": one.parent,
    "Default sampling": defaults,
  };
  $("model-details").replaceChildren(...Object.entries(facts).filter(([, fact]) => fact).flatMap(([name, fact]) => [make("dt", {}, name), make("dd", {}, fact)]));
  $("load-model").hidden = one.is_loaded || state === "loading" || state === "restarting";
  $("unload-model").hidden = !one.is_loaded;
}

async function changeModel(work, words) {
  const one = card();
  $("model-told").textContent = words;
  try {
    await ask(`/models/${work}`, { method: "POST", body: JSON.stringify({ model: one.id }) });
    $("model-told").textContent = "";
  } catch (error) {
    $("model-told").textContent = sentenceOf(error);
  }
}

$("open-model").onclick = showModel;
$("load-model").onclick = () => changeModel("load", "Loading…");
$("unload-model").onclick = () => changeModel("unload", "Unloading…");

// Show the model's default in each empty field.
function showDefaults() {
  const defaults = card()?.default_parameters ?? {};
  for (const [name, , { placeholder }] of NUMBERS) {
    const own = defaults[name];
    $(name).placeholder = own === undefined ? placeholder ?? "Model default" : own === 0 && name === "top_k" ? "Model default: off" : `Model default: ${own}`;
  }
}
