// The chosen model in a dialog: what is known of it, and whether it is loaded, which a person can change.

const STATES_OF_MODELS = { ok: "ready", ready: "ready", unloaded: "not loaded: it will be when it is asked", loading: "being loaded", restarting: "being started again", failed: "could not be loaded", silent: "its processes don't answer", unloading: "being unloaded" };
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
    Takes: one.architecture?.input_modalities.join(", "),
    "Adapter of": one.parent,
    Sampling: defaults,
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

// What a setting is that is left empty: the model's own number.
function showDefaults() {
  const defaults = card()?.default_parameters ?? {};
  for (const [name, , { placeholder }] of NUMBERS) {
    const own = defaults[name];
    $(name).placeholder = own === undefined ? placeholder ?? "model's own" : own === 0 && name === "top_k" ? "model's own: off" : `model's own: ${own}`;
  }
}
