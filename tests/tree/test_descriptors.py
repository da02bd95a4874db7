"""A caller with thousands of open files is served as any other; one with too few left is told so, and nothing stays."""

import psutil
import pytest
from builders.starts import STAND_IN

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
with LLM("pocket", **OPTIONS) as llm:
    outputs = llm.generate("x", PARAMS, use_tqdm=False) + llm.chat(CONVERSATION, PARAMS, use_tqdm=False)
    outputs += list(llm.stream("x", PARAMS))[-1:]
    print([output.error_code for output in outputs], llm.stats().running)
"""
)
MANY_MORE = (
    MANY
    + """
from penstock import GuidedDecodingParams
from penstock.frontend.text.template_process import render_request_template
from penstock.frontend.text.template_input import TemplateInput
from penstock.frontend.machine import ask_survey
from penstock.frontend.daemon.background import stop_daemon
from penstock.protocol.attach import daemon_socket

async def asynchronous():
    async with AsyncLLM("pocket", **OPTIONS) as llm:
        return [output.error_code for output in await llm.generate("x", PARAMS)]

print(asyncio.run(asynchronous()))
guided = SamplingParams(max_tokens=3, guided_decoding=GuidedDecodingParams(regex="[ab]+"))
with LLM("pocket", **OPTIONS) as llm:
    print(llm.generate("x", guided, use_tqdm=False)[0].error_code)
turns = [TemplateInput(CONVERSATION, None, {})]
print(render_request_template("{{ messages[0].content }}", {}, turns, 1000), len(ask_survey().families) > 0)
for connect in ("auto", "start"):
    with LLM("pocket", connect=connect, **OPTIONS) as llm:
        outputs = llm.generate("x", PARAMS, use_tqdm=False) + llm.chat(CONVERSATION, PARAMS, use_tqdm=False)
        print(connect, [output.error_code for output in outputs])
stop_daemon(daemon_socket(), 0)
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


def said(start_script, body: str, words: str = "") -> str:
    script = start_script(body)
    output, errors = script.communicate(words, timeout=1200)
    assert script.returncode == 0, errors
    return output


def test_a_caller_with_two_thousand_open_files_is_answered(start_script):
    assert said(start_script, MANY) == "[200, 200, 200] 0\n"


@pytest.mark.long
def test_a_caller_with_two_thousand_open_files_may_do_whatever_others_do(start_script):
    assert said(start_script, MANY_MORE).splitlines()[1:] == [
        "[200]",
        "200",
        "['hi'] True",
        "auto [200, 200]",
        "start [200, 200]",
    ]


@pytest.mark.parametrize("counts", [[6, 33], pytest.param([*range(45)], marks=pytest.mark.long)], ids=["some", "all"])
def test_a_caller_with_too_few_files_left_is_told_what_to_do_and_nothing_stays(start_script, counts):
    """At six ZeroMQ itself would end the caller's process."""
    script = start_script(f"COUNTS = {counts}\n{FEW}")
    words = [script.stdout.readline().strip() for _ in counts]
    assert all("Too many open files. Close files" in each for each in words if each != "200"), words
    assert sorted(words, key="200".__eq__) == words, "with enough it works, and from then on"
    assert psutil.Process(script.pid).children(recursive=True) == []
    script.communicate("", timeout=120)
