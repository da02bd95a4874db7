"""A caller that is killed takes all of its processes along, whatever state either side is in.

Stopped processes and those that hold the interpreter's lock do nothing for it themselves: the kernel must.
"""

import os
import signal
import subprocess
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from builders.starts import STAND_IN
from builders.watching import BOUND_SECONDS, assert_gone, is_running, module_of, stop, wait_until

from penstock.frontend.console import logs

# Each says "ready" when the test may begin.
OPEN = f"""
import os, sys, threading, time
from penstock import LLM, SamplingParams

def opened():
    return LLM(MODEL, quiet=True, **{STAND_IN!r})

def ready(*words):
    print("ready", *words, flush=True)
    time.sleep(6000)
"""
IDLE = OPEN + "llm = opened()\nready()\n"
FORKED = f"""{OPEN}
import multiprocessing

llm = opened()
held = multiprocessing.get_context("fork").Process(target=time.sleep, args=(6000,))
held.start()
print("ready", held.pid, flush=True)
while True:
    llm.generate([[1, 2, 3]] * 8, SamplingParams(max_tokens=900, ignore_eos=True), use_tqdm=False)
"""
EXECUTING = f"""{OPEN}
llm = opened()
print("ready", flush=True)
sys.stdin.readline()
os.execv("/bin/sleep", ["sleep", "6000"])
"""
TEMPLATE = """
from penstock.frontend.text.template_process import render_request_template
from penstock.frontend.text.template_input import TemplateInput

print("ready", flush=True)
endless = "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}"
inputs = [TemplateInput([{"role": "user", "content": "hi"}], None, {})]
render_request_template(endless, {}, inputs, 1000, cpu_seconds=6000)
"""
PROGRAM = """
from penstock.frontend.machine import _output

print("ready", flush=True)
_output(["sh", "-c", "sleep 6000 & wait"])
"""


def processes_of(caller: "subprocess.Popen[str]", count: int) -> list[psutil.Process]:
    """All that it has started, as soon as there are so many programs, however far they are."""
    own, found = psutil.Process(caller.pid), []

    def has_all() -> bool:
        assert caller.poll() is None, caller.stderr.read()
        found[:] = own.children(recursive=True)
        return len(found) >= count and num_pidfds(caller.pid) >= len(own.children())

    wait_until(has_all, f"{count} processes")
    return found


def num_pidfds(pid: int) -> int:
    """Count its children's; a process that has one of a child is done with starting it."""
    links = []
    for link in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):  # closed meanwhile
            links.append(os.readlink(link))
    return sum("pidfd" in link for link in links)


def started(start_script: Callable[..., "subprocess.Popen[str]"], body: str, **environment: str):
    caller = start_script(body, **environment)
    assert caller.stdout.readline() == "ready\n", caller.stderr.read()
    return caller


def pids_of(processes: list[psutil.Process]) -> list[int]:
    return [process.pid for process in processes]


@pytest.mark.parametrize("body, count", [(TEMPLATE, 1), (PROGRAM, 2)], ids=["a template", "a program"])
def test_stopped_processes_go_with_their_caller(start_script, body, count):
    caller = started(start_script, body)
    processes = processes_of(caller, count)
    stop(*pids_of(processes))
    caller.kill()
    assert_gone(pids_of(processes))


def test_a_process_that_holds_the_interpreters_lock_goes_with_its_caller(start_script):
    body = OPEN + "llm = opened()\nprint('ready', flush=True)\nllm.generate([[1, 2, 3]], use_tqdm=False)\n"
    caller = started(start_script, body, PENSTOCK_FAULTS="worker.step=hold:6000@1")
    log = next(path for path in logs.log_folder().glob(f"*-{caller.pid}.log"))
    wait_until(lambda: "The lock is held" in log.read_text(), "the lock is held")
    pids = pids_of(processes_of(caller, 3))
    caller.kill()
    assert_gone(pids)


def test_stopped_processes_go_when_their_caller_becomes_another_program(start_script):
    caller = started(start_script, EXECUTING)
    processes = processes_of(caller, 3)
    stop(*pids_of(processes))
    caller.stdin.write("\n")
    caller.stdin.flush()
    assert_gone(pids_of(processes))
    assert caller.poll() is None, "it is another program now, and lives"


def test_a_process_at_work_goes_with_its_caller_though_a_forked_copy_holds_the_callers_pipes(start_script):
    caller = start_script(FORKED)
    forked = int(caller.stdout.readline().split()[1])
    tree = set(pids_of(psutil.Process(caller.pid).children(recursive=True))) - {forked}
    caller.kill()
    try:
        assert_gone(tree)
        assert len(tree) == 3 and is_running(forked)
    finally:
        os.kill(forked, signal.SIGKILL)


def test_a_ctrl_c_during_the_start_leaves_no_process(start_script):
    caller = start_script(IDLE, PENSTOCK_FAULTS="engine.start=delay:6000")
    pids = pids_of(processes_of(caller, 3))
    caller.send_signal(signal.SIGINT)
    assert_gone(pids)
    assert "KeyboardInterrupt" in caller.communicate(timeout=BOUND_SECONDS)[1]


def test_processes_that_are_stopped_before_they_have_begun_go_with_their_caller(start_script):
    caller = start_script(IDLE)
    own = psutil.Process(caller.pid)
    stopped: set[psutil.Process] = set()

    def has_stopped_all() -> bool:
        for process in set(own.children()) - stopped:
            if module_of(process.pid):  # a program of its own, which has not run a line yet
                process.send_signal(signal.SIGSTOP)
                stopped.add(process)
        return len(stopped) == num_pidfds(caller.pid) == 3

    wait_until(has_stopped_all, "three processes")
    caller.kill()
    assert_gone([process.pid for process in stopped])
