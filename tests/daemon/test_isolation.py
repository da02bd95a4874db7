"""What one model or one client holds up, holds up nobody else: workers that hang, templates without end."""

import http.client
import json
import os
import signal
import threading
import urllib.error
import urllib.request
from contextlib import contextmanager, suppress

import pytest
from builders.daemon import models, wait_for, worker_of

from penstock import PenstockError, SamplingParams

PARAMS = SamplingParams(max_tokens=4, ignore_eos=True)
HI = [{"role": "user", "content": "hi"}]
ENDLESS = "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}"
# Others are answered within that, on a machine that has much else to do.
BOUND = 5.0


@contextmanager
def stopped(pid):
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def in_thread(work, *arguments):
    def run():
        with suppress(PenstockError, OSError, http.client.HTTPException):  # the daemon ends before the answer
            work(*arguments)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread


def within_bound(work, *arguments):
    found = []
    thread = in_thread(lambda: found.append(work(*arguments)))
    thread.join(BOUND)
    assert found, f"not within {BOUND} s"
    return found[0]


def is_answered(llm):
    return [output.error_code for output in llm.chat([HI, HI], PARAMS)] == [200, 200]


def chat(address, model, **more):
    body = {"model": model, "messages": HI, "max_tokens": 2, **more}
    request = urllib.request.Request(
        f"{address}/v1/chat/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    try:
        with urllib.request.urlopen(request, timeout=60) as reply:
            return reply.status
    except urllib.error.HTTPError as error:
        return error.code


def test_adapters_of_a_worker_that_hangs_leave_other_models_as_they_are(start, tmp_path):
    folder = tmp_path / "polite"
    folder.mkdir()
    room = "enable_lora = true\nmax_loras = 16\n"
    daemon = start(models("a", more=room), "--http", "127.0.0.1:0")
    with daemon.attach("a") as hung:
        worker = worker_of(daemon)
        daemon.config.write_text(models("a", "b", more=room))
        os.kill(daemon.status().pid, signal.SIGHUP)
        wait_for(lambda: "b" in [model.name for model in daemon.status().models], "the other model is known")
        with daemon.attach("b") as good, stopped(worker):
            loads = [in_thread(hung.load_lora, f"hung{number}", folder) for number in range(8)]
            wait_for(lambda: sum(load.is_alive() for load in loads) == 8, "all loads are under way")
            assert within_bound(is_answered, good)
            within_bound(good.load_lora, "polite", folder)
            assert within_bound(good.list_loras) == ["polite"]
            within_bound(good.apply_chat_template, HI)
        for load in loads:
            load.join(20)
        assert len(hung.list_loras()) == 8


@pytest.mark.parametrize("face", ["attached", "http"])
def test_a_template_of_a_models_own_folder_that_never_ends_holds_up_that_model_alone(start, face):
    config = models("good") + models("endless", more=f'chat_template = "{ENDLESS}"\n')
    daemon = start(config, "--http", "127.0.0.1:0")
    address = daemon.status().http
    with daemon.attach("good") as good, daemon.attach("endless") as endless:
        for _ in range(3):
            in_thread(endless.chat, HI, PARAMS) if face == "attached" else in_thread(chat, address, "endless")
        threading.Event().wait(0.3)  # the template has begun
        assert within_bound(is_answered, good)
        assert within_bound(chat, address, "good") == 200
        with daemon.attach("endless") as other:  # what needs no template
            assert within_bound(other.generate, [[1, 2]], PARAMS, False)[0].error_code == 200


def test_endless_templates_of_clients_leave_a_good_client_its_turn(start):
    daemon = start(models("a"), "--http", "127.0.0.1:0", "--trust-request-chat-template")
    address = daemon.status().http
    with daemon.attach("a") as good:
        for _ in range(7):
            in_thread(lambda: chat(address, "a", chat_template=ENDLESS))
        for _ in range(7):
            in_thread(lambda: good.chat(HI, PARAMS, chat_template=ENDLESS))
        threading.Event().wait(0.3)
        assert within_bound(chat, address, "a") == 200
        with daemon.attach("a") as other:
            assert within_bound(is_answered, other)
