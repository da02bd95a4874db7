"""A process that hangs is noticed within `watchdog_timeout`, named, and its tree ended; one that goes on loses nothing.

Mostly on the stand-in worker, which starts without torch; the matrix of who hangs and who waits is long.
"""

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from builders.watching import GONE_SECONDS, assert_gone, tree_processes, wait_until

from penstock import LLM, AsyncLLM, EngineDeadError, SamplingParams
from penstock.frontend.session.tree.vital_signs import is_stopped

ROLES = ("worker 0", "engine", "detokenizer")
ANSWER = SamplingParams(temperature=0, max_tokens=50, ignore_eos=True)
ENDLESS = SamplingParams(max_tokens=900, ignore_eos=True)
STAND_IN = {"load_format": "stand-in", "max_model_len": 1024, "num_gpu_blocks_override": 256, "quiet": True}
REAL = {"max_model_len": 1024, "kv_cache_memory": "32MiB", "quiet": True}
TIMEOUT = 0.6
# Beyond the bound: it is looked at ten times in it, and a busy machine has other things to do.
NOTICED_SECONDS = TIMEOUT + 4.0
SLOW = "worker.step=delay:0.04"  # so that a stop finds the tree at work


def stop(pid: int) -> None:
    os.kill(pid, signal.SIGSTOP)
    wait_until(lambda: is_stopped(pid), 10, f"{pid} is stopped")


def hangs(call: Callable[[], Any], named: str, within: float = NOTICED_SECONDS) -> None:
    begun = time.monotonic()
    with pytest.raises(EngineDeadError, match=named):
        call()
    assert time.monotonic() - begun < within


def generate(llm: LLM) -> Any:
    return llm.generate([[1, 2, 3]] * 4, ENDLESS, use_tqdm=False)


def test_whoever_is_stopped_while_idle_is_named_by_the_next_call(model_folder):
    with ThreadPoolExecutor(3) as threads:  # all three wait at the same time
        list(threads.map(lambda role: _stopped_while_idle(model_folder, role), ROLES))


def _stopped_while_idle(model_folder: Path, role: str) -> None:
    llm = LLM(model_folder, watchdog_timeout=TIMEOUT, **STAND_IN)
    pids = tree_processes(llm)
    stop(pids[role])
    words = rf"{role} process \(pid {pids[role]}\) has been stopped \(SIGSTOP\) since \d.*log is /"
    hangs(lambda: generate(llm), words)
    assert_gone(pids.values())
    hangs(lambda: generate(llm), role)  # again and at once
    llm.close()


def test_who_goes_on_in_time_has_lost_nothing(model_folder, monkeypatch):
    monkeypatch.setenv("PENSTOCK_FAULTS", "worker.step=delay:0.004")
    with LLM(model_folder, watchdog_timeout=20.0, **STAND_IN) as llm:
        [expected] = llm.generate([[1, 2, 3]], ANSWER, use_tqdm=False)
        for pid in tree_processes(llm).values():
            token_ids = []
            for number, output in enumerate(llm.stream([1, 2, 3], ANSWER)):
                token_ids += output.outputs.token_ids
                if number == 10:
                    stop(pid)
                    threading.Timer(0.2, os.kill, (pid, signal.SIGCONT)).start()
            assert token_ids == expected.outputs.token_ids
        assert llm.stats().running == 0


def test_a_step_that_takes_longer_than_the_timeout_is_no_hang(model_folder, monkeypatch):
    monkeypatch.setenv("PENSTOCK_FAULTS", "worker.step=delay:0.8")
    with LLM(model_folder, watchdog_timeout=0.2, **STAND_IN) as llm:
        [output] = llm.generate([[1, 2, 3]], SamplingParams(max_tokens=3, ignore_eos=True), use_tqdm=False)
    assert len(output.outputs.token_ids) == 3


@pytest.mark.long
@pytest.mark.parametrize(
    "fault, named",
    [
        ("worker.step=delay:9999@40", "worker 0 process .* has shown no sign of life"),
        ("engine.plan=delay:9999@40", "engine process .* has shown no sign of life"),
        ("detokenizer.tokens=delay:9999@3", "detokenizer process .* has shown no sign of life"),
    ],
    ids=lambda text: text.split(".")[0],
)
def test_who_is_stuck_without_being_stopped_is_named_too(model_folder, monkeypatch, fault, named):
    monkeypatch.setenv("PENSTOCK_FAULTS", fault)
    llm = LLM(model_folder, watchdog_timeout=0.5, **STAND_IN)
    pids = tree_processes(llm)
    hangs(lambda: generate(llm), named)
    assert_gone(pids.values())


@pytest.mark.long
def test_who_hangs_while_the_tree_starts_is_named_by_the_constructor(model_folder, monkeypatch):
    monkeypatch.setenv("PENSTOCK_FAULTS", "worker.start=delay:9999")
    with pytest.raises(EngineDeadError, match=r"worker 0 .*neither computed nor read anything"):
        LLM(model_folder, watchdog_timeout=TIMEOUT, **STAND_IN)


def switches(llm: LLM) -> int:
    """How often its processes have gone to sleep, and so have been awake."""
    found = 0
    for pid in tree_processes(llm).values():
        for task in Path(f"/proc/{pid}/task").iterdir():
            lines = (task / "status").read_text().splitlines()
            found += sum(int(line.split()[1]) for line in lines if line.startswith("voluntary_ctxt_switches"))
    return found


def test_a_tree_that_nobody_waits_for_is_left_asleep(model_folder):
    with LLM(model_folder, watchdog_timeout=0.5, **STAND_IN) as llm:
        generate(llm)

        def is_asleep() -> bool:
            before = switches(llm)
            time.sleep(0.4)  # eight looks at it, if there were any
            return switches(llm) == before

        wait_until(is_asleep, 10, "it sleeps")


CALLER = """
from penstock import LLM, SamplingParams
with LLM(MODEL, load_format="stand-in", max_model_len=1024, num_gpu_blocks_override=256, quiet=True,
         watchdog_timeout=0.3) as llm:
    print("ready", flush=True)
    for output in llm.stream([1, 2, 3], SamplingParams(max_tokens=400, ignore_eos=True)):
        print(len(output.outputs.token_ids), flush=True)
    print("end", flush=True)
"""


def test_a_caller_that_was_stopped_itself_blames_nobody(start_script):
    caller = start_script(CALLER, PENSTOCK_FAULTS="worker.step=delay:0.004")
    lines = iter(caller.stdout.readline, "")
    assert next(lines) == "ready\n" and next(lines)
    stop(caller.pid)
    time.sleep(0.9)  # three times the timeout: that is the fault
    caller.send_signal(signal.SIGCONT)
    said, errors = caller.communicate(timeout=60)
    assert said.endswith("end\n") and caller.returncode == 0, errors


def test_who_is_asked_must_answer_this_very_question(model_folder):
    with LLM(model_folder, watchdog_timeout=0, **STAND_IN) as llm:
        client, pids = llm._session.transport, tree_processes(llm)
        silent = lambda: asyncio.run(client.silent(5.0))  # noqa: E731
        assert silent() == []
        for pid in pids.values():
            stop(pid)
        late = client.ask_stats()
        assert silent() == list(pids)
        late.cancel()
        for role in ("worker 0", "engine"):
            os.kill(pids[role], signal.SIGCONT)
        assert silent() == ["detokenizer"]
        os.kill(pids["detokenizer"], signal.SIGCONT)
        assert silent() == []
        llm.generate([[1, 2, 3]], ANSWER, use_tqdm=False)
        assert llm.stats().generated_tokens == 50, "and not the figures of the question that nobody waited for"
        assert not client._stats


# --- the whole matrix ------------------------------------------------------------------------------------------------


def chat(llm: LLM) -> Any:
    return llm.chat([{"role": "user", "content": "hello"}], ENDLESS, use_tqdm=False)


def stream(llm: LLM) -> Any:
    return list(llm.stream([1, 2, 3], ENDLESS))


def beside(llm: LLM) -> Any:
    """From an event loop, over the same session."""
    face = object.__new__(AsyncLLM)
    face._session_future, face._start = Future(), Future()
    face._session_future.set_result(llm._session)
    face._start.set_result(None)
    return asyncio.run(face.generate([[1, 2, 3]], ENDLESS))


CALLS = {"generate": generate, "chat": chat, "stream": stream, "async": beside}


@pytest.mark.long
@pytest.mark.parametrize("is_idle", [True, False], ids=["idle", "at work"])
@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("role", [*ROLES, "worker 1"])
def test_whoever_is_stopped_is_named_to_whoever_waits(monkeypatch, role, call, is_idle):
    monkeypatch.setenv("PENSTOCK_FAULTS", SLOW)
    llm = LLM("pocket", watchdog_timeout=TIMEOUT, tensor_parallel_size=2, **REAL)
    pids = tree_processes(llm)
    if is_idle:
        stop(pids[role])
    else:
        threading.Timer(0.3, os.kill, (pids[role], signal.SIGSTOP)).start()
    hangs(lambda: CALLS[call](llm), f"{role} process .* has been stopped", within=NOTICED_SECONDS + 2)
    assert_gone(pids.values())


@pytest.mark.long
@pytest.mark.parametrize("role", ROLES)
def test_whoever_is_stopped_during_start_up_is_named_by_the_constructor(model_folder, monkeypatch, role):
    monkeypatch.setenv("PENSTOCK_FAULTS", "worker.start=delay:9;engine.start=delay:9;detokenizer.start=delay:9")
    started = threading.Event()

    def stop_it() -> None:
        assert started.wait(20)
        children = subprocess.run(["pgrep", "-P", str(os.getpid())], capture_output=True, text=True).stdout.split()
        modules = {"worker 0": "penstock.worker", "engine": "penstock.engine"}
        module = modules.get(role, "penstock.frontend.text.detokenizer")
        for pid in children:
            if module in Path(f"/proc/{pid}/cmdline").read_text():
                os.kill(int(pid), signal.SIGSTOP)

    stopper = threading.Thread(target=stop_it)
    stopper.start()
    threading.Timer(0.5, started.set).start()
    hangs(lambda: LLM(model_folder, watchdog_timeout=2.0, **STAND_IN), f"{role} process .* has been stopped", within=10)
    stopper.join()


@pytest.fixture
def busy_machine() -> Iterator[None]:
    loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(2 * (os.cpu_count() or 1))]
    yield
    for loop in loops:
        loop.kill()
        loop.wait()


NICE_CALLER = """
import os
os.nice(10)
from penstock import LLM, SamplingParams
options = {"load_format": "stand-in", "max_model_len": 1024, "num_gpu_blocks_override": 256}
with LLM(MODEL, quiet=True, watchdog_timeout=1.0, **options) as llm:
    params = SamplingParams(max_tokens=16, ignore_eos=True)
    for _ in range(3):
        assert all(output.error_code == 200 for output in llm.generate([[1, 2, 3] * 100] * 8, params, use_tqdm=False))
print("end", flush=True)
"""


@pytest.mark.long
def test_a_tree_that_gets_no_core_is_not_taken_for_hung(start_script, busy_machine):
    caller = start_script(NICE_CALLER)
    said, errors = caller.communicate(timeout=600)
    assert said == "end\n", errors


@pytest.mark.long
def test_a_debugger_may_look_as_long_as_it_likes(model_folder):
    """Traced and held for three times the timeout, by ptrace as a debugger does."""
    holder = """
import ctypes, os, sys, time
libc = ctypes.CDLL(None, use_errno=True)
pid = int(sys.argv[1])
assert libc.ptrace(16, pid, 0, 0) == 0, ctypes.get_errno()  # PTRACE_ATTACH: it stops
os.waitpid(pid, 0x40000000)
print("held", flush=True)
time.sleep(3)
assert libc.ptrace(17, pid, 0, 0) == 0  # PTRACE_DETACH
"""
    with LLM(model_folder, watchdog_timeout=TIMEOUT, **STAND_IN) as llm:
        command = [sys.executable, "-c", holder, str(tree_processes(llm)["engine"])]
        debugger = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        try:
            if debugger.stdout.readline() != "held\n":
                pytest.skip("this machine lets nobody trace")
            assert len(generate(llm)) == 4
        finally:
            debugger.communicate()


@pytest.mark.long
def test_the_end_of_a_hung_tree_is_bounded(model_folder):
    llm = LLM(model_folder, watchdog_timeout=0, **STAND_IN)
    pids = tree_processes(llm)
    for pid in pids.values():
        stop(pid)
    begun = time.monotonic()
    llm.close()
    assert time.monotonic() - begun < GONE_SECONDS + 2
    assert_gone(pids.values())
