"""A daemon that hangs, and a model that hangs under one: whoever waits is told within a bound; `stop` ends it all.

A model or client that is held up holds up nobody else.
"""

import os
import signal
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any

import httpx
import msgspec
import psutil
import pytest
from builders.cases import for_each
from builders.daemon import RunningDaemon, models, worker_of
from builders.watching import assert_gone, bounded, is_running, module_of, stop, stopped, wait_until

from penstock import LLM, EngineDeadError, PenstockError, SamplingParams
from penstock.frontend import cli
from penstock.frontend.daemon import ending
from penstock.frontend.daemon.address import Address
from penstock.frontend.daemon.background import listens, start_daemon
from penstock.frontend.daemon.ending import DaemonProcess
from penstock.frontend.daemon.lock import MARK, lock_of
from penstock.frontend.daemon.lock import process_of as process_that_locked
from penstock.frontend.session.attached.patience import Patience
from penstock.frontend.session.tree.vital_signs import Chance
from penstock.protocol.attach import WORD_SECONDS
from penstock.protocol.processes.runtime_directory import daemon_socket

ENDLESS = SamplingParams(max_tokens=900, ignore_eos=True)
HELLO = [{"role": "user", "content": "hello"}]
SHORT = SamplingParams(max_tokens=4, ignore_eos=True)
STAND_IN = {"load_format": "stand-in", "max_model_len": 1024, "num_gpu_blocks_override": 128, "quiet": True}


@pytest.fixture
def usual_daemon(monkeypatch) -> Iterator[RunningDaemon]:
    with TemporaryDirectory(prefix="pd") as folder:
        monkeypatch.setenv("PENSTOCK_RUNTIME_DIR", folder)
        config = Path(folder, "config.toml")
        config.write_text(models("pocket", more="watchdog_timeout = 0.6"))
        start_daemon(["--config", str(config), "--no-http"], daemon_socket())
        daemon = RunningDaemon(daemon_socket())
        pids = daemon.processes()
        yield daemon
        for pid in filter(is_running, pids):
            os.kill(pid, signal.SIGKILL)


def raises(call: Callable[[], Any], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        bounded(call)


def test_who_hangs_is_named_to_everybody_a_model_is_started_again_and_stop_ends_a_daemon_with_its_trees(
    usual_daemon, capfd
):
    with usual_daemon.attach() as llm:
        worker = worker_of(usual_daemon)
        stop(worker)
        words = rf"worker 0 process \(pid {worker}\) has been stopped"
        params = msgspec.structs.replace(ENDLESS, continue_on_restart=False)
        raises(lambda: llm.generate([[1]], params, use_tqdm=False), EngineDeadError, words)
        assert_gone([worker])
        assert llm.generate([[1]], SHORT, use_tqdm=False)[0].error_code == 200
        assert usual_daemon.model().restarts == 1
    with ExitStack() as open_ones, ThreadPoolExecutor(16) as threads:
        one, other = (open_ones.enter_context(usual_daemon.attach(watchdog_timeout=1.0)) for _ in range(2))
        pids = usual_daemon.processes()
        assert len(pids) >= 4  # the daemon and a tree, and what else it has started
        stop(pids[0])
        private = threads.submit(lambda: LLM("pocket", connect="auto", **{**STAND_IN, "quiet": False}))
        words = r"\(pid \d+\) has said nothing for \d.*stopped \(SIGSTOP\)"
        calls = (
            lambda: one.generate([[1]], ENDLESS, use_tqdm=False),
            lambda: one.generate([[1] * 500] * 2000, ENDLESS, use_tqdm=False),  # fills the socket
            lambda: list(other.stream([1], ENDLESS)), lambda: other.chat(HELLO, ENDLESS, use_tqdm=False),
            lambda: other.apply_chat_template(HELLO), other.stats, other.list_loras, usual_daemon.attach,
            lambda: LLM("pocket", connect="require", **STAND_IN),
        )  # fmt: skip
        waits = [threads.submit(raises, call, EngineDeadError, words) for call in calls]
        for wait in (*waits, threads.submit(raises, usual_daemon.status, PenstockError, words)):
            wait.result()
        assert private.result()._session.transport.tree.children
        private.result().close()
    assert "has said nothing" in capfd.readouterr().err
    assert bounded(lambda: cli.main(["stop"])) == 0
    said = capfd.readouterr().out
    assert "SIGTERM" in said and "was killed" in said and said.endswith("The daemon has stopped.\n"), said
    assert not any(map(is_running, pids))
    assert not listens(daemon_socket())


def test_a_daemon_that_works_may_be_late_with_some_of_its_words_however_short_the_patience():
    gave_up = []
    connection = SimpleNamespace(num_heard=1, pid=os.getpid(), address="", give_up=gave_up.append)
    patience = Patience(connection, 0.1)
    patience._daemon = SimpleNamespace(chance=Chance)
    for _ in range(3):  # the first look tells what was heard before
        patience._look(0.99 * WORD_SECONDS)
    assert not gave_up
    for _ in range(2):
        patience._look(0.99 * WORD_SECONDS)
    assert "has said nothing" in str(gave_up[0])
    patience.end()


def test_only_the_very_process_that_wrote_the_lock_is_ever_ended(tmp_path):
    address = tmp_path / "socket"
    with Address(address):
        process = process_that_locked(address)
        assert process is not None and process.pid == os.getpid()
        process.close()
        lock = lock_of(address)
        pid, start, boot = lock.read_bytes().removeprefix(MARK).decode().split()
        others = (f"{pid} {int(start) + 1} {boot}", f"1 {start} {boot}", f"{pid} {start} 0")
        for other in (*others, "", "x", "-1"):
            lock.write_bytes(MARK + other.encode())
            assert process_that_locked(address) is None, other
    assert process_that_locked(address) is None


@for_each("count, left", [(1, "1 process of"), (2, "2 processes of")])
def test_what_a_daemon_leaves_behind_when_it_ends_is_killed_and_counted(monkeypatch, count, left):
    monkeypatch.setattr(ending, "_TREE_SECONDS", 0.0)
    with subprocess.Popen(["sh", "-c", f"{'sleep 600 & ' * count} exec sleep 600"]) as one:
        wait_until(lambda: len(psutil.Process(one.pid).children()) == count, "it has started its children")
        children = [child.pid for child in psutil.Process(one.pid).children()]
        daemon = DaemonProcess(one.pid, os.pidfd_open(one.pid))
        first, second = daemon.end()
        daemon.close()
    assert "SIGTERM" in first and second.startswith(f"{left} its models did not end with it")
    assert_gone(children)


@pytest.mark.long
def test_a_daemon_that_nobody_can_reach_any_more_is_ended_all_the_same(usual_daemon, capsys):
    pids = usual_daemon.processes()
    daemon_socket().unlink()
    assert cli.main(["stop"]) == 0
    assert "SIGTERM" in capsys.readouterr().out
    assert_gone(pids)


@pytest.mark.long
def test_a_stopped_daemon_whose_queue_of_connections_is_full_is_passed_by(usual_daemon):
    daemon = psutil.Process(usual_daemon.processes()[0])
    daemon.suspend()
    with ExitStack() as waiting:
        for _ in range(200):
            one = waiting.enter_context(socket.socket(socket.AF_UNIX))
            one.setblocking(False)
            one.connect_ex(str(daemon_socket()))
        with LLM("pocket", connect="auto", **STAND_IN) as llm:
            assert llm._session.transport.tree.children
        for connect in ("require", str(daemon_socket())):
            with pytest.raises(PenstockError, match="takes no connections"):
                LLM("pocket", connect=connect, **STAND_IN)
        for words in (["ps"], ["status"], ["reload"]):
            assert cli.main(words) != 0
        assert cli.main(["stop"]) == 0
    assert not is_running(daemon.pid)


# --- who is held up holds up nobody else: workers that hang, templates without end ------------------------------------


PARAMS = SamplingParams(max_tokens=4, ignore_eos=True)
HI = [{"role": "user", "content": "hi"}]
ENDLESS_TEMPLATE = "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}"


def in_thread(work, *arguments):
    def run():
        with suppress(PenstockError, httpx.HTTPError):  # the daemon ends before the answer
            work(*arguments)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread


def is_answered(llm):
    return [output.error_code for output in llm.chat([HI, HI], PARAMS)] == [200, 200]


def chat(address, model, **more):
    body = {"model": model, "messages": HI, "max_tokens": 2, **more}
    return httpx.post(f"{address}/v1/chat/completions", json=body, timeout=60).status_code


def test_adapters_of_a_worker_that_hangs_leave_other_models_as_they_are(start, tmp_path):
    daemon, folder = start(models("hung", "good", more="enable_lora = true\nmax_loras = 16\n")), tmp_path / "polite"
    folder.mkdir()
    with daemon.attach("hung") as hung:
        worker = worker_of(daemon)
        with daemon.attach("good") as good, stopped(worker):
            loads = [in_thread(hung.load_lora, f"hung{number}", folder) for number in range(8)]
            wait_until(lambda: sum(load.is_alive() for load in loads) == 8, "all loads are under way")
            assert bounded(lambda: is_answered(good))
            bounded(lambda: good.load_lora("polite", folder))
            assert bounded(good.list_loras) == ["polite"]
            bounded(lambda: good.apply_chat_template(HI))
        for load in loads:
            load.join(60)
        assert len(hung.list_loras()) == 8


def test_templates_that_never_end_hold_up_their_own_model_or_client_alone(start):
    """The templates come from a model's own folder, over both doors, and then from clients."""
    config = models("good") + models("endless", more=f'chat_template = "{ENDLESS_TEMPLATE}"\n')
    daemon = start(config, "--http", "127.0.0.1:0", "--trust-request-chat-template")
    address = daemon.status().http
    with daemon.attach("good") as good, daemon.attach("endless") as endless:
        for _ in range(3):
            in_thread(endless.chat, HI, PARAMS)
            in_thread(chat, address, "endless")
        wait_until(lambda: is_rendering(daemon), "a template has begun")
        assert bounded(lambda: is_answered(good))
        assert bounded(lambda: chat(address, "good")) == 200
        with daemon.attach("endless") as other:  # what needs no template
            assert bounded(lambda: other.generate([[1, 2]], PARAMS, False))[0].error_code == 200
        for _ in range(7):
            in_thread(lambda: chat(address, "good", chat_template=ENDLESS_TEMPLATE))
            in_thread(lambda: good.chat(HI, PARAMS, chat_template=ENDLESS_TEMPLATE))
        assert bounded(lambda: chat(address, "good")) == 200
        with daemon.attach("good") as other:
            assert bounded(lambda: is_answered(other))


def is_rendering(daemon) -> bool:
    """A process for templates starts in less time."""
    renderers = [pid for pid in daemon.processes()[1:] if "template" in module_of(pid)]
    return any(sum(psutil.Process(pid).cpu_times()[:2]) > 0.6 for pid in renderers)
