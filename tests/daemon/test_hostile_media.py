"""Pictures and videos through a daemon: those that break engines end in a sentence each, and others are seen alike by
scripts and by OpenAI's client.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
from builders.daemon import RunningDaemon, seeing_daemon
from builders.films import film
from builders.later import Later
from builders.seeing_model import about, animation, answering_model, as_url, data_url, noise, picture, seeing_model
from builders.watching import BOUND_SECONDS, module_of

from penstock import LLM, SamplingParams

hostile_media = Later("builders.hostile_media")
openai = Later("openai")

OPTIONS: dict[str, Any] = {"load_format": "stand-in", "max_model_len": 512, "mm_cache": 64}
PARAMS = SamplingParams(max_tokens=2, temperature=0)
GOOD = {"type": "image_url", "image_url": {"url": as_url(picture())}}
_SECRETS = ("/root", "/home", "/tmp", "/work", "/etc", "site-packages", ".py", "0x7", "Traceback", "root:x:")
_MIB = 1 << 20


class Hostage:
    def __init__(self, daemon: RunningDaemon) -> None:
        self.daemon = daemon
        self.url = f"{daemon.status().http}/v1/chat/completions"

    def ask(self, *parts: Any) -> tuple[int, str]:
        body = {"model": "seeing", "messages": about(*parts), "max_tokens": 2, "temperature": 0}
        reply = httpx.post(self.url, json=body, timeout=20 * BOUND_SECONDS)
        return reply.status_code, reply.text if reply.status_code == 200 else reply.json()["error"]["message"]

    def resident(self) -> dict[str, int]:
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


def assert_refused(case: "hostile_media.HostileMedium", status: int, sentence: str) -> None:
    assert status == 400 and re.search(case.says, sentence), (case.name, status, sentence[:300])
    assert len(sentence) < 600 and sentence.endswith((".", "?")), sentence[:1000]
    assert not [secret for secret in _SECRETS if secret in sentence and not case.is_opened_by_callers], sentence


@pytest.mark.parametrize("rounds", [1, pytest.param(2, marks=pytest.mark.long)])
def test_a_hostile_medium_is_refused_by_every_way_and_leaves_neither_memory_nor_a_process_behind(hostage, rounds):
    refused_to_scripts(hostage)
    before = hostage.resident()  # after each has been sent once
    for _ in range(rounds):
        for case in [*hostile_media.HOSTILE, *(hostile_media.durable() if rounds > 1 else [])]:
            status, sentence = hostage.ask(*case.parts)
            if case in hostile_media.HOSTILE:
                assert_refused(case, status, sentence)
            else:
                assert status == (400 if case.says else 200), case.name
    after = hostage.resident()
    assert after.keys() == before.keys()
    grown = {role: (after[role] - before[role]) // _MIB for role in after}
    assert max(grown.values()) < 64, grown
    assert hostage.ask(GOOD)[0] == 200
    page = (Path(__file__).resolve().parents[2] / "docs" / "security.md").read_text(encoding="utf-8")
    assert f"`tests/builders/hostile_media.py` holds {len(hostile_media.HOSTILE)} of them" in page


def refused_to_scripts(hostage: Hostage) -> None:
    """They are told the same, and a good picture among them is answered."""
    cases = [case for case in hostile_media.HOSTILE if not case.is_opened_by_callers]
    with hostage.daemon.attach("seeing") as llm:
        conversations = [*(about(*case.parts) for case in cases), about(GOOD)]
        *refused, answered = llm.chat(conversations, PARAMS, use_tqdm=False)
    assert (answered.error_code, answered.error_msg) == (200, None)
    for case, output in zip(cases, refused, strict=True):
        assert_refused(case, output.error_code, output.error_msg)


# --- good ones --------------------------------------------------------------------------------------------------------


GREEDY = SamplingParams(temperature=0, max_tokens=12, ignore_eos=True)
SEEING: dict[str, Any] = {"max_model_len": 1024, "num_threads": 2, "mm_encoder_budget": 1}


def test_scripts_and_clients_over_http_see_the_same_pictures_and_videos(tmp_path):
    model = answering_model(tmp_path / "model")
    frames = [noise(number, (96, 64)) for number in range(20)]
    mp4, gif, image = film(frames), animation(*frames), as_url(noise(99))
    (tmp_path / "film.mp4").write_bytes(mp4)
    url = {"type": "video_url", "video_url": {"url": data_url("video/mp4", mp4)}}
    parts = {
        "film": [url, {"type": "video", "video": mp4}, {"type": "video", "video": str(tmp_path / "film.mp4")}],
        "fewer": [url | {"max_frames": 2}, {"type": "video", "video": {"video": mp4, "num_frames": 2}}],
        "animation": [{"type": "video", "video": gif}],
        "picture": [{"type": "image_url", "image_url": {"url": image}}],
    }

    def asked(llm: LLM) -> dict[str, tuple[int, ...]]:
        found = {}
        for name, forms in parts.items():
            outputs = llm.chat([about(part) for part in forms], GREEDY, use_tqdm=False)
            assert [output.error_msg for output in outputs] == [None] * len(forms), name
            [found[name]] = {(len(output.prompt_token_ids), *output.outputs.token_ids) for output in outputs}
        prompt, video = llm.apply_chat_template(about(url)), [{"video": mp4, "max_frames": 30}]
        [output] = llm.generate({"prompt": prompt, "multimodal_data": {"video": video}}, GREEDY, use_tqdm=False)
        assert (len(output.prompt_token_ids), *output.outputs.token_ids) == found["film"]
        return found

    with seeing_daemon(tmp_path, model, "--http", "127.0.0.1:0", **SEEING) as daemon:
        with daemon.attach("seeing") as llm:
            attached = asked(llm)
            assert len({answer[1:] for answer in attached.values()}) == len(parts), "each looks different"
            assert llm.stats().encoded_media == len(parts)
            tokenizer = llm.get_tokenizer()
        with openai.OpenAI(base_url=f"{daemon.status().http}/v1", api_key="none", max_retries=0) as client:
            for name, (part, *_) in parts.items():
                if name == "animation":
                    part = {"type": "video_url", "video_url": {"url": data_url("image/gif", gif)}}
                chat = client.chat.completions.create(
                    model="seeing", messages=about(part), max_tokens=12, temperature=0,
                    extra_body={"ignore_eos": True},
                )  # fmt: skip
                found = chat.usage.prompt_tokens, chat.choices[0].message.content
                assert found == (attached[name][0], tokenizer.decode(attached[name][1:])), name
