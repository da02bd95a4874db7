"""`/health` asks the processes of a model themselves, and says which are silent; `/metrics` waits for nobody."""

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager

import httpx
import pytest
from builders.served import Served, running_model, served
from builders.watching import wait_until

from penstock.frontend.session.tree.vital_signs import is_stopped

ROLES = ("worker 0", "engine", "detokenizer")
STAND_IN = {"load_format": "stand-in", "max_model_len": 1024, "num_gpu_blocks_override": 128}


@pytest.fixture(scope="module")
def unwatched() -> Iterator[Served]:
    """What is stopped stays so."""
    with running_model("pocket", watchdog_timeout=0, **STAND_IN) as found, served(*found) as server:
        yield server


@contextmanager
def stopped(server: Served, role: str) -> Iterator[None]:
    pid = pid_of(server, role)
    os.kill(pid, signal.SIGSTOP)
    try:
        wait_until(lambda: is_stopped(pid), 10, f"the {role} is stopped")
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def pid_of(server: Served, role: str) -> int:
    return next(child.popen.pid for child in server.llm._session.transport.tree.children if child.role == role)


@pytest.mark.parametrize("role", [pytest.param(role, marks=pytest.mark.long) for role in ROLES[1:]] + [ROLES[0]])
def test_health_names_whoever_is_silent_and_is_well_again_once_it_goes_on(unwatched, role):
    with stopped(unwatched, role):
        for _ in range(2):  # what was asked before is not taken for an answer
            begun = time.monotonic()
            reply = httpx.get(unwatched.address + "/health", timeout=30)
            assert time.monotonic() - begun < 7
            assert reply.status_code == 503
            assert f"pocket: {role}" in reply.text and "/" not in reply.json()["error"]["message"]
    assert httpx.get(unwatched.address + "/health", timeout=30).status_code == 200


@pytest.mark.long
def test_metrics_tell_what_the_server_knows_while_an_engine_is_silent(unwatched):
    with stopped(unwatched, "engine"):
        reply = httpx.get(unwatched.address + "/metrics", timeout=30)
        assert reply.status_code == 200
        assert "penstock_http_replies_total" in reply.text and "penstock_steps_total{" not in reply.text
    assert "penstock_steps_total{" in httpx.get(unwatched.address + "/metrics", timeout=30).text


@pytest.mark.long
def test_a_worker_in_a_long_step_is_not_called_silent(monkeypatch):
    monkeypatch.setenv("PENSTOCK_FAULTS", "worker.step=delay:14@3")
    with running_model("pocket", **STAND_IN) as found, served(*found) as server:
        body = {"model": "pocket", "prompt": "What is", "max_tokens": 8, "ignore_eos": True, "stream": True}
        with httpx.stream("POST", server.address + "/v1/completions", json=body, timeout=60) as stream:
            lines = stream.iter_lines()
            next(lines)
            assert httpx.get(server.address + "/health", timeout=30).status_code == 200
            assert "data: [DONE]" in list(lines)


@pytest.mark.long
@pytest.mark.parametrize("role", ROLES)
def test_a_stream_ends_with_its_cause_when_a_process_hangs(monkeypatch, role):
    monkeypatch.setenv("PENSTOCK_FAULTS", "worker.step=delay:0.04")
    with running_model("pocket", watchdog_timeout=1.0, **STAND_IN) as found, served(*found) as server:
        body = {"model": "pocket", "prompt": "What is", "max_tokens": 900, "ignore_eos": True, "stream": True}
        with httpx.stream("POST", server.address + "/v1/completions", json=body, timeout=30) as stream:
            lines = stream.iter_lines()
            next(lines)
            os.kill(pid_of(server, role), signal.SIGSTOP)
            assert any('"error"' in line for line in lines)
        assert httpx.get(server.address + "/health", timeout=30).status_code == 503


@pytest.mark.long
def test_a_health_check_alone_has_a_hung_process_ended(monkeypatch):
    """Nobody has asked the model anything else."""
    with running_model("pocket", watchdog_timeout=1.0, **STAND_IN) as found, served(*found) as server:
        os.kill(pid_of(server, "detokenizer"), signal.SIGSTOP)
        assert "detokenizer" in httpx.get(server.address + "/health", timeout=30).text
        client = server.llm._session.transport
        wait_until(lambda: client.error is not None, 10, "the tree is ended")
        assert "detokenizer" in str(client.error)
