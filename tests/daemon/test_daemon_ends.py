"""How a daemon whose models are at work changes its models, shuts down, and dies: nobody waits, and nothing is left."""

import os
import signal
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from builders.daemon import RunningDaemon, models, process_of, wait_for, worker_of
from builders.watching import assert_gone, is_running, stop

from penstock import ConfigError, EngineDeadError, PenstockError, SamplingParams
from penstock.frontend.daemon.background import reload_daemon, stop_daemon

PARAMS = SamplingParams(max_tokens=8, ignore_eos=True)
LONG = SamplingParams(max_tokens=900, ignore_eos=True)


def slow_steps(monkeypatch):
    monkeypatch.setenv("PENSTOCK_FAULTS", "worker.step=delay:0.05")


@pytest.fixture(scope="module")
def slow(start_shared) -> RunningDaemon:
    with pytest.MonkeyPatch.context() as environment:
        slow_steps(environment)
        return start_shared(models("a", "b"))


def test_a_worker_that_dies_fails_what_ran_and_later_requests_are_served(slow):
    with slow.attach("a") as llm:
        stream = llm.stream([1, 2, 3], LONG)
        next(stream)
        os.kill(worker_of(slow), signal.SIGKILL)
        with pytest.raises(EngineDeadError, match="worker"):
            list(stream)
        assert llm.generate([[1, 2]], PARAMS, use_tqdm=False)[0].error_code == 200
        assert slow.model("a").restarts == 1


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
    wait_for(lambda: len(slow.status().models) == 2, "the old one has left")
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
        wait_for(lambda: slow.status().is_draining, "it shuts down")
        with pytest.raises(ConfigError, match="shutting down"):
            slow.attach("a")
        assert list(stream)[-1].error_code == 200
        stopping.join(60)
        with pytest.raises(EngineDeadError, match="has ended or closed the connection"):
            llm.generate([[1]], PARAMS, use_tqdm=False)
    wait_for(lambda: not any(map(is_running, children)), "nothing is left")


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
        wait_for(lambda: daemon.model("a").state == "loading", "it is loading")
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
