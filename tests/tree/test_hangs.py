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
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from builders.starts import STAND_IN, processes_of
from builders.watching import BOUND_SECONDS, assert_gone, bounded, loop_face, stop, stopped, tree_processes, wait_until

from penstock import LLM, EngineDeadError, SamplingParams
from penstock.protocol.processes.runtime_directory import runtime_base

ROLES = ("worker 0", "engine", "detokenizer")
ANSWER = SamplingParams(temperature=0, max_tokens=50, ignore_eos=True)
ENDLESS = SamplingParams(max_tokens=900, ignore_eos=True)
REAL = {"max_model_len": 1024, "kv_cache_memory": "32MiB"}
TIMEOUT = 0.6
SLOW = "worker.step=delay:0.2"  # so that a stop finds the tree at work


def hangs(call: Callable[[], Any], named: str) -> None:
    with pytest.raises(EngineDeadError, match=named):
        bounded(call)


def generate(llm: LLM) -> Any:
    return llm.generate([[1, 2, 3]] * 4, ENDLESS, use_tqdm=False)


@pytest.mark.parametrize("role", ["engine", *(pytest.param(role, marks=pytest.mark.long) for role in ROLES[::2])])
def test_whoever_is_stopped_while_idle_is_named_by_the_next_call(model_folder, role):
    with LLM(model_folder, watchdog_timeout=TIMEOUT, quiet=True, **STAND_IN) as llm:
        pids = tree_processes(llm)
        stop(pids[role])
        words = rf"{role} process \(pid {pids[role]}\) has been stopped \(SIGSTOP\) since \d.*log is /"
        hangs(lambda: generate(llm), words)
        assert_gone(pids.values())
        hangs(lambda: generate(llm), role)  # again and at once


def test_who_goes_on_in_time_has_lost_nothing_and_answers_the_very_question_that_is_asked(model_folder, monkeypatch):
    monkeypatch.setenv("PENSTOCK_FAULTS", "worker.step=delay:0.004")
    with LLM(model_folder, watchdog_timeout=100.0, quiet=True, **STAND_IN) as llm:
        [expected] = llm.generate([[1, 2, 3]], ANSWER, use_tqdm=False)
        pids = tree_processes(llm)
        for pid in pids.values():
            token_ids = []
            for number, output in enumerate(llm.stream([1, 2, 3], ANSWER)):
                token_ids += output.outputs.token_ids
                if number == 0:  # fifty come as one where nobody reads them for a while
                    stop(pid)
                    threading.Timer(0.2, os.kill, (pid, signal.SIGCONT)).start()
            assert token_ids == expected.outputs.token_ids
        assert llm.stats().running == 0
        only_this_question_is_answered(llm, pids)


def only_this_question_is_answered(llm: LLM, pids: dict[str, int]) -> None:
    client, asked = llm._session.transport, llm.stats().generated_tokens

    def silent(seconds: float = BOUND_SECONDS) -> list[str]:
        return asyncio.run(client.silent(seconds))

    assert silent() == []
    with stopped(*pids.values()):
        late = client.ask_stats()
        assert silent(5.0) == list(pids)
        late.cancel()
        for role in ("worker 0", "engine"):
            os.kill(pids[role], signal.SIGCONT)
        assert silent(5.0) == ["detokenizer"]
    assert silent() == []
    llm.generate([[1, 2, 3]], ANSWER, use_tqdm=False)
    assert llm.stats().generated_tokens == asked + 50, "and not the figures of the question that nobody waited for"
    assert not client._stats


def test_a_step_longer_than_the_timeout_is_no_hang_and_a_tree_that_nobody_waits_for_is_left_asleep(
    model_folder, monkeypatch
):
    monkeypatch.setenv("PENSTOCK_FAULTS", "worker.step=delay:8@2")  # of which it takes a quarter
    with LLM(model_folder, watchdog_timeout=0.5, quiet=True, **STAND_IN) as llm:
        for output in generate(llm):
            assert len(output.outputs.token_ids) == 900, output.error_msg

        def is_asleep() -> bool:
            before = switches(llm)
            time.sleep(0.4)  # eight looks at it, if there were any
            return switches(llm) == before

        wait_until(is_asleep, "it sleeps")


def switches(llm: LLM) -> int:
    """How often its processes have gone to sleep, and so have been awake."""
    found = 0
    for pid in tree_processes(llm).values():
        for task in Path(f"/proc/{pid}/task").iterdir():
            with suppress(OSError):  # a thread that has ended meanwhile
                lines = (task / "status").read_text().splitlines()
                found += sum(int(line.split()[1]) for line in lines if line.startswith("voluntary_ctxt_switches"))
    return found


CALLER = f"""
from penstock import LLM, SamplingParams
with LLM(MODEL, quiet=True, watchdog_timeout=0.3, **{STAND_IN!r}) as llm:
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
    said, errors = caller.communicate(timeout=120)
    assert said.endswith("end\n") and caller.returncode == 0, errors


# --- the rest of the matrix -------------------------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.parametrize(
    "fault, named",
    [
        ("worker.start=delay:9999", r"worker 0 .*neither computed nor read anything"),
        ("worker.step=delay:9999@40", "worker 0 process .* has shown no sign of life"),
        ("engine.plan=delay:9999@40", "engine process .* has shown no sign of life"),
        ("detokenizer.tokens=delay:9999@3", "detokenizer process .* has shown no sign of life"),
    ],
    ids=lambda text: text.split("=")[0],
)
def test_who_is_stuck_without_being_stopped_is_named_too(model_folder, monkeypatch, fault, named):
    monkeypatch.setenv("PENSTOCK_FAULTS", fault)
    before = set(processes_of(runtime_base()))
    hangs(lambda: generate(LLM(model_folder, watchdog_timeout=0.5, quiet=True, **STAND_IN)), named)
    assert_gone(set(processes_of(runtime_base())) - before)


CALLS: dict[str, Callable[[LLM], Any]] = {
    "worker 0": generate,
    "engine": lambda llm: llm.chat([{"role": "user", "content": "hello"}], ENDLESS, use_tqdm=False),
    "detokenizer": lambda llm: list(llm.stream([1, 2, 3], ENDLESS)),
    "worker 1": lambda llm: asyncio.run(loop_face(llm).generate([[1, 2, 3]], ENDLESS)),
}


@pytest.mark.long
@pytest.mark.parametrize("role", CALLS)
def test_whoever_is_stopped_at_work_is_named_to_whoever_waits(monkeypatch, role):
    monkeypatch.setenv("PENSTOCK_FAULTS", SLOW)
    with LLM("pocket", watchdog_timeout=TIMEOUT, tensor_parallel_size=2, quiet=True, **REAL) as llm:
        pids = tree_processes(llm)
        threading.Timer(0.3, os.kill, (pids[role], signal.SIGSTOP)).start()
        hangs(lambda: CALLS[role](llm), f"{role} process .* has been stopped")
        assert_gone(pids.values())


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
    with LLM(model_folder, watchdog_timeout=TIMEOUT, quiet=True, **STAND_IN) as llm:
        command = [sys.executable, "-c", holder, str(tree_processes(llm)["engine"])]
        debugger = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        try:
            if debugger.stdout.readline() != "held\n":
                pytest.skip("this machine lets nobody trace")
            assert len(generate(llm)) == 4
        finally:
            debugger.communicate(timeout=BOUND_SECONDS)
