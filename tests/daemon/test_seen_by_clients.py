"""Pictures and videos through a daemon: scripts and OpenAI's client see alike, what several ask about is encoded once,
and others are not harmed by a client that leaves, or a worker that dies, amid encoding.
"""

import os
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import openai
import pytest
from builders.daemon import RunningDaemon, seeing_daemon, wait_for, worker_of
from builders.seeing_model import about, animation, answering_model, as_url, data_url, film, noise
from builders.watching import stop, stopped

from penstock import LLM, PenstockError, SamplingParams
from penstock.protocol.stats import Stats

GREEDY = SamplingParams(temperature=0, max_tokens=12, ignore_eos=True)
BRIEF = SamplingParams(temperature=0, max_tokens=2, ignore_eos=True)
ENDLESS = SamplingParams(temperature=0, max_tokens=900, ignore_eos=True)
LAYERS = 36  # of the encoder: a picture takes a dozen steps beside a stream
OPTIONS: dict[str, Any] = {"max_model_len": 1024, "num_threads": 2, "mm_encoder_budget": 1}


def test_scripts_and_clients_over_http_see_the_same_pictures_and_videos(tmp_path):
    model = answering_model(tmp_path / "model")
    frames = [noise(number, (96, 64)) for number in range(20)]
    mp4, gif, image = film(*frames), animation(*frames), as_url(noise(99))
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

    with seeing_daemon(tmp_path, model, "--http", "127.0.0.1:0", **OPTIONS) as daemon:
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


class Crowd:
    """A daemon with a client whose answer is streamed, so that pictures are encoded in many steps beside it."""

    def __init__(self, daemon: RunningDaemon) -> None:
        self.daemon = daemon
        self.client = daemon.attach("seeing")
        self.ended = threading.Event()

    def listen(self) -> None:
        begun = threading.Event()

        def read() -> None:
            with suppress(PenstockError):
                for piece in self.client.stream([5, 6, 7], ENDLESS):
                    begun.set()
                    assert piece.error_msg is None
            self.ended.set()

        threading.Thread(target=read, daemon=True).start()
        assert begun.wait(60)

    def stats(self) -> Stats:
        return self.daemon.model("seeing").stats


@pytest.fixture(scope="module")
def crowded(tmp_path_factory) -> Iterator[RunningDaemon]:
    folder = tmp_path_factory.mktemp("crowd")
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("PENSTOCK_FAULTS", "worker.step=delay:0.2")
        model = answering_model(folder / "model", depth=LAYERS)
        with seeing_daemon(folder, model, **OPTIONS) as daemon:
            yield daemon


@pytest.fixture
def crowd(crowded) -> Iterator[Crowd]:
    crowd = Crowd(crowded)
    yield crowd
    crowd.client.close()


def about_noise(seed: int) -> list[dict[str, Any]]:
    return about({"type": "image", "image": noise(seed)})


def test_a_picture_that_two_clients_ask_about_at_once_is_encoded_once(crowd):
    crowd.listen()
    before = crowd.stats().encoded_media

    def ask() -> list[int]:
        with crowd.daemon.attach("seeing") as llm:
            [output] = llm.chat(about_noise(1), BRIEF, use_tqdm=False)
            return list(output.outputs.token_ids)

    with ThreadPoolExecutor(2) as threads:
        with stopped(worker_of(crowd.daemon)):  # so that neither has seen it when the other asks
            one, other = threads.submit(ask), threads.submit(ask)
            wait_for(lambda: crowd.stats().running + crowd.stats().waiting == 3, "both have asked")
        assert one.result() == other.result()
    assert crowd.stats().encoded_media == before + 1
    assert not crowd.ended.is_set()


def stopped_amid_encoding(crowd: Crowd, ask: Callable[[int], None]) -> tuple[int, threading.Thread, int]:
    """The worker, which stands still while it encodes what `ask` asks about; the thread that does, and which it was."""
    for seed in range(10, 60):
        before, worker = crowd.stats().encoded_media, worker_of(crowd.daemon)
        thread = threading.Thread(target=ask, args=(seed,))
        thread.start()
        wait_for(lambda: crowd.stats().running == 2 or not thread.is_alive(), "its prompt is read")  # noqa: B023
        stop(worker)
        if crowd.stats().running == 2 and crowd.stats().encoded_media == before:
            return worker, thread, seed
        os.kill(worker, signal.SIGCONT)  # it was encoded in the meantime
        thread.join(60)
    raise AssertionError("no picture was met while it was encoded")


def test_a_client_may_leave_while_its_picture_is_encoded(crowd):
    crowd.listen()
    leaving = crowd.daemon.attach("seeing")

    def ask(seed: int) -> None:
        with suppress(PenstockError):
            list(leaving.stream(about_noise(seed), BRIEF))

    worker, thread, seed = stopped_amid_encoding(crowd, ask)
    try:
        before = crowd.stats().encoded_media
        leaving.close()
        thread.join(60)
        wait_for(lambda: crowd.stats().running == 1, "its request has ended")
    finally:
        os.kill(worker, signal.SIGCONT)
    assert crowd.stats().encoded_media == before and not crowd.ended.is_set()
    [output] = crowd.client.chat(about_noise(seed), BRIEF, use_tqdm=False)
    assert output.error_msg is None and crowd.stats().encoded_media == before + 1


def test_a_worker_that_is_killed_while_it_encodes_ends_its_requests_and_the_next_one_sees(crowd):
    [expected] = crowd.client.chat(about_noise(3), BRIEF, use_tqdm=False)
    crowd.listen()
    errors: list[Exception] = []

    def ask(seed: int) -> None:
        try:
            crowd.client.chat(about_noise(seed), BRIEF, use_tqdm=False)
        except PenstockError as error:
            errors.append(error)

    worker, thread, _ = stopped_amid_encoding(crowd, ask)
    os.kill(worker, signal.SIGKILL)
    thread.join(60)
    assert crowd.ended.wait(60) and len(errors) == 1 and "worker" in str(errors[0])
    with crowd.daemon.attach("seeing") as llm:
        [output] = llm.chat(about_noise(3), BRIEF, use_tqdm=False)
    assert output.outputs.token_ids == expected.outputs.token_ids
