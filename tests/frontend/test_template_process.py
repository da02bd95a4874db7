"""Templates in processes apart, within limits: a model's own in one that stays, a client's in one for its request."""

import gc
import os
import pickle
import resource
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import reduce

import pytest
from builders.bundled_model import FOLDER
from builders.cases import for_each
from builders.tokenizer_kinds import CHAT_TEMPLATES
from builders.watching import wait_until

from penstock.frontend.text import template_process
from penstock.frontend.text.chat import render
from penstock.frontend.text.template_input import TemplateInput
from penstock.frontend.text.template_options import unread_options
from penstock.frontend.text.template_process import (
    BoundedRenderer,
    TemplateProcesses,
    is_known,
    render_request_template,
)
from penstock.frontend.text.tokenizer import Tokenizer
from penstock.protocol.errors import RequestError
from penstock.protocol.processes.bounded_process import Bounds

HI = [{"role": "user", "content": "hi"}]
# Their time on the clock is no matter here: on a machine at work they may have to wait for their processor time.
ONE_SECOND = Bounds(cpu_seconds=1, memory_bytes=128 << 20, wall_seconds=600.0)
ENDLESS = "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}"
SHOWN = "{{ bos_token }}{% for m in messages %}{{ m | tojson }}{% endfor %}{{ tools }}{{ x }}"


@pytest.fixture(scope="module")
def processes():
    with closing(TemplateProcesses(ONE_SECOND)) as found:
        yield found


def text(processes, template, turn, special_tokens=None, most=1000):
    [found] = processes.render(template, special_tokens or {}, [turn], most)
    return found


@for_each("content", ["hi", "\ud800 é 你好 👍", "\x00\u2028", ""])
@for_each("x", [None, 10**30, -(2**63) - 1, 1e308, {"a": [1, {"b": None}]}, "\udfff"])
def test_a_conversation_becomes_the_same_text_as_in_this_process(processes, content, x):
    messages = [{"role": "user", "content": content, "more": x}]
    here = render(SHOWN, messages, tools=[], special_tokens={"bos_token": "<s>"}, arguments={"x": x})
    assert text(processes, SHOWN, TemplateInput(messages, [], {"x": x}), {"bos_token": "<s>"}) == here


def test_the_process_stays_for_the_next_conversation_which_may_be_as_large_as_a_body():
    with closing(TemplateProcesses(ONE_SECOND)) as fresh:  # one that has grown leaves what is large to the next
        text(fresh, "{{ 1 }}", TemplateInput(HI, None, {}))
        before = [helper._process.popen.pid for helper in fresh.pool._all]
        assert [text(fresh, "{{ 1 }}", TemplateInput(HI, None, {})) for _ in range(20)] == ["1"] * 20
        large = TemplateInput([{"role": "user", "content": "x" * (8 << 20)}], None, {})
        assert len(text(fresh, "{{ messages[0].content }}!", large, most=9 << 20)) == (8 << 20) + 1
        assert [helper._process.popen.pid for helper in fresh.pool._all] == before


def test_a_conversation_that_cannot_be_written_down_is_refused_alone(processes):
    deep = reduce(lambda inner, _: [inner], range(10_000), [])
    odd = [{"role": "user", "content": "x", (1, 2): "y"}], [{"role": "user", "content": "x", "more": deep}]
    turns = [TemplateInput(messages, None, {}) for messages in (HI, *odd, HI)]
    first, *refused, last = processes.render("{{ messages[0].content }}", {}, turns, 1000)
    assert (first, last) == ("hi", "hi")
    for each, name in zip(refused, ("TypeError", "RecursionError"), strict=True):
        assert str(each) == f"This conversation can't be rendered: {name}."


@for_each("template, words", [
    (ENDLESS, "1 s of processor time"), ("{{ 'a' * 10**12 }}", "MiB|more memory"),
    ("{{ '%999999999999d' % 1 }}", "MiB|more memory|OverflowError"),
    ("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "RecursionError|breaks"),
    ("{{ ''.__class__.__mro__ }}", "unsafe|undefined"), ("{{", "not valid Jinja"),
    ("{{ raise_exception('no') }}", "refuses this conversation: no"),
    # A text that is longer than a prompt may be stays in the process.
    ("{{ 'a' * 10000000 }}", ""), ("{{ raise_exception('a' * 10000000) }}", ""),
])  # fmt: skip
def test_what_a_template_does_wrong_is_told_and_the_next_one_is_rendered(processes, template, words):
    refusal = text(processes, template, TemplateInput(HI, None, {}))
    assert isinstance(refusal, RequestError) and any(word in str(refusal) for word in words.split("|")), refusal
    assert len(str(refusal)) <= 2000
    assert text(processes, "{{ messages[0].content }}", TemplateInput(HI, None, {})) == "hi"


def test_a_conversation_that_is_being_rendered_ends_with_the_model():
    processes = TemplateProcesses(Bounds(cpu_seconds=600, wall_seconds=600.0))
    turn = TemplateInput(HI, None, {})
    with ThreadPoolExecutor(1) as threads:
        asking = threads.submit(text, processes, ENDLESS, turn)
        pool = processes.pool
        wait_until(lambda: pool._all and pool._all[0]._process, "the process of the conversation")
        processes.close()
        assert isinstance(asking.result(60), RequestError)
    assert isinstance(text(processes, "{{ 1 }}", turn), RequestError)


def test_conversations_of_one_template_are_rendered_or_refused_each_with_what_it_brings():
    template = (
        "{{ bos_token }}{% for m in messages %}{{ m.role }}: {{ m.content }}{% endfor %}"
        "{{ raise_exception('no ' + style) if style == 'b' else style }}"
    )
    turns = [TemplateInput(HI, None, {"style": style}) for style in "!b?"]
    first, refused, last = render_request_template(template, {"bos_token": "<s>"}, turns, 1000)
    assert (first, last) == ("<s>user: hi!", "<s>user: hi?")
    assert isinstance(refused, RequestError) and "no b" in str(refused)


def test_a_number_that_is_computed_without_end_is_told_in_a_sentence():
    """Within one operation, which no signal interrupts."""
    turn = TemplateInput(HI, None, {})
    [refusal] = render_request_template("{{ 10**(10**10) }}", {}, [turn], 1000, 1, wall_seconds=600.0)
    assert isinstance(refusal, RequestError), refusal
    assert any(word in str(refusal) for word in ("1 s of processor time", "MiB", "more memory")), str(refusal)


def rendered(processes, template, messages=HI, **given):
    flags = {"tools": None, "documents": None, "add_generation_prompt": True, "continue_final_message": False}
    renderer = BoundedRenderer(processes, 1000)
    return renderer(template, messages, **{"special_tokens": {}, "arguments": {}, "sees": False} | flags | given)


@for_each("name", sorted(set(CHAT_TEMPLATES) - {"everything"}))
def test_a_published_template_is_rendered_by_its_caller(name):
    text = CHAT_TEMPLATES[name]
    assert is_known(text) and is_known(f"{text}\n")
    assert not is_known(f"{text} {{{{ 'a' * 10**10 }}}}")


def test_any_other_template_is_rendered_in_a_process_to_the_same_text(processes):
    def weather(city: str) -> str:
        """Tell the weather.

        Args:
            city: where
        """

    given = {"tools": [weather], "documents": [{"title": "t"}], "arguments": {"x": [1, "é"]}}
    shown = "{{ bos_token }}{{ messages|tojson }}{{ tools|tojson }}{{ documents }}{{ x }}{{ add_generation_prompt }}"
    here = render(shown, HI, special_tokens={"bos_token": "<s>"}, **given)
    assert rendered(processes, shown, special_tokens={"bos_token": "<s>"}, **given) == here
    going_on = {"add_generation_prompt": False, "continue_final_message": True}
    assert rendered(processes, "{{ messages[0].content }}!", **going_on) == "hi"
    for messages in ([], [{"role": "user"}], [{"content": "x"}], "hi", 7):
        with pytest.raises(RequestError) as there:
            rendered(processes, shown, messages)
        with pytest.raises(RequestError) as here:
            render(shown, messages)
        assert str(there.value) == str(here.value)


@for_each("template", ["{{ " + "(" * 10**5 + " }}", "{% if x %}" * 5000 + "{% endif %}" * 5000])
def test_a_template_that_is_nested_without_end_is_refused_with_a_sentence(template):
    with pytest.raises(RequestError, match="nested too deeply"):
        unread_options(template, {"x": 1})


@for_each("grown", ["ns.x ~ ns.x", "[ns.x, ns.x]|join"])
def test_a_model_whose_template_takes_all_memory_is_told_so_and_the_caller_keeps_its_own(processes, grown):
    loop = "{% for i in range(99) %}{% set ns.x = " + grown + " %}{% endfor %}{{ ns.x|length }}"
    assert unread_options("{{ 'a' * 10**10 }}{{ 'a'|center(10**10) }}", {"x": 1}) == ["x"], "it is parsed, not compiled"
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    template = "{% set ns = namespace(x='a') %}" + loop
    assert unread_options(template, {"x": 1}) == ["x"]
    with pytest.raises(RequestError, match="more memory|MiB|processor time"):
        rendered(processes, template)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 64 << 10


def test_a_tokenizer_renders_a_strangers_template_in_a_process_that_ends_with_it():
    tokenizer = Tokenizer(FOLDER)
    tokenizer.chat_template = (
        "{% set ns = namespace(x='a') %}{% if messages[0].content == 'boom' %}{% for i in range(99) %}"
        "{% set ns.x = ns.x ~ ns.x %}{% endfor %}{% endif %}{{ ns.x|length }}{{ messages[0].content }}"
    )
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert tokenizer.apply_chat_template(HI) == "1hi"
    with pytest.raises(RequestError, match="more memory|MiB|processor time"):
        tokenizer.apply_chat_template([{"role": "user", "content": "boom"}])
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 64 << 10
    assert pickle.loads(pickle.dumps(tokenizer)).apply_chat_template([HI, HI]) == ["1hi"] * 2
    [helper] = template_process._renderers[tokenizer][1]._processes.pool._all
    if (child := os.fork()) == 0:  # which must neither speak into its parent's process nor end it
        status = 1
        try:
            status = int(tokenizer.apply_chat_template(HI) != "1hi")
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0
    assert tokenizer.apply_chat_template(HI) == "1hi"
    process = helper._process
    del tokenizer
    gc.collect()
    assert process is not None and process.has_ended
