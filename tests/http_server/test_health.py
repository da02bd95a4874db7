"""`/health` asks the processes of a model themselves, and says which are silent; `/metrics` waits for nobody."""

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import httpx
import pytest
from builders.served import Served, running_model, served
from builders.watching import is_running, shared_while, stopped, tree_processes, wait_until

ROLES = ("worker 0", "engine", "detokenizer")
STAND_IN = {"load_format": "stand-in", "max_model_len": 1024, "num_gpu_blocks_override": 128}
TEXT = {"model": "pocket", "prompt": "What is", "max_tokens": 1}


@contextmanager
def started() -> Iterator[Served]:
    with running_model("pocket", watchdog_timeout=0, **STAND_IN) as found, served(*found) as server:
        yield server


@pytest.fixture(scope="module")
def unwatched_shared() -> Iterator[Callable[[], Served]]:
    with shared_while(lambda server: all(map(is_running, tree_processes(server.llm).values())), started) as given:
        yield given


@pytest.fixture
def unwatched(unwatched_shared) -> Served:
    return unwatched_shared()


@pytest.fixture
def http(unwatched) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=unwatched.address, timeout=60) as client:
        yield client


@pytest.mark.parametrize("role", [pytest.param(role, marks=pytest.mark.long) for role in ROLES[1:]] + [ROLES[0]])
def test_health_names_whoever_is_silent_and_is_well_again_once_it_goes_on(unwatched, http, role):
    with stopped(tree_processes(unwatched.llm)[role]):
        for _ in range(2):  # what was asked before is not taken for an answer
            reply = http.get("/health")
            assert reply.status_code == 503
            assert f"pocket: {role}" in reply.text and "/" not in reply.json()["error"]["message"]
        metrics = http.get("/metrics")
        assert metrics.status_code == 200 and "penstock_http_replies_total" in metrics.text
        assert ("penstock_steps_total{" in metrics.text) == (role != "engine")
    assert http.get("/health").status_code == 200
    assert "penstock_steps_total{" in http.get("/metrics").text


def test_a_tree_that_has_died_is_told_by_health_and_by_every_request(unwatched, http):
    os.kill(tree_processes(unwatched.llm)["worker 0"], signal.SIGKILL)
    wait_until(lambda: http.get("/health").status_code == 503, "health tells of it")
    refused = http.post("/v1/completions", json=TEXT)
    assert (refused.status_code, refused.headers["Retry-After"]) == (503, "2")
    assert refused.json()["error"]["message"].startswith("The model's processes have ended")
    assert http.get("/metrics").status_code == 200


@pytest.mark.long
def test_a_worker_in_a_long_step_is_not_called_silent(monkeypatch):
    monkeypatch.setenv("PENSTOCK_FAULTS", "worker.step=delay:14@3")
    body = {**TEXT, "max_tokens": 8, "ignore_eos": True, "stream": True}
    with (
        running_model("pocket", **STAND_IN) as found, served(*found) as server,
        httpx.stream("POST", server.address + "/v1/completions", json=body, timeout=60) as stream,
    ):  # fmt: skip
        next(lines := stream.iter_lines())
        assert httpx.get(server.address + "/health", timeout=60).status_code == 200
        assert "data: [DONE]" in list(lines)


@pytest.mark.long
def test_a_health_check_alone_has_a_hung_process_ended():
    with running_model("pocket", watchdog_timeout=1.0, **STAND_IN) as found, served(*found) as server:
        os.kill(tree_processes(server.llm)["detokenizer"], signal.SIGSTOP)
        assert "detokenizer" in httpx.get(server.address + "/health", timeout=60).text
        client = server.llm._session.transport
        wait_until(lambda: client.error is not None, "the tree is ended")
        assert "detokenizer" in str(client.error)
