"""Models in one engine, without arithmetic: answers are `LLM`'s, their ends name a cause, and nothing stays."""

import gc
import os
import random
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple
from unittest import mock

import psutil
import pytest
from builders.tiny_model import tiny_model
from builders.warm_trees import WarmSession
from builders.watching import assert_gone, runtime_folders, wait_until

from penstock import LLM, SamplingParams
from penstock.allspark import AsModelConfig, AsStatus, Engine, GenerateRequestStatus, ResultQueue
from penstock.frontend.allspark import installed_model
from penstock.frontend.allspark.statistics import engine_stat
from penstock.protocol.errors import OutOfMemoryError
from penstock.protocol.stats import Stats

FAMILIES = ("qwen3", "llama")
SUCCESS = AsStatus.ALLSPARK_SUCCESS
FINISHED, INTERRUPTED = GenerateRequestStatus.GenerateFinished, GenerateRequestStatus.GenerateInterrupted
STAND_IN = {"load_format": "stand-in", "num_gpu_blocks_override": 64, "quiet": True}
BOUND = 60  # seconds; a wait never ends a test that passes


@pytest.fixture(scope="module")
def folders(tmp_path_factory) -> dict[str, Path]:
    parent = tmp_path_factory.mktemp("models")
    return {family: Path(tiny_model(parent / family, family)) for family in FAMILIES}


def start(engine: Engine, name: str, folder: Path) -> None:
    config = AsModelConfig(
        model_name=name, model_path=str(folder), compute_unit="CPU:0", num_threads=1, engine_max_length=512,
        lora_max_num=0, options=STAND_IN,
    )  # fmt: skip
    assert engine.install_model(config) == SUCCESS
    status = engine.start_model(name)
    assert status == SUCCESS, status.message


@pytest.fixture(scope="module")
def engine(folders) -> Iterator[Engine]:
    """Two models in one engine."""
    with Engine() as engine:
        for family, folder in folders.items():
            start(engine, family, folder)
        yield engine


def all_of(queue: ResultQueue) -> list[int]:
    tokens = []
    while (elements := queue.Get()) is not None:
        tokens += elements.ids_from_generate
    return tokens


def processes_of(engine: Engine, name: str) -> dict[str, int]:
    return {child.role: child.popen.pid for child in engine._state.models[name].session.transport.tree.children}


class Asked(NamedTuple):
    model: str
    ids: list[int]
    seed: int
    length: int
    fate: str  # wanted whole, stopped or released


def requests(count: int) -> list[Asked]:
    chance = random.Random(count)

    def one() -> Asked:
        ids = [chance.randrange(5, 300) for _ in range(chance.randrange(1, 40))]
        fate = chance.choice(("whole", "whole", "stopped", "released"))
        return Asked(chance.choice(FAMILIES), ids, chance.randrange(2**31), chance.randrange(50, 200), fate)

    return [one() for _ in range(count)]


@pytest.fixture(scope="module")
def llms(engine) -> Iterator[dict[str, LLM]]:
    """The same trees without an engine of DashInfer's."""
    with ExitStack() as open_models:
        yield {family: open_models.enter_context(lent_llm(engine, family)) for family in FAMILIES}


def lent_llm(engine: Engine, name: str) -> LLM:
    session = WarmSession(SimpleNamespace(take_back=lambda tree: None), engine._state.models[name].session)
    with mock.patch("penstock.frontend.llm.open_model", return_value=session):
        return LLM(name)


def answers_of_llm(llms: dict[str, LLM], asked: list[Asked]) -> list[list[int]]:
    found: dict[int, list[int]] = {}
    for family, llm in llms.items():
        own = [number for number, each in enumerate(asked) if each.model == family]
        params = [SamplingParams(seed=asked[number].seed, max_length=asked[number].length) for number in own]
        outputs = llm.generate([asked[number].ids for number in own], params, use_tqdm=False)
        found.update((number, output.outputs.token_ids) for number, output in zip(own, outputs, strict=True))
    return [found[number] for number in range(len(asked))]


def answer_of_llm(llm: LLM, ids: list[int], length: int) -> list[int]:
    params = SamplingParams(temperature=0, max_length=length, ignore_eos=True)
    return llm.generate(ids, params, use_tqdm=False)[0].outputs.token_ids


def answer_of(engine: Engine, asked: Asked) -> tuple[list[int], GenerateRequestStatus]:
    config = {"seed": asked.seed, "max_length": asked.length}
    status, handle, queue = engine.start_request_ids(asked.model, None, asked.ids, config)
    assert status == SUCCESS, status.message
    tokens: list[int] = []
    if asked.fate != "whole" and (first := queue.Get()) is not None:
        tokens += first.ids_from_generate
        act = engine.stop_request if asked.fate == "stopped" else engine.release_request
        assert act(asked.model, handle) == SUCCESS
    tokens += all_of(queue)
    assert len(tokens) == queue.GeneratedLength()
    if asked.fate != "released":
        assert engine.release_request(asked.model, handle) == SUCCESS
    return tokens, queue.GenerateStatus()


def test_answers_are_those_of_llm_and_stopped_ones_begin_like_them(engine, llms):
    asked = requests(45)
    expected = answers_of_llm(llms, asked)
    with ThreadPoolExecutor(24) as threads:
        given = list(threads.map(lambda each: answer_of(engine, each), asked))
    for each, whole, (tokens, status) in zip(asked, expected, given, strict=True):
        assert tokens == whole[: len(tokens)], each
        assert status is FINISHED if len(tokens) == len(whole) else status is INTERRUPTED, each
        assert each.fate != "whole" or tokens == whole


def test_beams_and_log_probabilities_are_those_of_llm(engine, llms):
    greedy = SamplingParams(temperature=0, max_tokens=9, logprobs=3, ignore_eos=True)
    [expected] = llms["qwen3"].generate([[5, 6, 7]], greedy, use_tqdm=False)
    config = {"do_sample": False, "early_stopping": False, "max_length": 12, "logprobs": True, "top_logprobs": 3}
    _, handle, queue = engine.start_request_ids("qwen3", None, [5, 6, 7], config)
    assert engine.sync_request("qwen3", handle) == SUCCESS
    elements = queue.Get()
    assert elements.ids_from_generate == expected.outputs.token_ids
    assert [len(top) for top in elements.log_probs_list] == [3] * 9
    assert elements.token_logprobs_list == [top[0][1] for top in elements.log_probs_list]
    ranked = [[token for token, _ in top] for top in elements.log_probs_list]
    assert ranked == [list(entry)[:3] for entry in expected.outputs.logprobs]
    _, _, beams = engine.start_request_ids("qwen3", None, [5, 6, 7], {"num_beams": 3, "max_length": 12})
    assert 1 <= len(all_of(beams)) <= 9 and beams.GenerateStatus() is FINISHED


def test_many_threads_read_one_queue_and_each_token_comes_once(engine):
    config = {"seed": 3, "early_stopping": False, "max_length": 300}
    _, handle, queue = engine.start_request_ids("llama", None, [4, 5, 6], config)
    with ThreadPoolExecutor(8) as threads:
        parts = list(threads.map(lambda _: all_of(queue), range(8)))
    engine.sync_request("llama", handle)
    again = engine.start_request_ids("llama", None, [4, 5, 6], config)[2]
    assert sorted(token for part in parts for token in part) == sorted(all_of(again))


def test_statistics_count_tokens_that_were_computed_and_those_that_were_found():
    stats = Stats(1, 2, 64, 16, 9, prompt_tokens=100, cached_tokens=40, generated_tokens=50, preemptions=0)
    stats.step_seconds, stats.kv_bytes, stats.free_kv_bytes = 2.0, 1000, 300
    found = engine_stat("m", stats, 16)
    assert (found.free_token, found.total_token, found.used_device_memory_pool_size) == (256, 1024, 700)
    assert (found.generate_token_persec, found.process_token_persec) == (25.0, 55.0)
    assert (found.prefix_cache_hit_token, found.prefix_cache_miss_token) == (40, 60)
    assert (found.prefix_cache_hit_rate, found.prefix_cache_miss_rate) == (0.4, 0.6)
    assert engine_stat("m", Stats(0, 0, 64, 64, 0, 0, 0, 0, 0), 16).process_token_persec == 0.0


def test_a_request_passes_its_states_in_order_and_its_figures_are_in_their_units(engine):
    config = {"do_sample": False, "early_stopping": False, "max_length": 200}
    before = time.time()
    _, handle, queue = engine.start_request_text("qwen3", None, "hello there", config)
    order, passed = list(GenerateRequestStatus), [queue.GenerateStatus()]
    while not passed[-1].is_end:
        queue.GetWithTimeout(1000)
        passed.append(queue.GenerateStatus())
    assert passed == sorted(passed, key=order.index) and passed[-1] is FINISHED
    engine.sync_request("qwen3", handle)
    while queue.GetNoWait() is not None:
        pass
    assert queue.Get() is None and queue.GetWithTimeout(60_000) is None
    figures = queue.RequestStatInfo()
    prompt = figures["context_token_length"]
    assert figures["generated_token_length"] == queue.GeneratedLength() == 200 - prompt
    assert before - 1 <= figures["arrival_time"] <= time.time() + 1
    assert figures["arrival_time"] <= figures["first_token_time"] <= figures["last_token_time"]
    took = 1000 * (figures["last_token_time"] - figures["arrival_time"])
    assert 0 <= figures["time_in_queue"] <= figures["time_to_first_token"] <= figures["finished_time"] + 1
    assert figures["finished_time"] == pytest.approx(took, abs=1)
    assert figures["generate_tps"] > 0 and figures["context_tps"] > 0


def refuse(*arguments: Any) -> None:
    raise OutOfMemoryError("Nothing is free.")


def test_a_killed_worker_interrupts_its_requests_alone_and_the_model_starts_again(folders, monkeypatch):
    monkeypatch.setenv("PENSTOCK_FAULTS", "worker.step=delay:0.02")
    config = {"do_sample": False, "early_stopping": False, "max_length": 150}
    with Engine() as engine:
        for family in FAMILIES:
            start(engine, family, folders[family])
        doomed, other = (engine.start_request_ids(name, None, [5, 6], config)[2] for name in FAMILIES)
        assert doomed.Get().ids_from_generate
        os.kill(processes_of(engine, "qwen3")["worker 0"], signal.SIGKILL)
        all_of(doomed)
        assert doomed.GenerateStatus() is INTERRUPTED and "SIGKILL" in doomed.interruption
        assert engine.model_state("qwen3") == "Stop"
        refused, _, _ = engine.start_request_ids("qwen3", None, [5, 6], config)
        assert refused == AsStatus.ALLSPARK_INVALID_CALL_ERROR and "SIGKILL" in refused.message
        monkeypatch.delenv("PENSTOCK_FAULTS")
        with mock.patch.object(installed_model, "open_model", refuse):
            assert engine.start_model("qwen3") == AsStatus.ALLSPARK_EXCEED_LIMIT_ERROR
        assert engine.model_state("qwen3") == "Stop"
        assert engine.start_model("qwen3") == SUCCESS
        again = engine.start_request_ids("qwen3", None, [5, 6], config)[2]
        untouched = [all_of(queue) for queue in (again, other)]
        assert all(queue.GenerateStatus() is FINISHED for queue in (again, other))
        for family, tokens in zip(FAMILIES, untouched, strict=True):
            assert tokens == answer_of_llm(lent_llm(engine, family), [5, 6], 150)


def test_a_stopped_model_leaves_its_requests_what_they_have(folders, monkeypatch):
    monkeypatch.setenv("PENSTOCK_FAULTS", "worker.step=delay:0.02")
    with Engine() as engine:
        start(engine, "qwen3", folders["qwen3"])
        pids = processes_of(engine, "qwen3").values()
        config = {"early_stopping": False, "max_length": 400, "seed": 1}
        _, handle, queue = engine.start_request_ids("qwen3", None, [5, 6], config)
        assert queue.Get().ids_from_generate
        assert engine.stop_model("qwen3") == SUCCESS
        assert_gone(pids)
        assert queue.GenerateStatus() is INTERRUPTED
        assert engine.sync_request("qwen3", handle) == engine.release_request("qwen3", handle) == SUCCESS
    assert 0 < queue.GeneratedLength() < 398
    assert queue.RequestStatInfo()["finished_time"] > 0


def test_an_engine_that_nobody_holds_leaves_nothing(folders):
    with Engine() as first:  # what the first tree of a process opens for all of them stays
        start(first, "llama", folders["llama"])
    before, files = runtime_folders(), len(os.listdir("/proc/self/fd"))
    threads = set(threading.enumerate())
    engine = Engine()
    start(engine, "llama", folders["llama"])
    pids = list(processes_of(engine, "llama").values())
    queue = engine.start_request_ids("llama", None, [5, 6], {"max_length": 500, "early_stopping": False})[2]
    del engine
    gc.collect()
    assert_gone(pids)
    assert queue.wait(BOUND) and queue.GenerateStatus().is_end
    assert runtime_folders() <= before
    wait_until(lambda: set(threading.enumerate()) <= threads, "the end of its threads", BOUND)
    wait_until(lambda: len(os.listdir("/proc/self/fd")) <= files, "the end of its descriptors", BOUND)
    assert not [each for each in psutil.Process().children(recursive=True) if each.pid in pids]


def test_a_model_that_does_not_fit_names_those_that_would_have_to_stop(engine, folders):
    config = AsModelConfig(model_name="large", model_path=str(folders["qwen3"]), compute_unit="CPU:0")
    assert engine.install_model(config) == SUCCESS
    with mock.patch.object(installed_model, "open_model", refuse):
        status = engine.start_model("large")
    assert status == AsStatus.ALLSPARK_EXCEED_LIMIT_ERROR
    assert all(f"{family} (" in status.message for family in FAMILIES), status.message
    assert engine.model_state("large") == "Initial" and engine.release_model("large") == SUCCESS
