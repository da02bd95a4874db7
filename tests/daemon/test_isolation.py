"""A model or client that is held up holds up nobody else: workers that hang, templates without end."""

import http.client
import json
import os
import signal
import threading
import urllib.error
import urllib.request
from contextlib import suppress

import psutil
from builders.daemon import models, wait_for, worker_of
from builders.watching import bounded, module_of, stopped

from penstock import PenstockError, SamplingParams

PARAMS = SamplingParams(max_tokens=4, ignore_eos=True)
HI = [{"role": "user", "content": "hi"}]
ENDLESS = "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}"


def in_thread(work, *arguments):
    def run():
        with suppress(PenstockError, OSError, http.client.HTTPException):  # the daemon ends before the answer
            work(*arguments)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread


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
            assert bounded(lambda: is_answered(good))
            bounded(lambda: good.load_lora("polite", folder))
            assert bounded(good.list_loras) == ["polite"]
            bounded(lambda: good.apply_chat_template(HI))
        for load in loads:
            load.join(60)
        assert len(hung.list_loras()) == 8


def test_templates_that_never_end_hold_up_their_own_model_or_client_alone(start):
    """The templates come from a model's own folder, over both doors, and then from clients."""
    config = models("good") + models("endless", more=f'chat_template = "{ENDLESS}"\n')
    daemon = start(config, "--http", "127.0.0.1:0", "--trust-request-chat-template")
    address = daemon.status().http
    with daemon.attach("good") as good, daemon.attach("endless") as endless:
        for _ in range(3):
            in_thread(endless.chat, HI, PARAMS)
            in_thread(chat, address, "endless")
        wait_for(lambda: is_rendering(daemon), "a template has begun")
        assert bounded(lambda: is_answered(good))
        assert bounded(lambda: chat(address, "good")) == 200
        with daemon.attach("endless") as other:  # what needs no template
            assert bounded(lambda: other.generate([[1, 2]], PARAMS, False))[0].error_code == 200
        for _ in range(7):
            in_thread(lambda: chat(address, "good", chat_template=ENDLESS))
            in_thread(lambda: good.chat(HI, PARAMS, chat_template=ENDLESS))
        assert bounded(lambda: chat(address, "good")) == 200
        with daemon.attach("good") as other:
            assert bounded(lambda: is_answered(other))


def is_rendering(daemon) -> bool:
    """A process for templates starts in less time."""
    renderers = [pid for pid in daemon.processes()[1:] if "template" in module_of(pid)]
    return any(sum(psutil.Process(pid).cpu_times()[:2]) > 1.0 for pid in renderers)
