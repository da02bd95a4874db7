"""A worker of Dynamo's, driven as Dynamo drives it."""

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import zmq
from builders.dynamo_interface import Context, EngineShutdown, InvalidArgument, Published, checked, installed
from builders.kv_router import Index
from builders.watching import is_running, shared_while, tree_processes, wait_until

from penstock.cluster.dynamo_requests import params_of
from penstock.protocol.errors import ConfigError
from penstock.protocol.parameters.sampling import SamplingParams

pytestmark = pytest.mark.xdist_group("dynamo")
PROMPT = [(7 * token) % 300 + 20 for token in range(70)]
ARGV = ["pocket", "--max-model-len", "512", "--num-threads", "1", "--namespace", "ours", "--served-model-name", "mine"]


class Driver:
    """The worker in a loop of its own, as in Dynamo's process."""

    def __init__(self) -> None:
        from penstock.cluster.dynamo import Engine

        self.runner = asyncio.Runner()
        self.engine, self.worker = self.run(Engine.from_args(ARGV))
        self.registered = self.run(self.engine.start(7))
        self.processes = tree_processes(self.engine._llm)

    def run(self, work: Any) -> Any:
        return self.runner.run(work)

    async def chunks(self, token_ids: Any, request_id: str = "a", **groups: Any) -> list[dict]:
        request = {"token_ids": token_ids, "model": "mine", **groups}
        return [checked(chunk) async for chunk in self.engine.generate(request, Context(request_id))]

    def ask(self, token_ids: Any, request_id: str = "a", **groups: Any) -> list[dict]:
        return self.run(self.chunks(token_ids, request_id, **groups))


@contextmanager
def started() -> Iterator[Driver]:
    with installed():
        found = Driver()
        yield found
        found.run(found.engine.cleanup())
        found.run(found.engine.cleanup())
        found.runner.close()


@pytest.fixture(scope="module")
def driver_shared() -> Iterator[Callable[[], Driver]]:
    with shared_while(lambda driver: all(map(is_running, driver.processes.values())), started) as given:
        yield given


@pytest.fixture
def driver(driver_shared) -> Driver:
    return driver_shared()


def test_without_dynamo_the_error_names_the_extra(monkeypatch):
    for name in ("penstock.cluster.dynamo", *(name for name in [*sys.modules] if name.startswith("dynamo."))):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setitem(sys.modules, "dynamo", None)
    with pytest.raises(ConfigError, match=r"dynamo.* is missing.*pip install 'penstock\[dynamo\]'"):
        import penstock.cluster.dynamo  # noqa: F401


def test_a_worker_has_one_tree(driver):
    with pytest.raises(ConfigError, match="start one for each tree"):
        asyncio.run(type(driver.engine).from_args(["pocket", "--data-parallel-size", "2"]))


def test_the_worker_registers_the_model_as_it_is(driver):
    worker, llm = driver.worker, driver.registered.llm
    assert (worker.namespace, worker.component, worker.endpoint) == ("ours", "backend", "generate")
    assert worker.model_name == driver.registered.model and Path(worker.model_name, "tokenizer.json").is_file()
    assert worker.served_model_name == driver.registered.served_model_name == "mine"
    assert (llm.context_length, llm.kv_cache_block_size, llm.max_num_seqs) == (512, 32, 64)
    assert llm.total_kv_blocks >= 16 and llm.max_num_batched_tokens == 512


def test_what_a_request_says_becomes_parameters_and_the_models_own_stand_where_it_says_nothing():
    same = {
        "temperature": 0.5, "top_p": 0.9, "top_k": 7, "min_p": 0.1, "presence_penalty": 0.2, "frequency_penalty": 0.3,
        "repetition_penalty": 1.1, "logit_bias": {25: 2.0}, "n": 2, "seed": 3,
    }  # fmt: skip
    stops = {"max_tokens": 9, "min_tokens": 2, "ignore_eos": True}
    hidden = {"max_thinking_tokens": 4, "stop_token_ids": [7], "stop_token_ids_hidden": [5, 7]}
    request = {"sampling_options": same, "stop_conditions": stops | hidden, "output_options": {"logprobs": 2}}
    wanted = same | stops | {"reasoning_max_tokens": 4, "stop_token_ids": [5, 7], "logprobs": 2}
    own = SamplingParams(temperature=0.25, top_k=5, n=3, seed=1)
    found = params_of(request, own, "a")
    assert {name: getattr(found, name) for name in wanted} == wanted
    found = params_of({}, own, "a")
    assert (found.temperature, found.top_k, found.n) == (0.25, 5, 1)
    assert found.seed == params_of({}, own, "a").seed != params_of({}, own, "b").seed


SAMPLING = {
    "greedy": {"temperature": 0},
    "sampled without a seed": {"temperature": 1.0, "top_p": 0.95, "min_p": 0.01},
    "a seed": {"temperature": 1.3, "seed": 5, "top_k": 40},
    "the prompt's tokens count": {"temperature": 1.0, "repetition_penalty": 1.2, "logit_bias": {25: 2.0}},
}


@pytest.mark.parametrize("kind", SAMPLING)
def test_an_answer_that_moves_to_another_worker_is_the_whole_answer(driver, kind):
    """Dynamo asks the other worker with what was said behind the prompt, as many fewer tokens, and the same id."""
    shared = {"sampling_options": SAMPLING[kind], "output_options": {"logprobs": 1}}

    def asked(tokens: list[int], most: int) -> tuple[list[int], list[float], dict]:
        stop = {"max_tokens": most, "ignore_eos": True}
        chunks = driver.ask(tokens, f"moving {kind}", stop_conditions=stop, **shared)
        ids = [token for chunk in chunks for token in chunk["token_ids"]]
        return ids, [each for chunk in chunks for each in chunk.get("log_probs", ())], chunks[-1]

    whole, logprobs, last = asked(PROMPT, 60)
    assert last["finish_reason"] == "length" and len(whole) == len(logprobs) == 60
    assert last["completion_usage"]["total_tokens"] == 130
    for said in (1, 26, 59):
        rest, its_logprobs, _ = asked(PROMPT + whole[:said], 60 - said)
        assert (rest, its_logprobs) == (whole[said:], logprobs[said:]), f"{said} tokens were said"


def test_its_router_learns_from_the_events_what_the_worker_has_and_how_busy_it_is(driver):
    [source] = driver.run(driver.engine.kv_event_sources())
    index, published = Index(), Published()
    tokens = [token + 1 for token in PROMPT]
    with zmq.Context() as context, context.socket(zmq.SUB) as events:
        events.setsockopt_string(zmq.SUBSCRIBE, source.topic)
        events.connect(source.endpoint)
        numbers = count(20)

        def is_told() -> bool:
            tokens[0] = next(numbers)  # until the subscription has arrived
            driver.ask(tokens, stop_conditions={"max_tokens": 1})
            while events.poll(100):
                index.read(events.recv_multipart()[-1])
            return index.prefix(tokens, 32) == 2

        wait_until(is_told, "the events tell of the last prompt")
    driver.ask(tokens, stop_conditions={"max_tokens": 1})  # whose blocks are found, so that there is a rate of hits
    driver.engine.attach_snapshot_publisher(published)
    wait_until(lambda: published.snapshots, "the worker tells its load")
    assert published.snapshots[0].kv_total_blocks == driver.registered.llm.total_kv_blocks
    assert 0 < published.snapshots[0].kv_cache_hit_rate <= 1


WRONG = {
    "there are none": {"token_ids": []},
    "not in the vocabulary": {"token_ids": [10**9]},
    "temperature=-1": {"token_ids": [5], "sampling_options": {"temperature": -1}},
    "prompt_logprobs": {"token_ids": [5], "output_options": {"prompt_logprobs": 1}},
    "max_model_len=512": {"token_ids": [5] * 600},
    "takes text only": {"token_ids": [5], "multi_modal_data": {"image": 1}},
    "aren't split": {"token_ids": [5], "prefill_result": {"a": 1}},
    "exactly one of": {"token_ids": [5], "sampling_options": {"guided_decoding": {"regex": "a", "choice": ["b"]}}},
    "4 bytes each": {"token_ids": b"\1\0\0"},
    "must be whole numbers": {"token_ids": ["a"]},
}


def test_what_cannot_be_met_is_refused_alone_and_what_dynamo_may_send_is_taken(driver):
    for sentence, request in WRONG.items():
        with pytest.raises(InvalidArgument, match=sentence):
            driver.ask(**request)
    packed = b"".join(token.to_bytes(4, "little") for token in PROMPT)
    stop = {"max_tokens": 4, "stop": ["Dynamo's own work"], "ignore_eos": True, "stop_token_ids": []}
    limit = {"stop_conditions": stop}
    greedy = {"sampling_options": {"temperature": 0, "top_k": -1, "seed": None, "n": 1}, "eos_token_ids": [1]}
    said = [
        [token for chunk in driver.ask(tokens, **limit, **greedy) for token in chunk["token_ids"]]
        for tokens in (packed, PROMPT)
    ]
    assert said[0] == said[1] and len(said[0]) == 4
    one_of = driver.ask(PROMPT, sampling_options={"guided_decoding": {"choice": ["yes"]}, "n": 2})
    assert {chunk["index"] for chunk in one_of if "finish_reason" in chunk} == {0, 1}
    assert sum("completion_usage" in chunk for chunk in one_of) == 1
    assert driver.ask(**driver.run(driver.engine.health_check_payload()))[-1]["finish_reason"] in ("length", "stop")
    salted = {**limit, "extra_args": {"nvext": {"cache_salt": "tenant"}}}
    assert driver.ask(PROMPT, **salted)[-1]["completion_usage"]["prompt_tokens_details"] == {"cached_tokens": 0}


def test_an_aborted_request_ends_at_once_and_drain_waits_for_the_others(driver):
    async def aborted() -> list[dict]:
        engine, stop = driver.engine, {"max_tokens": 400, "ignore_eos": True}
        found = []
        async for chunk in engine.generate({"token_ids": PROMPT, "stop_conditions": stop}, Context("long")):
            found.append(checked(chunk))
            assert not await engine.is_quiescent()
            draining = asyncio.ensure_future(engine.drain())
            await engine.abort(Context("unknown"))
            await engine.abort(Context("long"))
        await draining
        assert await engine.is_quiescent()
        return found

    found = driver.run(aborted())
    assert found[-1]["finish_reason"] == "cancelled" and found[-1]["completion_usage"]["completion_tokens"] < 400


def test_the_death_of_the_tree_is_told_so_that_answers_move_and_the_worker_ends(driver, monkeypatch):
    ended: list[tuple[int, int]] = []
    kill = os.kill
    monkeypatch.setattr("penstock.cluster.dynamo.os.kill", lambda *arguments: ended.append(arguments))

    async def dying() -> None:
        stop = {"max_tokens": 400, "ignore_eos": True}
        async for _ in driver.engine.generate({"token_ids": PROMPT, "stop_conditions": stop}, Context("dying")):
            kill(driver.processes["worker 0"], signal.SIGKILL)

    with pytest.raises(EngineShutdown):
        driver.run(dying())
    with pytest.raises(EngineShutdown):  # and every other one, until the process has ended
        driver.ask(PROMPT)
    assert ended == [(os.getpid(), signal.SIGTERM)]
    folder = Path(driver.engine._folder.name)
    driver.run(driver.engine.cleanup())
    assert not folder.exists()
    with pytest.raises(EngineShutdown):
        driver.ask(PROMPT)
