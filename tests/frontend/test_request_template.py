"""A chat template that a client brings: what it does wrong ends in its own process, and is told in a sentence."""

import pytest

from penstock.frontend.text.template_input import TemplateInput
from penstock.frontend.text.template_process import render_request_template
from penstock.protocol.errors import RequestError

HI = [{"role": "user", "content": "hi"}]
DOUBLING = "{% set a = namespace(b='x') %}{% for i in range(99) %}{% set a.b = a.b + a.b %}{% endfor %}"


def test_conversations_of_one_template_are_rendered_together_each_with_what_it_brings():
    template = "{{ bos_token }}{% for m in messages %}{{ m.role }}: {{ m.content }}{% endfor %}{{ style }}"
    turns = [TemplateInput(HI, None, {"style": style}) for style in ("!", "?")]
    assert render_request_template(template, {"bos_token": "<s>"}, turns, 1000) == ["<s>user: hi!", "<s>user: hi?"]


def test_a_template_that_refuses_one_conversation_refuses_that_one():
    template = "{{ raise_exception('no ' + style) if style == 'b' else style }}"
    inputs = [TemplateInput(HI, None, {"style": style}) for style in "ab"]
    first, second = render_request_template(template, {}, inputs, 1000)
    assert first == "a" and isinstance(second, RequestError) and "no b" in str(second)


@pytest.mark.parametrize(
    "template, words",
    [
        (DOUBLING, "MemoryError"),
        ("{{ '%999999999999d' % 1 }}", "MiB|MemoryError|OverflowError"),
        ("{{ 10**(10**10) }}", "1 s of processor time|MiB|MemoryError"),
    ],
)
def test_what_a_template_does_wrong_is_told_in_a_sentence(template, words):
    [refusal] = render_request_template(template, {}, [TemplateInput(HI, None, {})], 1000, cpu_seconds=1)
    assert isinstance(refusal, RequestError), refusal
    assert any(word in str(refusal) for word in words.split("|")), str(refusal)
