// The settings: stored in this browser and sent with every request. A field left empty keeps the model's default.

// Some ranges are narrower than what the server takes.
const NUMBERS = [
  ["temperature", "Temperature", { max: 5, step: 0.1 }],
  ["top_p", "Top p", { min: 0.01, step: 0.01 }],
  ["top_k", "Top k", { step: 1 }],
  ["min_p", "Min p", { step: 0.01 }],
  ["max_tokens", "Max tokens", { step: 1, placeholder: "No limit" }],
  ["seed", "Seed", { step: 1, placeholder: "Random" }],
  ["repetition_penalty", "Repetition penalty", { min: 0.01, max: 10, step: 0.05 }],
  ["presence_penalty", "Presence penalty", { step: 0.1 }],
  ["frequency_penalty", "Frequency penalty", { step: 0.1 }],
].map(([name, label, own]) => [name, label, { ...BOUNDS[name], ...own }]);
const CHOICES = {
  thinking: ["Thinking", { "": "Model default", on: "On", off: "Off" }],
  reasoning_effort: ["Reasoning effort", { "": "Model default", low: "Low", medium: "Medium", high: "High" }],
  format: ["Answer format", { "": "Text", json_object: "JSON", json_schema: "JSON with a schema" }],
  top_logprobs: ["Token probabilities", { "": "Hidden", 3: "With 3 alternatives", 8: "With 8 alternatives" }],
  theme: ["Theme", { "": "System default", light: "Light", dark: "Dark" }],
};
const TEXTS = {
  system: ["System prompt", "Instructions for the model", 4],
  stop: ["Stop strings", "One per line", 2],
  schema: ["JSON schema", '{"type": "object", …}', 4],
  tools: ["Tools", "JSON list in OpenAI's format", 4],
  further: ["Extra fields", 'JSON, such as {"guided_regex": "[0-9]+"}', 2],
};
const SECTIONS = [
  ["", ["system", "temperature", "top_p", "max_tokens", "seed", "thinking"]],
  ["More sampling", ["top_k", "min_p", "repetition_penalty", "presence_penalty", "frequency_penalty", "stop", "reasoning_effort"]],
  ["Format and tools", ["format", "schema", "tools", "further", "top_logprobs"]],
  ["Appearance", ["theme"]],
];
const KEPT_SETTINGS = "penstock.settings";

const isNumber = (name) => NUMBERS.some(([each]) => each === name);
const SETTINGS = SECTIONS.flatMap(([, names]) => names);

function makeSetting(name) {
  let label, field;
  if (isNumber(name)) {
    const [, words, limits] = NUMBERS.find(([each]) => each === name);
    [label, field] = [words, make("input", { id: name, type: "number", placeholder: "Model default", ...asTexts(limits) })];
  } else if (name in CHOICES) {
    const [words, choices] = CHOICES[name];
    const order = Object.keys(choices).sort((one, other) => one.length - other.length || 0);
    const options = ["", ...order.filter(Boolean)].map((value) => make("option", { value }, choices[value]));
    [label, field] = [words, make("select", { id: name }, ...options)];
  } else {
    const [words, placeholder, rows] = TEXTS[name];
    [label, field] = [words, make("textarea", { id: name, placeholder, rows: String(rows), spellcheck: name === "system" ? "true" : "false" })];
  }
  field.addEventListener("input", keepSettings);
  return make("label", { class: isNumber(name) ? "small" : "" }, label, field);
}

const asTexts = (attributes) => Object.fromEntries(Object.entries(attributes).map(([key, value]) => [key, String(value)]));

function makeSettings() {
  const close = iconButton("close", "Close settings", () => toggleDrawer("settings", false));
  const sections = SECTIONS.map(([title, names]) => {
    const fields = make("div", { class: "fields" }, ...names.map(makeSetting));
    return title ? make("details", { open: title === "Appearance" }, make("summary", {}, title), fields) : fields;
  });
  const reset = make("button", { type: "button", onclick: resetSettings }, icon("retry"), " Reset");
  $("settings").append(make("div", { class: "row head" }, make("h2", {}, "Settings"), close), ...sections, make("div", { class: "row" }, reset));
  const kept = stored(KEPT_SETTINGS);
  if (isObject(kept)) for (const name of SETTINGS) fillIn(name, kept[name]);
  showTheme();
}

// A value that the field doesn't offer leaves it empty.
function fillIn(name, value) {
  const field = $(name);
  field.value = asText(value) ?? "";
  if (field.selectedIndex === -1) field.value = "";
}

function stored(name) {
  try {
    return JSON.parse(localStorage.getItem(name));
  } catch {
    return null;
  }
}

function store(name, value) {
  try {
    localStorage.setItem(name, JSON.stringify(value));
  } catch {
    toast("This browser can't store settings for this page. They will be lost when it closes.");
  }
}

const settingValues = () => Object.fromEntries(SETTINGS.map((name) => [name, $(name).value]).filter(([, value]) => value !== ""));

function keepSettings() {
  store(KEPT_SETTINGS, settingValues());
  showTheme();
}

function resetSettings() {
  const before = settingValues();
  for (const name of SETTINGS) $(name).value = "";
  keepSettings();
  toast("All settings were reset.", "Undo", () => {
    for (const [name, value] of Object.entries(before)) $(name).value = value;
    keepSettings();
  });
}

function showTheme() {
  const theme = $("theme").value;
  if (theme) document.documentElement.dataset.theme = theme;
  else delete document.documentElement.dataset.theme;
}

// The request fields that all views share; throws a `Failure` where one can't be read.
function sampling() {
  const fields = {};
  for (const [name, label, limits] of NUMBERS) {
    if (!$(name).checkValidity()) throw new Failure(`${label} must be ${ranged(limits)}. Check the settings.`);
    if ($(name).value !== "") fields[name] = Number($(name).value);
  }
  const stops = $("stop").value.split("\n").filter(Boolean);
  if (stops.length) fields.stop = stops;
  if ($("format").value === "json_object") fields.response_format = { type: "json_object" };
  if ($("format").value === "json_schema")
    fields.response_format = { type: "json_schema", json_schema: { name: "answer", schema: json("schema", "an object", isObject) } };
  return { ...fields, ...($("further").value.trim() ? json("further", "an object", isObject) : {}) };
}

function ranged({ min, max, step }) {
  const kind = step === 1 ? "a whole number" : "a number";
  return max === undefined ? `${kind} of at least ${min}` : `${kind} from ${min} to ${max}`;
}

const isObject = (value) => typeof value === "object" && value !== null && !Array.isArray(value);

function json(name, kind, isRight) {
  const [label] = TEXTS[name];
  let value;
  try {
    value = JSON.parse($(name).value);
  } catch {
    throw new Failure(`${label}: not valid JSON. Check the settings.`);
  }
  if (!isRight(value)) throw new Failure(`${label} must be ${kind} in JSON. Check the settings.`);
  return value;
}

// The request fields of conversations.
function chatOptions() {
  const fields = sampling();
  if ($("tools").value.trim()) fields.tools = json("tools", "a list", Array.isArray);
  if ($("thinking").value) fields.chat_template_kwargs = { enable_thinking: $("thinking").value === "on", ...fields.chat_template_kwargs };
  if ($("reasoning_effort").value) fields.reasoning_effort = $("reasoning_effort").value;
  if ($("top_logprobs").value) Object.assign(fields, { logprobs: true, top_logprobs: Number($("top_logprobs").value) });
  return fields;
}
