"""Pictures and videos that break engines, sent to a daemon: a sentence for each, and everything else as it was."""

import json
import re
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from builders.daemon import RunningDaemon, seeing_daemon
from builders.hostile_media import HOSTILE, HostileMedium, durable
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
    with seeing_daemon(tmp_path_factory.mktemp("daemon"), folder, "--http", "127.0.0.1:0", **OPTIONS) as daemon:
        hostage = Hostage(daemon)
        assert hostage.ask(GOOD)[0] == 200
        yield hostage


def assert_refused(case: HostileMedium, status: int, sentence: str) -> None:
    assert status == 400 and re.search(case.says, sentence), (case.name, status, sentence[:300])
    assert len(sentence) < 600 and sentence.endswith((".", "?")), sentence[:1000]
    assert not [secret for secret in _SECRETS if secret in sentence and not case.is_opened_by_callers], sentence


@pytest.mark.parametrize("rounds", [1, pytest.param(5, marks=pytest.mark.long)])
def test_a_hostile_medium_is_refused_with_a_sentence_and_leaves_neither_memory_nor_a_process_behind(hostage, rounds):
    for case in HOSTILE:
        assert_refused(case, *hostage.ask(*case.parts))
    before = hostage.resident()  # after each has been sent once
    for _ in range(rounds):
        for case in [*HOSTILE, *(durable() if rounds > 1 else [])]:
            status, _ = hostage.ask(*case.parts)
            assert status == (400 if case.says else 200) or case in HOSTILE, case.name
    after = hostage.resident()
    assert after.keys() == before.keys()
    grown = {role: (after[role] - before[role]) // _MIB for role in after}
    assert max(grown.values()) < 64, grown
    assert hostage.ask(GOOD)[0] == 200
    page = (Path(__file__).resolve().parents[2] / "docs" / "security.md").read_text(encoding="utf-8")
    assert f"`tests/builders/hostile_media.py` holds {len(HOSTILE)} of them" in page


def test_scripts_are_told_the_same_and_a_good_picture_among_them_is_answered(hostage):
    cases = [case for case in HOSTILE if not case.is_opened_by_callers]
    with hostage.daemon.attach("seeing") as llm:
        conversations = [*(about(*case.parts) for case in cases), about(GOOD)]
        *refused, answered = llm.chat(conversations, PARAMS, use_tqdm=False)
    assert (answered.error_code, answered.error_msg) == (200, None)
    for case, output in zip(cases, refused, strict=True):
        assert_refused(case, output.error_code, output.error_msg)


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
