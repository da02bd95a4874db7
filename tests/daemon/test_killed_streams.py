"""Processes of models are killed under answers of every kind: nobody gets another answer for it."""

import json
import math
import os
import random
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest
from builders.adapters import adapter
from builders.daemon import RunningDaemon
from builders.mixed_requests import ADD_FORMAT, ADD_TOOLS
from builders.plugin_package import plugin_package
from builders.seeing_model import as_url, picture
from builders.watching import BOUND_SECONDS, module_of, wait_until

from penstock import BeamSearchParams, RequestOutput, SamplingParams
from penstock.frontend.models.model_names import BUNDLED

ROUNDS = 8  # the daemon pauses longer before each restart
KILLED = ("penstock.worker", "penstock.engine", "penstock.frontend.text.detokenizer")
CONFIG = """
[models.pocket]
model = "pocket"
max_model_len = 1024
kv_cache_memory = "64MiB"
[models.sight]
model = "pocket-sight"
max_model_len = 1024
kv_cache_memory = "64MiB"
"""
SEEN = [{"type": "text", "text": "What is it?"}, {"type": "image_url", "image_url": {"url": as_url(picture())}}]


def requests() -> Iterator[tuple[str, dict[str, Any]]]:
    """Twenty, each with a seed: ten kinds, streamed and whole."""
    long = {"ignore_eos": True, "max_tokens": 120, "temperature": 1}
    a_sum = [{"role": "user", "content": "What is 487 + 256?"}]
    chats: list[dict[str, Any]] = [
        {"messages": a_sum, **long},
        {"messages": a_sum, **long, "n": 3, "stop": ["77"], "logprobs": True, "top_logprobs": 2},
        {"messages": a_sum, "max_tokens": 200, "tools": ADD_TOOLS, "tool_choice": "required", "logit_bias": {"3": 1}},
        {"messages": a_sum, "max_tokens": 100, "response_format": ADD_FORMAT, "frequency_penalty": 0.5},
        {"messages": [{"role": "user", "content": SEEN}], **long, "model": "sight", "logprobs": True},
    ]
    kinds = [("/v1/chat/completions", chat) for chat in chats]
    kinds.append(("/v1/completions", {"prompt": ["Count: 1 2 3", "ABC"], **long, "logprobs": 1, "echo": True}))
    kinds.append(("/v1/completions", {"prompt": "Once", **long, "n": 2, "guided_regex": "[a-z ]+"}))
    responses = {"input": "What is 487 + 256?", "ignore_eos": True, "max_output_tokens": 120}
    kinds.append(("/v1/responses", responses))
    kinds.append(("/v1/messages", {"messages": a_sum, **long, "thinking": {"type": "enabled"}}))
    options = {"ignore_eos": True, "num_predict": 120, "seed": 9}
    kinds.append(("/api/chat", {"messages": a_sum, "options": options}))
    for seed, (path, body) in enumerate(kinds):
        for is_streamed in (True, False):
            drawn = {} if "options" in body else {"seed": seed}
            yield path, {"model": "pocket", "stream": is_streamed, **drawn, **body}


class Progress:
    """Counts what all streams have said, and kills a process once that is so much.

    Events are not counted: on a busy machine an answer comes in a quarter as many.
    """

    def __init__(self, most: float = math.inf, victim: int = 0) -> None:
        self.counted, self._most, self._victim, self._lock = 0, most, victim, threading.Lock()

    def note(self, length: int) -> None:
        with self._lock:
            before, self.counted = self.counted, self.counted + length
            if before < self._most <= self.counted:
                os.kill(self._victim, signal.SIGKILL)


def victims(daemon: RunningDaemon) -> list[int]:
    """Return the processes that may be killed, once all that have been killed before are gone."""

    def found() -> list[int]:
        return [pid for pid in daemon.processes()[1:] if module_of(pid) in KILLED]

    def is_settled() -> bool:
        return len(found()) == len(KILLED) * sum(model.state == "ready" for model in daemon.status().models)

    wait_until(is_settled, "every model has all of its processes, or none")
    return found()


def wait_for_deaths(daemon: RunningDaemon, count: int) -> None:
    wait_until(lambda: sum(model.restarts for model in daemon.status().models) == count, f"the death number {count}")


def answer(client: httpx.Client, path: str, body: dict[str, Any], progress: Progress) -> list[Any]:
    """The events of a stream, or the whole body."""
    with client.stream("POST", path, json=body) as reply:
        if not body["stream"]:
            found = [json.loads(reply.read())]
        else:
            found = []
            for line in reply.iter_lines():
                if line.startswith(("data: {", "{")):
                    found.append(json.loads(line.removeprefix("data: ")))
                    progress.note(length_of(found[-1]))
    assert reply.status_code == 200, found
    return found


def length_of(event: Any) -> int:
    """Return the length of the text that an event adds to its answer."""
    if isinstance(event, list):
        return sum(map(length_of, event))
    if not isinstance(event, dict):
        return 0
    return sum(
        len(each) if name in TEXTS and isinstance(each, str) else length_of(each) for name, each in event.items()
    )


TEXTS = {"content", "text", "delta", "arguments", "partial_json", "thinking"}
# Fields that differ from one time to the next, or with the number of events.
PASSING = {
    *("id", "item_id", "call_id", "created", "created_at", "notice", "usage"),
    *("sequence_number", "index", "output_index", "content_index"),
    *("total_duration", "load_duration", "prompt_eval_duration", "eval_duration"),
}


def said(events: list[Any]) -> dict[str, Any]:
    """Everything in an answer by its place in it, joined over its events."""
    joined: dict[str, Any] = {}

    def add(place: str, value: Any) -> None:
        if isinstance(value, dict):
            number = f"{place}.{value['index']}" if "index" in value else place
            for name, each in value.items():
                if name not in PASSING:
                    add(f"{number}.{name}", each)
        elif isinstance(value, list) and not place.endswith(("text_offset", "tokens", "logprobs", "bytes")):
            for each in value:
                add(place, each)
        elif isinstance(value, str | list) and isinstance(joined.get(place, value), type(value)):
            whole = joined.get(place, type(value)()) + value
            joined[place] = value if place.endswith(("object", "type", "model", "role", "status")) else whole
        # How many events an answer comes in isn't promised: each of Ollama's says `"done": false`, but for the last.
        elif value is not None and joined.setdefault(place, [])[-1:] != [value]:
            joined[place].append(value)

    for event in events:
        add(event.get("type", ""), event)
    return joined


@pytest.mark.long
def test_twenty_answers_over_http_are_what_they_would_have_been_whichever_process_is_killed_when(start, monkeypatch):
    monkeypatch.setenv("PENSTOCK_FAULTS", "worker.step=delay:0.02")
    daemon, chosen = start(CONFIG, "--http", "127.0.0.1:0"), random.Random(8)
    with httpx.Client(base_url=daemon.status().http, timeout=10 * BOUND_SECONDS) as client:

        def answers(progress: Progress) -> list[list[Any]]:
            with ThreadPoolExecutor(20) as threads:
                asked = [threads.submit(answer, client, *request, progress) for request in requests()]
                return [each.result() for each in asked]

        whole = answers(alone := Progress())
        num_notices = 0
        for number in range(ROUNDS):
            victim = chosen.choice(victims(daemon))
            found = answers(Progress(chosen.randrange(alone.counted // 64, alone.counted // 2), victim))
            num_notices += sum("notice" in json.dumps(each) for each in found)
            for request, one, other in zip(requests(), whole, found):
                assert said(other) == said(one), (number, request)
            wait_for_deaths(daemon, number + 1)
        assert num_notices > 2 * ROUNDS  # on a busy machine some answers have ended before the kill


LONG = {"ignore_eos": True, "max_tokens": 100}
SCRIPTED = (
    SamplingParams(seed=1, logprobs=2, prompt_logprobs=1, **LONG),
    SamplingParams(seed=2, n=2, logprobs=0, early_stop={"window_size": 90, "threshold": 1e-9}, **LONG),
    SamplingParams(seed=3, detokenize=False, priority=1, no_repeat_ngram_size=4, **LONG),
    SamplingParams(seed=4, stop_words_ids=[[5, 6, 7]], bad_words=["7"], repetition_penalty=1.2, **LONG),
    SamplingParams(seed=5, guided_regex="[a-z]{20,90}", logprobs=1, max_tokens=100),
    SamplingParams(seed=6, lora_name="polite", **LONG),
    SamplingParams(seed=7, logits_processors_args={"only-even": True}, **LONG),
    BeamSearchParams(beam_width=3, max_tokens=60, ignore_eos=True),
)
PROCESSORS = """
def only_even(vocab_size, arguments):
    def step(tokens, num_prompt, logits):
        logits[1::2] = -float("inf")

    return step if arguments else None
"""


def all_of(pieces: list[RequestOutput]) -> list[Any]:
    """What the samples say in all the pieces, and the prompt's log-probabilities."""
    found: list[Any] = [[entry for piece in pieces for entry in (piece.prompt_logprobs or ())[1:]]]
    for number in range(len(pieces[0].outputs)):
        parts = [piece.outputs[number] for piece in pieces]
        logprobs = [entry for part in parts for entry in part.logprobs or ()]
        tokens = [token for part in parts for token in part.token_ids]
        found.append(("".join(part.text for part in parts), tokens, logprobs))
        found.append((parts[-1].finish_reason, parts[-1].stop_reason, parts[-1].score))
    return found


@pytest.mark.long
def test_answers_for_scripts_are_what_they_would_have_been_whichever_process_is_killed_when(
    start, tmp_path, monkeypatch
):
    folder = plugin_package(
        tmp_path, "killed_processors", PROCESSORS, {"penstock.logits_processors": {"only-even": "only_even"}}
    )
    monkeypatch.syspath_prepend(folder)
    monkeypatch.setenv("PENSTOCK_FAULTS", "worker.step=delay:0.02")
    options = 'enable_lora = true\nlogits_processors = ["only-even"]\n[models.sight]'
    daemon, chosen = start(CONFIG.replace("[models.sight]", options)), random.Random(9)
    with daemon.attach("pocket") as llm, ThreadPoolExecutor(2 * len(SCRIPTED)) as threads:
        llm.load_lora("polite", adapter(tmp_path / "polite", BUNDLED["pocket"]))

        def answers(progress: Progress) -> list[list[Any]]:
            def streamed(params: Any) -> list[RequestOutput]:
                found = []
                for piece in llm.stream("What is 487 + 256?", params):
                    found.append(piece)
                    progress.note(sum(len(part.token_ids) for part in piece.outputs))
                return found

            asked = [threads.submit(streamed, params) for params in SCRIPTED]
            whole = [threads.submit(llm.generate, "What is 487 + 256?", params, False) for params in SCRIPTED]
            return [each.result() for each in (*asked, *whole)]

        whole = answers(Progress())
        assert all(pieces[-1].error_code == 200 for pieces in whole), whole
        for number in range(ROUNDS):
            victim = chosen.choice(victims(daemon))
            found = answers(Progress(chosen.randrange(7, 350), victim))
            assert sum(piece.notice is not None for pieces in found for piece in pieces) > 4, number
            wait_for_deaths(daemon, number + 1)
            for params, one, other in zip((*SCRIPTED, *SCRIPTED), whole, found):
                assert all_of(other) == all_of(one), (number, params)
