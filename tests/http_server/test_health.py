"""`/health` asks the processes of a model themselves, and says which are silent; `/metrics` waits for nobody.

And while a chat template goes on without end, a client's or a model's own, others are answered.
"""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import httpx
import psutil
import pytest
from builders.served import Served, running_model, served
from builders.watching import tree_processes, wait_until

from penstock.frontend.session.threads import Threads
from penstock.frontend.session.tree.vital_signs import is_stopped
from penstock.frontend.text.template_process import TemplateProcesses

ROLES = ("worker 0", "engine", "detokenizer")
ENDLESS = "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}"
STAND_IN = {"load_format": "stand-in", "max_model_len": 1024, "num_gpu_blocks_override": 128}
TEXT = {"model": "pocket", "prompt": "What is", "max_tokens": 1}
CHAT = {"model": "pocket", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 1}
COMPLETIONS, CHATS = "/v1/completions", "/v1/chat/completions"


@pytest.fixture(scope="module")
def unwatched() -> Iterator[Served]:
    """What is stopped stays so, and its own template never ends: it has a second of processor time."""
    options = {"watchdog_timeout": 0, "chat_template": ENDLESS, **STAND_IN}
    with pytest.MonkeyPatch.context() as patch:
        bounds, whose = TemplateProcesses.__init__.__defaults__
        patch.setattr(TemplateProcesses.__init__, "__defaults__", (bounds._replace(cpu_seconds=1), whose))
        with running_model("pocket", **options) as found, served(*found) as server:
            yield server


@pytest.fixture(scope="module")
def http(unwatched) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=unwatched.address, timeout=60) as client:
        yield client


@contextmanager
def stopped(server: Served, role: str) -> Iterator[None]:
    pid = tree_processes(server.llm)[role]
    os.kill(pid, signal.SIGSTOP)
    try:
        wait_until(lambda: is_stopped(pid), 60, f"the {role} is stopped")
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


@contextmanager
def streaming(server: Served, max_tokens: int) -> Iterator[Iterator[str]]:
    """The lines of an answer of so many tokens, of which the first is there."""
    body = {**TEXT, "max_tokens": max_tokens, "ignore_eos": True, "stream": True}
    with httpx.stream("POST", server.address + COMPLETIONS, json=body, timeout=60) as stream:
        lines = stream.iter_lines()
        next(lines)
        yield lines


def begin(server: Served, body: dict, number: int) -> None:
    """So many clients ask for that, each over a connection of its own; their templates have begun."""

    def ask() -> None:
        with suppress(httpx.HTTPError):
            httpx.post(server.address + CHATS, json=body, timeout=60)

    def rendering() -> list[psutil.Process]:
        with suppress(psutil.NoSuchProcess):
            children = psutil.Process().children()
            return [each for each in children if "penstock.frontend.text.template_process" in each.cmdline()]
        return []

    before = {each.pid: each.cpu_times().user for each in rendering()}
    for _ in range(number):
        threading.Thread(target=ask, daemon=True).start()
    wait_until(
        lambda: any(each.cpu_times().user > before.get(each.pid, 0.0) + 0.3 for each in rendering()), 60, "one begins"
    )


def test_templates_that_clients_bring_leave_others_their_turn(pocket, monkeypatch):
    """As many as one client may have rendered at once."""
    threads = Threads("Chat templates", 3)
    monkeypatch.setattr(pocket[0]._session.threads, "request_templates", threads)
    with (
        served(*pocket, trust_request_chat_template=True) as server,
        httpx.Client(base_url=server.address, timeout=60) as client,
    ):
        begin(server, {**CHAT, "chat_template": ENDLESS}, threads.most_of_client)
        assert client.post(CHATS, json=CHAT).status_code == 200
        own = {**CHAT, "chat_template": "{{ messages[0].content }}"}
        assert client.post(CHATS, json=own).status_code == 200
        assert client.get("/health").status_code == 200


def test_what_needs_no_template_is_answered_beside_a_models_own_endless_one(unwatched, http):
    begin(unwatched, CHAT, 2)  # as many as there are threads for it
    assert http.post(COMPLETIONS, json=TEXT).status_code == 200
    assert http.post("/tokenize", json={"prompt": "hi"}).status_code == 200
    for path in ("/health", "/v1/models", "/metrics"):
        assert http.get(path).status_code == 200


@pytest.mark.long
def test_a_models_own_endless_template_is_ended_and_told(http):
    reply = http.post(CHATS, json=CHAT, timeout=120)
    assert reply.status_code == 400 and "1 s of processor time" in reply.json()["error"]["message"]


@pytest.mark.parametrize("role", [pytest.param(role, marks=pytest.mark.long) for role in ROLES[1:]] + [ROLES[0]])
def test_health_names_whoever_is_silent_and_is_well_again_once_it_goes_on(unwatched, http, role):
    with stopped(unwatched, role):
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
    """The last one that asks this model: it is gone afterwards."""
    os.kill(tree_processes(unwatched.llm)["worker 0"], signal.SIGKILL)
    wait_until(lambda: http.get("/health").status_code == 503, 60, "health tells of it")
    refused = http.post(COMPLETIONS, json=TEXT)
    assert refused.status_code == 503 and "/" not in refused.json()["error"]["message"]
    assert http.get("/metrics").status_code == 200


@pytest.mark.long
def test_a_worker_in_a_long_step_is_not_called_silent(monkeypatch):
    monkeypatch.setenv("PENSTOCK_FAULTS", "worker.step=delay:14@3")
    with running_model("pocket", **STAND_IN) as found, served(*found) as server, streaming(server, 8) as lines:
        assert httpx.get(server.address + "/health", timeout=60).status_code == 200
        assert "data: [DONE]" in list(lines)


@pytest.mark.long
@pytest.mark.parametrize("role", ROLES)
def test_a_stream_ends_with_its_cause_when_a_process_hangs(monkeypatch, role):
    monkeypatch.setenv("PENSTOCK_FAULTS", "worker.step=delay:0.04")
    with running_model("pocket", watchdog_timeout=1.0, **STAND_IN) as found, served(*found) as server:
        with streaming(server, 900) as lines:
            os.kill(tree_processes(server.llm)[role], signal.SIGSTOP)
            assert any('"error"' in line for line in lines)
        assert httpx.get(server.address + "/health", timeout=60).status_code == 503


@pytest.mark.long
def test_a_health_check_alone_has_a_hung_process_ended(monkeypatch):
    """Nobody has asked the model anything else."""
    with running_model("pocket", watchdog_timeout=1.0, **STAND_IN) as found, served(*found) as server:
        os.kill(tree_processes(server.llm)["detokenizer"], signal.SIGSTOP)
        assert "detokenizer" in httpx.get(server.address + "/health", timeout=60).text
        client = server.llm._session.transport
        wait_until(lambda: client.error is not None, 60, "the tree is ended")
        assert "detokenizer" in str(client.error)
