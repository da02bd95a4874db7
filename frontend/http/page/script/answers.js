// Answers as they come: asked for, taken apart, shown at every frame, stopped, tried again.

const answering = new Map(); // by conversation: what stops it, and the message that grows
const KEEP_EVERY = 3000; // milliseconds, so that a page that is left loses little

function answer(conversation) {
  const message = add(conversation, { role: "assistant", model: $("model").value, isRunning: true });
  return run(conversation, message, () => request(conversation, message.parent));
}

// Another try, beside the first.
function retry(message) {
  if (answering.has(current.id)) return;
  current.leaf = message.parent;
  answer(current);
}

// The model takes its own unfinished words for the beginning.
function goOn(message) {
  if (answering.has(current.id)) return;
  Object.assign(message, { isRunning: true, ending: "" });
  run(current, message, () => {
    const { messages, ...fields } = request(current, message.id);
    return { ...fields, messages, add_generation_prompt: false, continue_final_message: true };
  });
}

function request(conversation, last) {
  return {
    ...(card() ? { model: card().id } : {}),
    messages: unlessUnseen(historyOf(conversation, last)),
    stream: true, stream_options: { include_usage: true },
    ...chatOptions(),
  };
}

async function run(conversation, message, requestOf) {
  const controller = new AbortController();
  answering.set(conversation.id, { controller, message });
  isFollowing = true;
  if (conversation === current) showConversation();
  showSidebar();
  const work = { start: performance.now(), first: null, controller };
  const clock = setInterval(() => tellPhase(message, work), 250);
  try {
    await keep(conversation);
    await take(conversation, message, work, requestOf());
  } catch (error) {
    settle(message, error, work);
  }
  clearInterval(clock);
  answering.delete(conversation.id);
  finish(conversation, message, work);
  if (message.status === 401 && await askForKey()) {
    listModels();
    if (current === conversation) retry(message);
  }
}

async function take(conversation, message, work, body) {
  let kept = performance.now();
  for await (const piece of events("/v1/chat/completions", body, work.controller.signal)) {
    message.usage = piece.usage ?? message.usage;
    const choice = piece.choices[0];
    if (!choice) continue;
    work.first ??= performance.now();
    merge(message, choice, work);
    drawSoon(conversation, message);
    if (performance.now() - kept > KEEP_EVERY) {
      kept = performance.now();
      keep(conversation);
    }
  }
}

function merge(message, { delta, finish_reason, logprobs }, work) {
  if (delta.reasoning_content) {
    work.thinking ??= performance.now();
    message.thought = (message.thought ?? "") + delta.reasoning_content;
  }
  if ((delta.content || delta.tool_calls || finish_reason) && work.thinking) {
    message.thoughtSeconds ??= (performance.now() - work.thinking) / 1000;
  }
  message.content += delta.content ?? "";
  for (const { index, id, function: called } of delta.tool_calls ?? []) {
    const call = (message.calls ??= [])[index] ??= { id, name: "", text: "" };
    call.name += called.name ?? "";
    call.text += called.arguments ?? "";
  }
  if (logprobs?.content) {
    (message.tokens ??= []).push(...logprobs.content.map(({ token, logprob, top_logprobs }) =>
      ({ token, logprob, top: top_logprobs.map((each) => ({ token: each.token, logprob: each.logprob })) })));
  }
  message.ending = finish_reason ?? message.ending;
}

function settle(message, error, { controller, first }) {
  if (controller.signal.aborted) message.ending = "stopped";
  else {
    message.ending = "error";
    message.error = sentenceOf(error, first !== null);
    message.status = error.status;
  }
}

function finish(conversation, message, { start, first }) {
  delete message.isRunning;
  delete message.phase;
  const end = performance.now();
  if (first !== null) Object.assign(message, { firstToken: (first - start) / 1000, answerSeconds: (end - first) / 1000 });
  if (message.thought) message.thoughtSeconds ??= (end - (first ?? start)) / 1000;
  keep(conversation);
  if (conversation === current) {
    refresh(message);
    showBar();
    follow();
  }
  showSidebar();
}

function stop() {
  answering.get(current.id)?.controller.abort();
}

// --- while it grows --------------------------------------------------------------------------------------------------

let isDue = false;

function drawSoon(conversation, message) {
  if (isDue || conversation !== current) return;
  isDue = true;
  requestAnimationFrame(() => {
    isDue = false;
    if (message.isRunning && shown.has(message.id)) grow(message);
  });
}

// Only what grows is touched, so that what is selected or folded open elsewhere stays.
function grow(message) {
  const made = shown.get(message.id);
  const folded = made.querySelector(".thought");
  const calls = made.querySelectorAll(".call").length;
  if ((message.thought && !folded) || calls !== (message.calls ?? []).length) fill(made, message);
  else if (folded) {
    extend(folded.lastChild, message.thought);
    if (message.thoughtSeconds !== undefined) folded.firstChild.textContent = `Thought for ${seconds(message.thoughtSeconds)}`;
  }
  growMarkdown(made.querySelector(".body"), message.content);
  (message.calls ?? []).forEach((call, index) => { made.querySelectorAll(".call")[index].textContent = `${call.name}(${call.text})`; });
  made.querySelector(".progress")?.classList.toggle("quiet", Boolean(message.content || message.thought || message.calls));
  follow();
}

// Text that has grown: only what is new is put behind what is shown.
function extend(place, text) {
  const shownText = place.firstChild;
  if (shownText) shownText.appendData(text.slice(shownText.length));
  else place.append(text);
}

// Until the first token: what is being waited for, and for how long.
async function tellPhase(message, work) {
  if (work.first !== null) return;
  const waited = (performance.now() - work.start) / 1000;
  const one = cards.find((each) => each.id === message.model);
  if (one && !one.is_loaded && !work.isLooking) {
    work.isLooking = true;
    await listModels();
    setTimeout(() => { work.isLooking = false; }, 1000);
  }
  if (waited < 0.5) return;
  message.phase = one && !one.is_loaded ? `${one.id} is loading · ${Math.floor(waited)} s` : `Reading the prompt · ${Math.floor(waited)} s`;
  const words = shown.get(message.id)?.querySelector(".progress .words");
  if (words) words.textContent = message.phase;
}
