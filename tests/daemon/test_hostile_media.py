"""Pictures and videos that break engines, sent to a daemon: a sentence for each, and everything else as it was."""

import json
import re
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from builders.cases import for_each
from builders.daemon import RunningDaemon, running_daemon
from builders.hostile_media import HOSTILE, HostileMedium, durable, image
from builders.seeing_model import about, as_url, picture, seeing_model
from builders.watching import module_of

from penstock import SamplingParams

OPTIONS: dict[str, Any] = {"load_format": "stand-in", "max_model_len": 512, "mm_cache": 64}
PARAMS = SamplingParams(max_tokens=2, temperature=0)
GOOD = {"type": "image_url", "image_url": {"url": as_url(picture())}}
_SECRETS = ("/root", "/home", "/tmp", "/work", "/etc", "site-packages", ".py", "0x7", "Traceback", "root:x:")
_MIB = 1 << 20


class Hostage:
    """A daemon with a model that sees."""

    def __init__(self, daemon: RunningDaemon) -> None:
        self.daemon = daemon
        self.url = f"{daemon.status().http}/v1/chat/completions"

    def ask(self, *parts: Any) -> tuple[int, str]:
        """Status and answer, over HTTP."""
        body = {"model": "seeing", "messages": about(*parts), "max_tokens": 2, "temperature": 0}
        request = urllib.request.Request(self.url, json.dumps(body).encode(), {"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=200) as reply:
                return reply.status, reply.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, json.load(error)["error"]["message"]

    def resident(self) -> dict[str, int]:
        """Bytes by role; the helper processes' together."""
        found: dict[str, int] = {}
        for pid in self.daemon.processes():
            process = psutil.Process(pid)
            role = module_of(pid) or "daemon"
            found[role] = found.get(role, 0) + process.memory_info().rss
        return found


@pytest.fixture(scope="module")
def hostage(tmp_path_factory) -> Iterator[Hostage]:
    folder = seeing_model(tmp_path_factory.mktemp("models") / "seeing")
    where = tmp_path_factory.mktemp("daemon")
    config = where / "penstock.toml"
    lines = [f"{name} = {json.dumps(value)}" for name, value in {"model": str(folder), **OPTIONS}.items()]
    config.write_text("\n".join(["[models.seeing]", *lines]))
    with running_daemon(where, "--config", str(config), "--http", "127.0.0.1:0") as daemon:
        hostage = Hostage(daemon)
        assert hostage.ask(GOOD)[0] == 200
        yield hostage


def assert_refused(case: HostileMedium, status: int, sentence: str) -> None:
    assert status == 400 and re.search(case.says, sentence), (case.name, status, sentence[:300])
    assert len(sentence) < 600 and sentence.endswith((".", "?")), sentence[:1000]
    assert not [secret for secret in _SECRETS if secret in sentence and not case.is_opened_by_callers], sentence


@pytest.fixture(scope="module")
def told(hostage) -> dict[str, tuple[int, str]]:
    """What each is told that is sent for the first time."""
    return {case.name: hostage.ask(*case.parts) for case in HOSTILE}


@for_each("case", HOSTILE, ids=lambda case: case.name)
def test_a_hostile_medium_is_refused_with_a_sentence(told, case):
    assert_refused(case, *told[case.name])


def test_scripts_are_told_the_same_and_a_good_picture_among_them_is_answered(hostage):
    cases = [case for case in HOSTILE if not case.is_opened_by_callers]
    with hostage.daemon.attach("seeing") as llm:
        conversations = [*(about(*case.parts) for case in cases), about(GOOD)]
        *refused, answered = llm.chat(conversations, PARAMS, use_tqdm=False)
    assert (answered.error_code, answered.error_msg) == (200, None)
    for case, output in zip(cases, refused, strict=True):
        assert_refused(case, output.error_code, output.error_msg)


@pytest.mark.parametrize("rounds", [1, pytest.param(5, marks=pytest.mark.long)])
def test_forty_at_least_are_refused_and_none_leaves_memory_or_a_process_behind(hostage, told, rounds):
    assert len(told) == len(HOSTILE) >= 40
    before = hostage.resident()  # after each has been sent once
    for _ in range(rounds):
        for case in HOSTILE:
            hostage.ask(*case.parts)
    after = hostage.resident()
    assert after.keys() == before.keys()
    grown = {role: (after[role] - before[role]) // _MIB for role in after}
    assert max(grown.values()) < 64, grown
    assert hostage.ask(GOOD)[0] == 200


def test_placeholders_that_stand_for_nothing_never_reach_a_worker(hostage):
    with hostage.daemon.attach("seeing") as llm:
        placeholder = llm.get_tokenizer().token_to_id("<|image_pad|>")
        prompts = [
            "<|image_pad|>",
            "\uff1c|image_pad|\uff1e <|video_pad|>",
            {"prompt_token_ids": [5, placeholder, 6]},
            {"prompt_token_ids": [5, placeholder, placeholder], "multimodal_data": {"image": picture()}},
            {"prompt": "no place", "multimodal_data": {"image": picture()}},
            {"prompt": "<|video_pad|>", "multimodal_data": {"image": picture()}},
        ]
        outputs = llm.generate([*prompts, "good"], PARAMS, use_tqdm=False)
    assert [output.error_code for output in outputs] == [400] * len(prompts) + [200]
    assert all("placeholder" in output.error_msg for output in outputs[:-1])


def test_the_page_about_safety_tells_their_number():
    page = (Path(__file__).resolve().parents[2] / "docs" / "security.md").read_text(encoding="utf-8")
    assert f"`tests/builders/hostile_media.py` holds {len(HOSTILE)} of them" in page


WATCH = """
import json, sys, threading, time
from penstock import LLM, SamplingParams

llm = LLM("seeing", connect=sys.argv[1], quiet=True)
params = SamplingParams(max_tokens=400, temperature=0, ignore_eos=True)
gaps = []

def stream():
    while True:
        last = time.monotonic()
        for _ in llm.stream("Tell me", params):
            now = time.monotonic()
            gaps.append(now - last)
            last = now

threading.Thread(target=stream, daemon=True).start()
for line in sys.stdin:
    seen, gaps[:] = list(gaps), []
    print(json.dumps([len(seen), max(seen, default=0.0)]), flush=True)
"""


class Watcher:
    """A script in a process of its own that streams answers of text, one after another."""

    def __init__(self, daemon: RunningDaemon) -> None:
        words = [sys.executable, "-c", WATCH, str(daemon.address)]
        self.process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def longest_gap(self) -> float:
        """In seconds, since the last call; between tokens, and before the first one of an answer."""
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        count, longest = json.loads(self.process.stdout.readline())
        assert count > 0
        return float(longest)


@pytest.fixture
def watcher(hostage) -> Iterator[Watcher]:
    watcher = Watcher(hostage.daemon)
    time.sleep(3)
    watcher.longest_gap()
    yield watcher
    watcher.process.kill()
    watcher.process.communicate(timeout=60)


@pytest.mark.long
def test_beside_hostile_media_streams_wait_for_200_milliseconds_at_most(hostage, watcher):
    before = hostage.resident()
    gaps: dict[str, float] = {}
    for case in [*HOSTILE, *durable()]:
        status, sentence = hostage.ask(*case.parts)
        gaps[case.name] = watcher.longest_gap()
        assert status == (200 if case in durable() and not case.says else 400), (case.name, sentence[:300])
    worst = sorted(gaps.items(), key=lambda pair: -pair[1])[:5]
    print(worst, {role: size // _MIB for role, size in hostage.resident().items()})
    assert worst[0][1] <= 0.2, worst
    after = hostage.resident()
    assert max(after[role] - before.get(role, 0) for role in after) < 128 * _MIB, (before, after)


@pytest.mark.long
def test_while_one_client_sends_slow_pictures_another_has_its_turn(hostage):
    slow = durable()[0]
    sender = threading.Thread(target=hostage.ask, args=slow.parts)
    sender.start()
    time.sleep(1)
    with hostage.daemon.attach("seeing") as llm:
        [output] = llm.chat([about(image(b"nothing"))], PARAMS, use_tqdm=False)
    assert output.error_code == 400 and sender.is_alive()
    sender.join()
