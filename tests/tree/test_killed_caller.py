"""A caller that is killed takes all of its processes along within 3 s, whatever state either side is in.

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
from builders.watching import assert_gone, is_running, wait_until

from penstock.frontend.console import logs

START_SECONDS = 60

# Each says "ready" when the test may begin.
OPEN = """
import os, sys, threading, time
from penstock import LLM, GuidedDecodingParams, SamplingParams

def opened(**faults):
    os.environ.update(faults)
    return LLM(MODEL, load_format="stand-in", max_model_len=1024, num_gpu_blocks_override=256, quiet=True)

def ready():
    print("ready", flush=True)
    time.sleep(600)

def thread(work):
    worker = threading.Thread(target=work)
    worker.start()
    worker.join()
"""
IDLE = OPEN + "llm = opened()\nready()\n"
OF_A_THREAD_THAT_HAS_ENDED = (
    OPEN
    + """
trees = []
thread(lambda: trees.append(opened()))
assert trees[0].generate([[1, 2]], SamplingParams(max_tokens=2), use_tqdm=False)[0].error_code == 200
ready()
"""
)
FORKED = (
    OPEN
    + """
llm = opened()
if os.fork() == 0:
    time.sleep(600)
ready()
"""
)
EXECUTING = (
    OPEN
    + """
llm = opened()
print("ready", flush=True)
sys.stdin.readline()
os.execv("/bin/sleep", ["sleep", "600"])
"""
)
GUIDED = (
    OPEN
    + """
llm = LLM("pocket", load_format="stand-in", max_model_len=256, num_gpu_blocks_override=64, quiet=True)
shape = GuidedDecodingParams(regex="(yes|no)")
llm.generate(["x"], SamplingParams(max_tokens=4, guided_decoding=shape), use_tqdm=False)
ready()
"""
)
TEMPLATE = """
from penstock.frontend.text.template_process import render_request_template
from penstock.frontend.text.template_input import TemplateInput

print("ready", flush=True)
endless = "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}"
inputs = [TemplateInput([{"role": "user", "content": "hi"}], None, {})]
render_request_template(endless, {}, inputs, 1000, cpu_seconds=600)
"""
TOKENIZER = """
from pathlib import Path
from penstock.frontend.text.convert_tokenizer import _convert

print("ready", flush=True)
_convert(Path(MODEL), Path(MODEL, "none"))
"""
SURVEY = """
from penstock.frontend.machine import ask_survey

print("ready", flush=True)
ask_survey(with_torch=True)
"""
PROGRAM = """
from penstock.frontend.machine import _output

print("ready", flush=True)
_output(["sh", "-c", "sleep 600 & wait"])
"""
CONVERSION = """
import sys
from penstock.frontend import cli

print("ready", flush=True)
cli.main(["convert", MODEL, MODEL + "-small", "--quantization", "int8", "--quiet"])
"""


def processes_of(caller: "subprocess.Popen[str]", count: int) -> list[psutil.Process]:
    """All that it has started, as soon as there are so many programs, however far they are."""
    own, found = psutil.Process(caller.pid), []

    def has_all() -> bool:
        assert caller.poll() is None, caller.stderr.read()
        found[:] = own.children(recursive=True)
        return len(found) >= count and num_pidfds(caller.pid) >= len(own.children())

    wait_until(has_all, START_SECONDS, f"{count} processes")
    return found


def num_pidfds(pid: int) -> int:
    """Of its children; whoever has one of a child is done with starting it."""
    links = []
    for link in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):  # closed meanwhile
            links.append(os.readlink(link))
    return sum("pidfd" in link for link in links)


def started(start_script: Callable[..., "subprocess.Popen[str]"], body: str, **environment: str):
    caller = start_script(body, **environment)
    assert caller.stdout.readline() == "ready\n", caller.stderr.read()
    return caller


def stop(processes: list[psutil.Process]) -> None:
    for process in processes:
        process.send_signal(signal.SIGSTOP)
    wait_until(
        lambda: all(process.status() == psutil.STATUS_STOPPED for process in processes), START_SECONDS, "all stopped"
    )


def pids_of(processes: list[psutil.Process]) -> list[int]:
    return [process.pid for process in processes]


@pytest.mark.parametrize(
    "body, count",
    [
        pytest.param(IDLE, 3, marks=pytest.mark.long, id="idle"),
        pytest.param(OF_A_THREAD_THAT_HAS_ENDED, 3, id="started by a thread that has ended"),
        pytest.param(GUIDED, 4, marks=pytest.mark.long, id="with one that tries grammars"),
        pytest.param(TEMPLATE, 1, id="rendering a template"),
        pytest.param(TOKENIZER, 1, marks=pytest.mark.long, id="converting a tokenizer"),
        pytest.param(SURVEY, 1, marks=pytest.mark.long, id="surveying"),
        pytest.param(PROGRAM, 2, id="running a program that runs others"),
        pytest.param(CONVERSION, 1, marks=pytest.mark.long, id="converting a model"),
    ],
)
def test_stopped_processes_go_with_their_caller(start_script, body, count):
    caller = started(start_script, body)
    processes = processes_of(caller, count)
    stop(processes)
    caller.kill()
    assert_gone(pids_of(processes))


@pytest.mark.parametrize(
    "point",
    [
        "worker.step",
        pytest.param("engine.plan", marks=pytest.mark.long),
        pytest.param("detokenizer.tokens", marks=pytest.mark.long),
    ],
)
def test_a_process_that_holds_the_interpreters_lock_goes_with_its_caller(start_script, point):
    body = OPEN + "llm = opened()\nprint('ready', flush=True)\nllm.generate([[1, 2, 3]], use_tqdm=False)\n"
    caller = started(start_script, body, PENSTOCK_FAULTS=f"{point}=hold:600@1")
    log = next(path for path in logs.log_folder().glob(f"*-{caller.pid}.log"))
    wait_until(lambda: "The lock is held" in log.read_text(), START_SECONDS, "the lock is held")
    pids = pids_of(processes_of(caller, 3))
    caller.kill()
    assert_gone(pids)


def test_stopped_processes_go_with_their_caller_though_a_fork_of_it_lives_on(start_script):
    caller = started(start_script, FORKED)
    everything = psutil.Process(caller.pid).children()
    [forked] = [process for process in everything if "penstock" not in " ".join(process.cmdline())]
    processes = [process for process in everything if process != forked]
    stop(processes)
    caller.kill()
    assert_gone(pids_of(processes))
    assert is_running(forked.pid), "the point was that another process is a copy of the caller"
    forked.kill()


def test_stopped_processes_go_when_their_caller_becomes_another_program(start_script):
    caller = started(start_script, EXECUTING)
    processes = processes_of(caller, 3)
    stop(processes)
    caller.stdin.write("\n")
    caller.stdin.flush()
    assert_gone(pids_of(processes))
    assert caller.poll() is None, "it is another program now, and lives"


def test_processes_that_are_stopped_before_they_have_begun_go_with_their_caller(start_script):
    caller = start_script(IDLE)
    own = psutil.Process(caller.pid)
    stopped: set[psutil.Process] = set()

    def has_stopped_all() -> bool:
        for process in set(own.children()) - stopped:
            if "penstock" in " ".join(process.cmdline()):  # a program of its own, which has not run a line yet
                process.send_signal(signal.SIGSTOP)
                stopped.add(process)
        return len(stopped) == num_pidfds(caller.pid) == 3

    wait_until(has_stopped_all, START_SECONDS, "three processes")
    caller.kill()
    assert_gone([process.pid for process in stopped])
