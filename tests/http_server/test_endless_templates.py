"""Templates without end, of clients and of a model's own folder: others are answered meanwhile."""

import threading
from contextlib import suppress

import httpx
import pytest
from builders.served import running_model, served

ENDLESS = "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}"
CHAT = {"model": "pocket", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 1}
TEXT = {"model": "pocket", "prompt": "hi", "max_tokens": 1}
# Others are answered within that, on a machine that has much else to do.
BOUND = 10.0


def beside(address, body, number):
    """So many clients that send it, each over a connection of its own; they end with the server."""

    def ask():
        with suppress(httpx.HTTPError):
            httpx.post(f"{address}/v1/chat/completions", json=body, timeout=60)

    for _ in range(number):
        threading.Thread(target=ask, daemon=True).start()
    threading.Event().wait(0.3)  # the templates have begun


def test_templates_that_clients_bring_leave_others_their_turn(pocket):
    with (
        served(*pocket, trust_request_chat_template=True) as server,
        httpx.Client(base_url=server.address, timeout=BOUND) as client,
    ):
        beside(server.address, {**CHAT, "chat_template": ENDLESS}, 7)
        assert client.post("/v1/chat/completions", json=CHAT).status_code == 200
        own = {**CHAT, "chat_template": "{{ messages[0].content }}"}
        assert client.post("/v1/chat/completions", json=own).status_code == 200
        assert client.get("/health").status_code == 200


@pytest.fixture(scope="module")
def endless():
    options = {"chat_template": ENDLESS, "max_model_len": 256, "num_gpu_blocks_override": 64}
    with running_model("pocket", **options) as found, served(*found) as server:
        yield server


def test_what_needs_no_template_is_answered_beside_a_models_own_endless_one(endless):
    beside(endless.address, CHAT, 3)
    with httpx.Client(base_url=endless.address, timeout=BOUND) as client:
        assert client.post("/v1/completions", json=TEXT).status_code == 200
        assert client.post("/tokenize", json={"prompt": "hi"}).status_code == 200
        for path in ("/health", "/v1/models", "/metrics"):
            assert client.get(path).status_code == 200


@pytest.mark.long
def test_a_models_own_endless_template_is_ended_and_told(endless):
    reply = httpx.post(f"{endless.address}/v1/chat/completions", json=CHAT, timeout=120)
    assert reply.status_code == 400 and "5 s of processor time" in reply.json()["error"]["message"]
