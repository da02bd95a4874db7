"""What goes wrong around an engine: starts that fail, ends that race, forks, odd arguments, readers that come late."""

import gc
import os
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from unittest import mock

import numpy as np
import pytest
from builders.cases import for_each
from builders.watching import wait_until

from penstock import SamplingParams
from penstock.allspark import AsModelConfig, AsStatus, Engine, GenerateRequestStatus, ModelState
from penstock.frontend.allspark import installed_model
from penstock.frontend.allspark.result_queue import ResultQueue

STAND_IN = {"load_format": "stand-in", "num_gpu_blocks_override": 64, "quiet": True}
SUCCESS, DENIED = AsStatus.ALLSPARK_SUCCESS, AsStatus.ALLSPARK_REQUEST_DENIED
WRONG, INVALID = AsStatus.ALLSPARK_PARAM_ERROR, AsStatus.ALLSPARK_INVALID_CALL_ERROR
GENERATION = {"max_length": 40, "early_stopping": False}


def started(*names: str, is_started: bool = True) -> Engine:
    engine = Engine()
    for name in names:
        config = AsModelConfig(
            model_name=name, model_path="pocket", compute_unit="CPU:0", num_threads=1, engine_max_length=256,
            options=STAND_IN,
        )  # fmt: skip
        assert engine.install_model(config) == SUCCESS
        assert not is_started or engine.start_model(name) == SUCCESS
    return engine


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    """For those that leave it as they found it."""
    with started("m") as engine:
        yield engine


@for_each("delay", [0.0, 0.05])
def test_a_start_that_the_end_overtakes_is_denied(delay):
    engine = started("m", is_started=False)
    with ThreadPoolExecutor(1) as threads:
        starting = threads.submit(engine.start_model, "m")
        time.sleep(delay)
        engine.close()
        status = starting.result(60)
    assert engine.model_state("m") is ModelState.Released
    assert status == SUCCESS or (status, status.message) == (DENIED, "The engine is shutting down.")


def test_closing_goes_on_after_an_interruption_and_may_be_repeated():
    engine = started("one", "two")
    stop = installed_model.InstalledModel._close_tree

    def interrupted(model: Any) -> None:
        stop(model)
        if model.name == "one":
            raise KeyboardInterrupt

    patched = mock.patch.object(installed_model.InstalledModel, "_close_tree", interrupted)
    with patched, pytest.raises(KeyboardInterrupt):
        engine.close()
    assert engine.model_state("two") is ModelState.Released
    engine.close()
    assert engine.model_state("one") is ModelState.Released
    engine.close()


def test_a_forked_copy_of_an_engine_answers_and_ends_at_once(engine):
    _, _, queue = engine.start_request_ids("m", None, [5], {"max_length": 250, "early_stopping": False})
    child = os.fork()
    if child == 0:
        is_refused = engine.start_request_ids("m", None, [5], GENERATION)[0] == INVALID
        engine.close()
        os._exit(0 if is_refused else 1)
    ended: list[int] = []
    wait_until(lambda: bool(ended.extend(os.waitpid(child, os.WNOHANG)) or ended[-2]), "the copy's end")
    assert os.waitstatus_to_exitcode(ended[-1]) == 0
    while queue.Get() is not None:
        pass
    assert queue.GenerateStatus() is GenerateRequestStatus.GenerateFinished


def test_the_collector_may_end_an_engine_in_the_thread_that_hears_answers():
    engine = started("m")
    queues = [engine.start_request_ids("m", None, [5], {"max_length": 250})[2] for _ in range(20)]
    model = engine._state.models["m"]
    transport = model.session.transport
    engine.itself = engine  # only the collector finds it
    del engine
    ended = threading.Event()
    hear = type(queues[0]).hear

    def collect(queue: Any, request: Any) -> None:
        if not ended.is_set():
            ended.set()
            with model._lock:
                gc.collect()
        hear(queue, request)

    with mock.patch.object(type(queues[0]), "hear", collect):
        greedy = SamplingParams(temperature=0, max_length=250, detokenize=False)
        queues.append(model.start_ids([5], installed_model.Generation(greedy, None, None, None)).queue)
        assert ended.wait(60)
        for queue in queues:
            assert queue.wait(60)
    wait_until(lambda: transport.is_closed, "the tree is closed")


ODD: list[Any] = [None, 5, 2.5, float("nan"), b"m", [], ["m"], {}, object(), "\ud800", np.array([1, 2]), "x" * 300]


def test_odd_arguments_give_a_status_and_leave_the_model_alone(engine):
    calls: list[Callable[[Any], AsStatus]] = [
        engine.start_model, engine.stop_model, engine.release_model,
        lambda odd: engine.install_model(odd),
        lambda odd: engine.install_model(AsModelConfig(model_name=odd, model_path="pocket", compute_unit="CPU:0")),
        lambda odd: engine.install_model(AsModelConfig(model_name="n", model_path=odd, compute_unit="CPU:0")),
        lambda odd: engine.load_lora("m", odd, "/tmp"), lambda odd: engine.load_lora("m", "a", odd),
        lambda odd: engine.unload_lora("m", odd),
        lambda odd: engine.stop_request("m", odd), lambda odd: engine.release_request("m", odd),
        lambda odd: engine.start_request_ids("m", None, odd, {})[0],
        lambda odd: engine.start_request_ids("m", None, [5], odd)[0],
        lambda odd: engine.start_request_ids("m", None, [5], {"num_beams": odd, "max_length": 9})[0],
        lambda odd: engine.start_request_text("m", None, odd, {})[0],
    ]  # fmt: skip
    for call in calls:
        for odd in ODD:
            status = call(odd)
            assert isinstance(status, AsStatus)
            assert status == SUCCESS or (0 < len(status.message) < 3000 and "codec" not in status.message)
    assert engine.get_as_engine_stat(ODD).model_name == ""
    assert engine.model_state("m") is ModelState.Running


def test_a_loop_of_get_and_status_loses_nothing(engine):
    """As DashInfer's page has it; the reader is slow, so that the end comes between its two calls."""
    running = (GenerateRequestStatus.Init, GenerateRequestStatus.ContextFinished, GenerateRequestStatus.Generating)
    _, handle, queue = engine.start_request_ids("m", None, [5, 6], GENERATION)
    tokens: list[int] = []
    status = queue.GenerateStatus()
    while status in running:
        elements = queue.Get()
        time.sleep(0.02)
        if elements is not None:
            tokens += elements.ids_from_generate
        status = queue.GenerateStatus()
    assert len(tokens) == 38 and status is GenerateRequestStatus.GenerateFinished
    _, handle, queue = engine.start_request_ids("m", None, [5, 6], GENERATION)
    engine.sync_request("m", handle)
    assert queue.GenerateStatus() is GenerateRequestStatus.GenerateFinished
    assert len(queue.Get().ids_from_generate) == 38


def test_a_timeout_is_in_milliseconds(monkeypatch):
    waited = []
    queue = ResultQueue(1, None, False, lambda queue: None)
    monkeypatch.setattr(queue._changed, "wait_for", lambda holds, seconds: waited.append(seconds))
    assert queue.GetWithTimeout(250) is None and waited == [0.25]


@for_each("milliseconds", [0, -5, 1, 2.5, float("inf"), 2**63, 10**400, float("-inf")])
def test_any_number_is_a_timeout(engine, milliseconds):
    _, handle, queue = engine.start_request_ids("m", None, [5, 6], GENERATION)
    wait_until(lambda: queue.GeneratedLength() == 38, "the whole answer")
    assert queue.GetWithTimeout(milliseconds) is not None
    assert queue.GetWithTimeout(milliseconds) is None
    for wrong in (None, "5", float("nan"), []):
        with pytest.raises(TypeError, match="must be a number of milliseconds"):
            queue.GetWithTimeout(wrong)
    assert engine.release_request("m", handle) == SUCCESS
