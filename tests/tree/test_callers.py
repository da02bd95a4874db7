"""Callers with habits of their own: one that leaves nobody the status of its children is told how one has ended, one
with thousands of open files is served as any other, and one with too few left is told so.
"""

import os
import re
import resource
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

import psutil
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
HEAD = "import os, signal\n"
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


@pytest.mark.parametrize("way, body, end", [
    (IGNORED, DEATH, "The worker 0 process .* " + ("was killed by SIGSEGV" if IS_NOTED else "how is unknown")),
    pytest.param(COLLECTED, TEMPLATE, r"\['hi'\] \[RequestError\('The chat template of this ", marks=pytest.mark.long),
])  # fmt: skip
def test_a_caller_that_leaves_no_status_for_others_is_told_how_a_process_has_ended(start_script, way, body, end):
    script = start_script(HEAD + way + body)
    said, errors = script.communicate(timeout=120)
    assert script.returncode == 0, errors
    assert re.search(end, said), said


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


@for_each("command, status, words", [
    ("exit 0", 0, "exited with status 0"), ("exit 7", 7, "exited with status 7"),
    ("kill -SEGV $$", -signal.SIGSEGV, "was killed by SIGSEGV"), ("kill -40 $$", -40, "was killed by signal 40"),
])  # fmt: skip
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


# --- open files -------------------------------------------------------------------------------------------------------

OPTIONS = f"""
import asyncio, os, resource, sys
from penstock import LLM, AsyncLLM, PenstockError, SamplingParams

OPTIONS = {dict(STAND_IN, quiet=True)!r}
PARAMS = SamplingParams(max_tokens=3, ignore_eos=True)
CONVERSATION = [{{"role": "user", "content": "hi"}}]
HARD = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
"""
MANY = (
    OPTIONS
    + """
resource.setrlimit(resource.RLIMIT_NOFILE, (2200, HARD))
held = [os.eventfd(0) for _ in range(2000)]
guided = SamplingParams(max_tokens=3, guided_regex="[ab]+")

async def asynchronous():
    async with AsyncLLM("pocket", **OPTIONS) as llm:
        return await llm.generate("x", PARAMS)

with LLM("pocket", **OPTIONS) as llm:
    outputs = llm.generate("x", PARAMS, use_tqdm=False) + llm.chat(CONVERSATION, PARAMS, use_tqdm=False)
    outputs += list(llm.stream("x", PARAMS))[-1:] + llm.generate("x", guided, use_tqdm=False)
    outputs += asyncio.run(asynchronous())
    print([output.error_code for output in outputs], llm.stats().running)
"""
)
FEW = (
    OPTIONS
    + """
resource.setrlimit(resource.RLIMIT_NOFILE, (256, HARD))
words = []
for count in COUNTS:
    held = []
    try:
        while True:
            held.append(os.eventfd(0))
    except OSError:
        for _ in range(count):
            os.close(held.pop())
    try:
        with LLM("pocket", **OPTIONS) as llm:
            words.append(str(llm.generate("x", PARAMS, use_tqdm=False)[0].error_code))
    except PenstockError as error:
        words.append(str(error))
    for descriptor in held:
        os.close(descriptor)
print("\\n".join(words), flush=True)
sys.stdin.read()
"""
)


def test_a_caller_with_two_thousand_open_files_is_answered(start_script):
    if 0 <= resource.getrlimit(resource.RLIMIT_NOFILE)[1] < 2200:
        pytest.skip("this user may not open so many files")
    script = start_script(MANY)
    output, errors = script.communicate(timeout=1200)
    assert (script.returncode, output) == (0, "[200, 200, 200, 200, 200] 0\n"), errors


@pytest.mark.parametrize("counts", [[6, 33], pytest.param([*range(45)], marks=pytest.mark.long)], ids=["some", "all"])
def test_a_caller_with_too_few_files_left_is_told_what_to_do_and_nothing_stays(start_script, counts):
    """At six ZeroMQ itself would end the caller's process."""
    script = start_script(f"COUNTS = {counts}\n{FEW}")
    words = [script.stdout.readline().strip() for _ in counts]
    assert all("Too many open files. Close files" in each for each in words if each != "200"), words
    assert sorted(words, key="200".__eq__) == words, "with enough it works, and from then on"
    assert psutil.Process(script.pid).children(recursive=True) == []
    script.communicate("", timeout=120)
