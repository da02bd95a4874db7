// What the engine does: plots of its figures, and the requests that are being answered, each with a button to stop it.

const EVERY = 1000, HOUR = 3600000, MINUTE = 60000; // milliseconds between two looks, of which an hour is kept

const rate = (name) => (now, before) => (now[name] - before[name]) / ((now.at - before.at) / 1000);
const ratio = (above, below, factor = 1) => (now, before) => {
  const base = now[below] - before[below];
  return base > 0 ? factor * (now[above] - before[above]) / base : null;
};
const mean = (name) => ratio(`${name}_sum`, `${name}_count`, 1000);
const PLOTS = [
  { title: "Tokens per second", unit: "/s", series: [["out", rate("generated_tokens_total")], ["in", rate("prompt_tokens_total")]] },
  { title: "Requests", unit: "", isWhole: true, series: [["running", (now) => now.requests_running], ["waiting", (now) => now.requests_waiting]] },
  { title: "Time to first token", unit: " ms", series: [["", mean("time_to_first_token_seconds")]] },
  { title: "Step", unit: " ms", series: [["", ratio("step_seconds_total", "steps_total", 1000)]] },
  { title: "KV blocks in use", unit: " %", most: 100, series: [["", (now) => 100 * now.kv_blocks_used / now.kv_blocks]] },
  { title: "Prompt found in cache", unit: " %", most: 100, series: [["", ratio("prefix_hit_tokens_total", "prompt_tokens_total", 100)]] },
  { title: "Drafts accepted", unit: " %", most: 100, needs: "draft_tokens_total", series: [["", ratio("accepted_tokens_total", "draft_tokens_total", 100)]] },
];
let plots = [];
let before = null;
let totals = []; // figures of one look a minute, the oldest first: what the last hour came to is the difference

function makePlots() {
  plots = PLOTS.map((plot) => new Plot(plot));
  $("plots").replaceChildren(...plots.map((plot) => plot.figure));
  before = null;
  totals = [];
  showPlots({});
  for (const plot of plots) plot.draw();
}

// A plot of what many models never have is shown once there is some.
function showPlots(now) {
  for (const { figure, needs } of plots) figure.hidden = needs !== undefined && !now[needs];
}

// All plots tell of the same moment.
function pointAt(time) {
  for (const plot of plots) {
    plot.pointed = time;
    plot.draw();
  }
}

function figuresOf(text) {
  const found = { time_to_first_token_seconds_sum: 0, time_to_first_token_seconds_count: 0 };
  for (const line of text.split("\n")) {
    const match = /^penstock_(\w+)\{model="((?:[^"\\]|\\.)*)"\} (\S+)$/.exec(line);
    if (match && match[2].replace(/\\(.)/g, "$1") === $("model").value) found[match[1]] = Number(match[3]);
  }
  return found;
}

async function measure() {
  const now = { ...figuresOf(await (await ask("/metrics")).text()), at: performance.now() };
  if (!("steps_total" in now)) {
    before = null; // it isn't loaded
    return;
  }
  showPlots(now);
  if (before && now.at - before.at < EVERY / 2) return; // two answers that came together would make a rate of their own
  if (before && now.steps_total >= before.steps_total) {
    for (const plot of plots) plot.add(now.at, plot.series.map(([, value]) => valid(value(now, before))));
    if (!$("view-live").hidden) for (const plot of plots) plot.draw();
  }
  before = now;
  keepTotals(now);
}

const valid = (value) => value === null || Number.isNaN(value) ? null : Math.max(0, value);

// Measured whether or not it is looked at, so that the last minutes are there; not while the page is in the background.
let isWrong = false;
let numLooks = 0;

async function look() {
  if (document.hidden || (isWrong && $("key-dialog").open)) return;
  try {
    await measure();
    if (!$("view-live").hidden) await listRequests();
    if (isWrong || (card()?.is_loaded === false && numLooks++ % 3 === 0)) await listModels();
    isWrong = false;
  } catch (error) {
    before = null;
    isWrong = true;
    say(sentenceOf(error), true);
  }
}

// --- the last hour ----------------------------------------------------------------------------------------------------

function keepTotals(now) {
  if (totals.length && now.steps_total < totals.at(-1).steps_total) totals = []; // it was started again
  if (!totals.length || now.at - totals.at(-1).at >= MINUTE) totals.push(now);
  while (totals[0].at < now.at - HOUR) totals.shift();
}

// Sums up the last hour when no request is running.
function lastHour() {
  if (!before || !totals.length) return "";
  const since = (name) => before[name] - totals[0][name];
  const answers = since("time_to_first_token_seconds_count");
  const time = seconds((before.at - totals[0].at) / 1000);
  if (!(answers > 0)) return ` No requests in the last ${time}.`;
  return ` In the last ${time}: ${count(answers, "answer")}, ${count(since("generated_tokens_total"), "token")}, first token after ${
    seconds(since("time_to_first_token_seconds_sum") / answers)} on average.`;
}

// Over a reload of the page, too. Times count from when a page was opened.
const KEPT_FIGURES = "penstock.figures";

addEventListener("pagehide", () => {
  const kept = { model: $("model").value, origin: performance.timeOrigin, points: plots.map((plot) => plot.points), totals };
  try {
    sessionStorage.setItem(KEPT_FIGURES, JSON.stringify(kept));
  } catch { /* no room: the plots begin anew */ }
});

function readFigures() {
  try {
    const { model, origin, points, totals: earlier } = JSON.parse(sessionStorage.getItem(KEPT_FIGURES));
    const shift = origin - performance.timeOrigin;
    if (model !== $("model").value || points.length !== plots.length || !Number.isFinite(shift)) return;
    const recent = (list) => list.map((each) => ({ ...each, at: each.at + shift })).filter(({ at }) => at > performance.now() - HOUR);
    plots.forEach((plot, index) => { plot.points = recent(points[index]); });
    totals = recent(earlier);
  } catch { /* nothing was kept, or by another version of this page */ }
}

// --- requests ---------------------------------------------------------------------------------------------------------

const STATES = { loading: "loading the model", waiting: "queued", prompt: "reading the prompt", generating: "answering" };
const KINDS = { "/v1/chat/completions": "chat", "/v1/completions": "completion", "/v1/responses": "response",
  "/v1/messages": "message", "/api/chat": "chat", "/api/generate": "completion" };

async function listRequests() {
  const { data } = await (await ask("/v1/requests")).json();
  $("no-requests").hidden = data.length > 0;
  $("no-requests").textContent = `No request is running.${lastHour()}`;
  const rows = new Map([...$("requests").rows].map((row) => [row.dataset.id, row]));
  for (const each of data) {
    const row = rows.get(each.id) ?? requestRow(each);
    rows.delete(each.id);
    showRequest(row, each);
    if (!row.isConnected) $("requests").append(row);
  }
  for (const row of rows.values()) row.remove();
}

// Made once, so that a button that has the focus keeps it.
function requestRow({ id }) {
  const stopIt = make("button", { type: "button", class: "stop", "aria-label": `Stop ${id}` }, icon("square"), "Stop");
  stopIt.onclick = async () => {
    stopIt.disabled = true;
    await ask(`/v1/requests/${encodeURIComponent(id)}`, { method: "DELETE" }).catch((error) => {
      if (error.status !== 404) toast(sentenceOf(error)); // it has ended meanwhile
    });
    look();
  };
  const row = make("tr", { "data-id": id });
  for (const name of ["id", "kind", "model", "state", "number", "number", "number", "number"]) row.append(make("td", { class: name }));
  row.cells[0].title = id;
  row.append(make("td", {}, stopIt));
  return row;
}

function showRequest(row, { id, endpoint, model, state, prompt_tokens, generated_tokens, seconds: age }) {
  const since = Number(row.dataset.since ?? (generated_tokens ? age : ""));
  if (generated_tokens && !row.dataset.since) Object.assign(row.dataset, { since: age, tokens: generated_tokens });
  const speed = age - since > 0.5 && since ? (generated_tokens - Number(row.dataset.tokens)) / (age - since) : null;
  const told = [`…${id.slice(-6)}`, KINDS[endpoint] ?? endpoint, model, STATES[state] ?? state, prompt_tokens.toLocaleString("en"),
    generated_tokens.toLocaleString("en"), speed === null ? "–" : figure(speed), seconds(age)];
  told.forEach((text, index) => { row.cells[index].textContent = text; });
  row.cells[3].dataset.state = state;
}
