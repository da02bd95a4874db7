"""Vectors, scores and classes of a daemon for scripts, and whoever leaves or dies meanwhile."""

import asyncio
import os
import signal
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy
import pytest
from builders.daemon import processes_of
from builders.daemon_numbers import LONG, TEXTS, said
from builders.raw_http import connected, posted
from builders.watching import stopped, wait_until

from penstock import LLM, AsyncLLM, PoolingParams
from penstock.protocol.errors import ConfigError, RequestError


def test_an_attached_script_gets_the_numbers_of_a_private_tree(numbers_daemon, vectors):
    params = PoolingParams(prompt_name="long", dimensions=16)
    folder = numbers_daemon.address.parent / "vectors"
    with LLM(str(folder), connect="never", max_model_len=256, num_threads=1, quiet=True) as private:
        for llm_params in (None, params, PoolingParams(by_token=True), PoolingParams(instruction="find")):
            there, here = ([each.outputs.data for each in llm.encode([*TEXTS, [5, 6, 7]], llm_params, use_tqdm=False)]
                           for llm in (vectors, private))  # fmt: skip
            assert all(numpy.array_equal(*pair) for pair in zip(there, here, strict=True))
        lists = [[each.outputs.embedding for each in llm.embed(TEXTS, use_tqdm=False)] for llm in (vectors, private)]
        assert lists[0] == lists[1]
    whole = vectors.embed(TEXTS, as_numpy=True, use_tqdm=False)
    assert whole.shape == (3, 64) and whole.dtype == numpy.float32
    with numbers_daemon.attach("kinds") as kinds:
        classes = kinds.classify(TEXTS, use_tqdm=False)
    assert [each.outputs.num_classes for each in classes] == [3, 3, 3]
    assert all(abs(sum(each.outputs.probs) - 1) < 1e-5 for each in classes)


def test_an_attached_scripts_text_that_fails_fails_alone(numbers_daemon, vectors):
    good, bad, cut = (vectors.encode([text], PoolingParams(truncate_prompt_tokens=most), use_tqdm=False)[0]
                      for text, most in ((TEXTS[0], None), (LONG, None), (LONG, -1)))  # fmt: skip
    assert good.error_code == cut.error_code == 200 and len(cut.prompt_token_ids) == 256
    assert bad.outputs is None and bad.error_code == 400 and "truncate_prompt_tokens=-1" in bad.error_msg
    with numbers_daemon.attach("pocket") as pocket, pytest.raises(ConfigError, match="writes text"):
        pocket.embed(TEXTS)


def test_what_no_prompt_could_get_raises_and_each_prompt_may_have_parameters_of_its_own(numbers_daemon, vectors):
    rows = vectors.embed(TEXTS[:2], [PoolingParams(dimensions=size) for size in (8, 16)], use_tqdm=False)
    assert [len(each.outputs.embedding) for each in rows] == [8, 16]
    with pytest.raises(RequestError, match="dimensions=65, and the model's vectors have 64"):
        vectors.embed(TEXTS, PoolingParams(dimensions=65))
    with pytest.raises(RequestError, match="2 .*3|3 .*2"):
        vectors.embed(TEXTS, [PoolingParams(), PoolingParams()])
    for call in (vectors.generate, vectors.chat, vectors.generate_iter, lambda text: next(vectors.stream(text))):
        given = [{"role": "user", "content": "a"}] if call == vectors.chat else "a"
        with pytest.raises(ConfigError, match="takes a model that writes text.*embed, encode or score"):
            call(given)
    with numbers_daemon.attach("kinds") as kinds:
        with pytest.raises(RequestError, match="classes of two texts"):
            kinds.classify([("a", "b")])
        [found] = kinds.classify(TEXTS[:1], use_tqdm=False)
    assert found.outputs.labels == ["LABEL_0", "LABEL_1", "LABEL_2"]


def test_an_attached_asyncllm_gets_the_same(numbers_daemon, vectors):
    async def embedded() -> Any:
        async with AsyncLLM("vectors", connect=str(numbers_daemon.address), quiet=True) as llm:
            several = await asyncio.gather(*(llm.embed([text], as_numpy=True) for text in TEXTS))
        return numpy.concatenate(several)

    assert numpy.array_equal(asyncio.run(embedded()), vectors.embed(TEXTS, as_numpy=True, use_tqdm=False))


def test_a_request_for_numbers_leaves_nothing_when_its_client_does(numbers_daemon, vectors, http):
    given = {"model": "vectors", "input": ["a hen " * 40] * 64}
    with stopped(*processes_of(numbers_daemon, "penstock.worker")), connected(http.base_url.port) as client:
        client.sendall(posted(given, "/v1/embeddings"))
        wait_until(lambda: not numbers_daemon.has_nothing_to_do("vectors"), "the texts are waited for")
    wait_until(lambda: numbers_daemon.has_nothing_to_do("vectors"), "the texts have been left")
    wait_until(lambda: "penstock_held_bytes 0\n" in http.get("/metrics").text, "their memory is given back")


def test_numbers_outlive_the_processes_that_compute_them(numbers_daemon, http):
    """All workers are killed while requests are computed; each gets its numbers."""
    given = {"model": "vectors", "input": [f"a hen {number} " * 30 for number in range(64)]}
    wanted = said(http.post("/v1/embeddings", json=given))["data"]
    workers = processes_of(numbers_daemon, "penstock.worker")
    with ThreadPoolExecutor(4) as threads, stopped(*workers):
        replies = [threads.submit(http.post, "/v1/embeddings", json=given) for _ in range(4)]
        wait_until(lambda: numbers_daemon.model("vectors").stats.running > 0, "they have begun")
        for pid in workers:
            os.kill(pid, signal.SIGKILL)
    assert [said(reply.result())["data"] for reply in replies] == [wanted] * 4
