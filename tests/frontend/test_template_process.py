"""A model's own template in a process apart: the same text as here, within limits, in a process that stays."""

import threading

import pytest

from penstock.frontend.text.chat import render
from penstock.frontend.text.template_input import TemplateInput
from penstock.frontend.text.template_process import TemplateProcesses
from penstock.protocol.errors import RequestError
from penstock.protocol.processes.bounded_process import Bounds

HI = [{"role": "user", "content": "hi"}]
ENDLESS = "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}"
SHOWN = "{{ bos_token }}{% for m in messages %}{{ m | tojson }}{% endfor %}{{ tools }}{{ x }}"


@pytest.fixture(scope="module")
def processes():
    found = TemplateProcesses(Bounds(cpu_seconds=1))
    yield found
    found.close()


def text(processes, template, turn, special_tokens=None, most=1000):
    [found] = processes.render(template, special_tokens or {}, [turn], most)
    return found


@pytest.mark.parametrize("content", ["hi", "\ud800 é 你好 👍", "\x00\u2028", ""])
@pytest.mark.parametrize("x", [None, 10**30, -(2**63) - 1, 1e308, {"a": [1, {"b": None}]}, "\udfff"])
def test_a_conversation_becomes_the_same_text_as_in_this_process(processes, content, x):
    messages = [{"role": "user", "content": content, "more": x}]
    here = render(SHOWN, messages, tools=[], special_tokens={"bos_token": "<s>"}, arguments={"x": x})
    assert text(processes, SHOWN, TemplateInput(messages, [], {"x": x}), {"bos_token": "<s>"}) == here


def test_a_conversation_that_cannot_be_written_down_is_refused_alone(processes):
    deep = []
    for _ in range(10_000):
        deep = [deep]
    odd = [{"role": "user", "content": "x", (1, 2): "y"}], [{"role": "user", "content": "x", "more": deep}]
    turns = [TemplateInput(messages, None, {}) for messages in (HI, *odd, HI)]
    first, *refused, last = processes.render("{{ messages[0].content }}", {}, turns, 1000)
    assert (first, last) == ("hi", "hi")
    for each, name in zip(refused, ("TypeError", "RecursionError"), strict=True):
        assert str(each) == f"This conversation can't be rendered: {name}."


def test_the_process_stays_for_the_next_conversation(processes):
    text(processes, "{{ 1 }}", TemplateInput(HI, None, {}))
    before = [helper._process.popen.pid for helper in processes._all]
    assert [text(processes, "{{ 1 }}", TemplateInput(HI, None, {})) for _ in range(20)] == ["1"] * 20
    assert [helper._process.popen.pid for helper in processes._all] == before


@pytest.mark.parametrize(
    "template, words",
    [
        (ENDLESS, "1 s of processor time"),
        ("{{ 'a' * 10**12 }}", "MiB|MemoryError"),
        ("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "RecursionError|breaks"),
        ("{{ ''.__class__.__mro__ }}", "unsafe|undefined"),
        ("{{", "not valid Jinja"),
        ("{{ raise_exception('no') }}", "refuses this conversation: no"),
    ],
)
def test_what_a_template_does_wrong_is_told_and_the_next_one_is_rendered(processes, template, words):
    refusal = text(processes, template, TemplateInput(HI, None, {}))
    assert isinstance(refusal, RequestError) and any(word in str(refusal) for word in words.split("|")), refusal
    assert text(processes, "{{ messages[0].content }}", TemplateInput(HI, None, {})) == "hi"


def test_a_conversation_may_be_as_large_as_a_body(processes):
    messages = [{"role": "user", "content": "x" * (8 << 20)}]
    given = TemplateInput(messages, None, {})
    assert len(text(processes, "{{ messages[0].content }}!", given, most=9 << 20)) == (8 << 20) + 1


def test_a_conversation_that_is_being_rendered_ends_with_the_model():
    processes, found = TemplateProcesses(), []
    asking = threading.Thread(target=lambda: found.append(text(processes, ENDLESS, TemplateInput(HI, None, {}))))
    asking.start()
    while not (processes._all and processes._all[0]._process):
        assert asking.is_alive()
    processes.close()
    asking.join(10)
    assert isinstance(found[0], RequestError)
    assert isinstance(text(processes, "{{ 1 }}", TemplateInput(HI, None, {})), RequestError)


@pytest.mark.parametrize("template", ["{{ 'a' * 10000000 }}", "{{ raise_exception('a' * 10000000) }}"])
def test_a_text_that_no_prompt_may_have_stays_where_it_was_made(processes, template):
    refusal = text(processes, template, TemplateInput(HI, None, {}))
    assert isinstance(refusal, RequestError) and len(str(refusal)) <= 2000
