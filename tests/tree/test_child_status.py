"""How a process of a tree has ended is told whatever the caller does with the ends of its children."""

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

import pytest
from builders.cases import for_each
from builders.starts import STAND_IN

from penstock.protocol.processes import exit_status
from penstock.protocol.processes.process import ChildProcess, start_process, wait_for_ends

# Ways to leave nothing for others to wait for.
IGNORED = "signal.signal(signal.SIGCHLD, signal.SIG_IGN)"
COLLECTED = """
def collect(*_):
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass

signal.signal(signal.SIGCHLD, collect)
"""
COLLECTED_BY_A_THREAD = """
def collect():
    while True:
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            time.sleep(0.01)

threading.Thread(target=collect, daemon=True).start()
"""
HEAD = "import os, signal, threading, time\n"
DEATH = f"""
from penstock import LLM, EngineDeadError

llm = LLM(MODEL, quiet=True, **{STAND_IN!r})
handler = signal.getsignal(signal.SIGCHLD)
children = llm._session.transport.tree.children
os.kill(children[0].popen.pid, signal.SIGSEGV)
try:
    while True:
        llm.generate([[1]], use_tqdm=False)
except EngineDeadError as error:
    print(error)
assert signal.getsignal(signal.SIGCHLD) == handler
"""
TEMPLATE = """
from penstock.frontend.text.template_process import render_request_template
from penstock.frontend.text.template_input import TemplateInput

turns = [TemplateInput([{"role": "user", "content": "hi"}], None, {})]
endless = "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}"
well = render_request_template("{{ messages[0].content }}", {}, turns, 1000)
print(well, render_request_template(endless, {}, turns, 1000, cpu_seconds=1, wall_seconds=600))
"""
# Older kernels forget how a process has ended together with the process.
IS_NOTED = tuple(map(int, os.uname().release.split(".")[:2])) >= (6, 15)


def words(start_script, body: str) -> str:
    script = start_script(HEAD + body)
    output, errors = script.communicate(timeout=120)
    assert script.returncode == 0, errors
    return output


@pytest.mark.parametrize(
    "way",
    [
        pytest.param(IGNORED, id="ignored"),
        pytest.param(COLLECTED, marks=pytest.mark.long, id="collected"),
        pytest.param(COLLECTED_BY_A_THREAD, marks=pytest.mark.long, id="collected by a thread"),
    ],
)
def test_a_caller_that_leaves_no_status_for_others_is_told_how_a_process_has_ended(start_script, way):
    said = words(start_script, way + DEATH)
    assert "The worker 0 process" in said
    assert ("was killed by SIGSEGV" if IS_NOTED else "how is unknown") in said


@pytest.mark.long
@pytest.mark.parametrize("way", [IGNORED, COLLECTED, COLLECTED_BY_A_THREAD])
def test_a_caller_that_leaves_no_status_for_others_renders_templates(start_script, way):
    said = words(start_script, way + TEMPLATE)
    assert said.startswith("['hi'] [RequestError('The chat template of this request ")
    assert "1 s of processor time" in said or not IS_NOTED


@contextmanager
def ignored() -> Iterator[None]:
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGCHLD, before)


def ended(command: str) -> ChildProcess:
    child = start_process("test", ["sh", "-c", f"read word; {command}"], stdin=subprocess.PIPE)
    child.popen.stdin.close()  # not before it has been started altogether
    assert wait_for_ends([child], 60)
    child.close()
    return child


@for_each(
    "command, status, words",
    [
        ("exit 0", 0, "exited with status 0"),
        ("exit 7", 7, "exited with status 7"),
        ("kill -SEGV $$", -signal.SIGSEGV, "was killed by SIGSEGV"),
        ("kill -40 $$", -40, "was killed by signal 40"),
    ],
)
@for_each("is_ignored", [False, *([True] if IS_NOTED else [])])
def test_an_end_has_its_status_and_its_words(command, status, words, is_ignored):
    with ignored() if is_ignored else nullcontext():
        child = ended(command)
    assert (child.status, child.was_killed) == (status, status < 0)
    assert child.describe_end() == f"The test process (pid {child.popen.pid}) {words}"


def test_an_end_that_nobody_noted_is_unknown_and_no_success(monkeypatch):
    monkeypatch.setattr(exit_status, "_GET_INFO", 0)
    with ignored():
        child = ended("exit 7")
    assert child.status is None
    assert "how is unknown" in child.describe_end()
