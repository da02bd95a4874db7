"""How a daemon whose models are at work changes its models, shuts down, and dies: nobody waits, and nothing is left."""

import json
import os
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import Any
from unittest.mock import ANY

import httpx
import msgspec
import psutil
import pytest
from builders.daemon import RunningDaemon, models, process_of, processes_of, worker_of
from builders.watching import BOUND_SECONDS, assert_gone, is_running, shared_while, stop, wait_until

from penstock import ConfigError, EngineDeadError, PenstockError, RequestOutput, SamplingParams
from penstock.frontend.daemon.background import reload_daemon, stop_daemon

PARAMS = SamplingParams(max_tokens=8, ignore_eos=True)
MODELS = models("a", "b")
LONG = SamplingParams(max_tokens=900, ignore_eos=True)


def slow_steps(monkeypatch):
    monkeypatch.setenv("PENSTOCK_FAULTS", "worker.step=delay:0.05")


@pytest.fixture(scope="module")
def slow_shared(start_shared) -> Iterator[Callable[[], RunningDaemon]]:
    def start() -> AbstractContextManager[RunningDaemon]:
        with pytest.MonkeyPatch.context() as environment:
            slow_steps(environment)
            return nullcontext(start_shared(MODELS, "--http", "127.0.0.1:0"))

    with shared_while(lambda daemon: os.path.exists(daemon.address), start) as given:
        yield given


@pytest.fixture
def slow(slow_shared) -> RunningDaemon:
    daemon = slow_shared()
    daemon.config.write_text(MODELS)
    reload_daemon(daemon.address)
    return daemon


def test_answers_go_on_in_the_new_processes_when_one_of_their_model_dies(slow, private):
    asked = [SamplingParams(seed=seed, max_tokens=200, ignore_eos=True) for seed in range(2)]
    asked[1] = msgspec.structs.replace(asked[1], n=2, logprobs=1, stop=["never said"])
    whole = private.generate([[1, 2, 3]] * 2, asked, use_tqdm=False)
    with slow.attach("a") as llm:
        restarts = slow.model("a").restarts
        with ThreadPoolExecutor(2) as threads:
            streams = [llm.stream([1, 2, 3], params) for params in asked]
            firsts = [next(stream) for stream in streams]
            refusing = llm.stream([1, 2, 3], msgspec.structs.replace(LONG, continue_on_restart=False))
            next(refusing)
            kept = threads.submit(llm.generate, [[1, 2, 3]] * 2, asked, use_tqdm=False)
            over_http = threads.submit(streamed_over_http, slow, seed=0, max_tokens=200)
            wait_until(lambda: slow.model("a").stats.running == 8, "all of them run")
            os.kill(worker_of(slow), signal.SIGKILL)
            with pytest.raises(EngineDeadError, match="worker"):
                list(refusing)
            pieces = [[first, *stream] for first, stream in zip(firsts, streams)]
            assert [said(each) for each in kept.result()] == [said(each) for each in whole]
        assert [said(*each) for each in pieces] == [said(each) for each in whole]
        assert [sum(piece.notice is not None for piece in each) for each in pieces] == [1, 1]
        events = over_http.result()
        assert "".join(event["choices"][0]["text"] for event in events) == whole[0].outputs.text
        assert [event["notice"] for event in events if "notice" in event] == [ANY]
        assert all(each.notice for each in kept.result()) and whole[0].notice is None
        assert slow.model("a").restarts == restarts + 1


def streamed_over_http(daemon: RunningDaemon, **params: object) -> list[dict[str, Any]]:
    body = {"model": "a", "prompt": [1, 2, 3], "ignore_eos": True, "stream": True, "temperature": 1, **params}
    with httpx.stream("POST", f"{daemon.status().http}/v1/completions", json=body, timeout=BOUND_SECONDS) as reply:
        lines = [line.removeprefix("data: ") for line in reply.iter_lines() if line]
    assert lines.pop() == "[DONE]"
    return list(map(json.loads, lines))


def said(*pieces: RequestOutput) -> list[object]:
    """What each sample says in all the pieces: its text, ids and log-probabilities."""
    samples = [[piece.outputs[number] for piece in pieces] for number in range(len(pieces[0].outputs))]
    return [
        (
            "".join(each.text for each in parts),
            [token for each in parts for token in each.token_ids],
            [entry for each in parts for entry in each.logprobs or ()],
            parts[-1].finish_reason,
        )
        for parts in samples
    ]


def killed_and_held(daemon: RunningDaemon) -> int:
    """The worker's successor, which is stopped before it is ready."""
    own = worker_of(daemon)
    os.kill(own, signal.SIGKILL)
    started: list[int] = []

    def is_started() -> bool:
        with suppress(psutil.NoSuchProcess):
            started[:] = [pid for pid in processes_of(daemon, "penstock.worker") if pid != own]
        return bool(started)

    wait_until(is_started, "the model is started again")
    stop(*started)
    return started[0]


def test_who_leaves_during_a_restart_is_gone_and_who_dies_with_two_workers_has_failed(slow):
    with slow.attach("a") as llm:
        leaving, staying = llm.stream([1, 2, 3], LONG), llm.stream([4, 5, 6], LONG)
        next(leaving), next(staying)
        worker = killed_and_held(slow)
        leaving.close()
        with ThreadPoolExecutor(1) as thread:
            waiting = thread.submit(llm.generate, [[1, 2]], PARAMS, use_tqdm=False)
            os.kill(worker, signal.SIGCONT)
            assert waiting.result()[0].error_code == 200
        assert next(piece.notice for piece in staying if piece.notice)
        wait_until(lambda: slow.model("a").stats.running == 1, "only the one that stays runs")
        os.kill(worker, signal.SIGKILL)
        with pytest.raises(EngineDeadError, match="worker.* at the death before"):
            list(staying)


def test_those_who_wait_for_a_restart_outlive_a_start_that_dies_and_no_shutdown(start, monkeypatch):
    slow_steps(monkeypatch)
    daemon = start(models("a"))
    with daemon.attach("a") as llm:
        stream = llm.stream([1, 2, 3], LONG)
        next(stream)
        os.kill(killed_and_held(daemon), signal.SIGKILL)
        assert next(piece.notice for piece in stream if piece.notice)
        stream.close()
        stream = llm.stream([1, 2, 3], LONG)
        next(stream)
        killed_and_held(daemon)
        stop_daemon(daemon.address, 0.0)
        with pytest.raises(PenstockError, match="[Dd]aemon"):
            list(stream)


def test_a_configuration_is_read_again_without_dropping_anyone(slow):
    with slow.attach("a") as llm:
        stream = llm.stream([1, 2, 3], SamplingParams(max_tokens=60, ignore_eos=True))
        next(stream)
        slow.config.write_text(models("a", "c").replace("1024", "512"))
        assert reload_daemon(slow.address) == "b removed, a changed, c added"
        assert list(stream)[-1].finished  # on the old one
        with slow.attach("a") as other:
            assert other._session.attached.plan.max_model_len == 512
        assert {model.name for model in slow.status().models} == {"a", "c"}
    wait_until(lambda: len(slow.status().models) == 2, "the old one has left")
    slow.config.write_text("[models.a]\nmodel = 3.5\nblock_size = 1\n")
    with pytest.raises(ConfigError, match="block_size=1"):
        reload_daemon(slow.address)
    with slow.attach("c"):  # nothing has changed
        pass


def test_a_shutdown_lets_what_runs_end_and_takes_nothing_new(slow):
    with slow.attach("a") as llm:
        stream = llm.stream([1, 2, 3], SamplingParams(max_tokens=60, ignore_eos=True))
        next(stream)
        children = slow.processes()
        stopping = threading.Thread(target=stop_daemon, args=(slow.address, 600.0))
        stopping.start()
        wait_until(lambda: slow.status().is_draining, "it shuts down")
        with pytest.raises(ConfigError, match="shutting down"):
            slow.attach("a")
        assert list(stream)[-1].error_code == 200
        stopping.join(60)
        with pytest.raises(EngineDeadError, match="has ended or closed the connection"):
            llm.generate([[1]], PARAMS, use_tqdm=False)
    wait_until(lambda: not any(map(is_running, children)), "nothing is left")


def test_requests_have_as_long_as_the_owner_has_set_and_are_told_what_ended_them(start, monkeypatch):
    slow_steps(monkeypatch)
    daemon, said = start(models("a", drain=0.2)), []
    with daemon.attach("a") as llm:
        stream = llm.stream([1, 2, 3], LONG)
        next(stream)
        stop_daemon(daemon.address, say=said.append)
        with pytest.raises(PenstockError, match="[Dd]aemon"):
            list(stream)
    assert said == ["Requests that run: 1; they have 0.2 s to end."]


def test_a_daemon_that_ends_at_once_has_answered_before_and_so_says_nothing_of_a_lost_connection(start):
    daemon, said = start(models("a")), []
    with daemon.attach("a"):
        stop(process_of(daemon, "penstock.engine"))  # it would be asked for its statistics
        stop_daemon(daemon.address, 0.0, said.append)
    assert said == []


def test_a_shutdown_during_a_load_ends_it_and_tells_who_waits(start, monkeypatch):
    monkeypatch.setenv("PENSTOCK_FAULTS", "worker.start=delay:600")
    daemon = start(models("a"))
    with ThreadPoolExecutor(1) as thread:
        waiting = thread.submit(daemon.attach, "a")
        wait_until(lambda: daemon.model("a").state == "loading", "it is loading")
        stop_daemon(daemon.address, 0.0)
        with pytest.raises(PenstockError, match="shutting down|closed the connection"):
            waiting.result(60)


def test_a_killed_daemon_takes_its_processes_along_and_its_clients_are_told(start, monkeypatch):
    slow_steps(monkeypatch)
    daemon = start(models("a"))
    with daemon.attach("a") as llm:
        stream = llm.stream([1, 2, 3], LONG)
        next(stream)
        own, *processes = daemon.processes()
        stop(*processes)  # those of its model, which do nothing for it themselves then
        os.kill(own, signal.SIGKILL)
        with pytest.raises(EngineDeadError, match="The daemon at"):
            list(stream)
        assert_gone([own, *processes])
    daemon.address.unlink()
