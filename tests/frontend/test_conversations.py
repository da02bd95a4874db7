"""Conversations before they are rendered: what messages lack, roles a template leaves out, texts of odd classes."""

from collections import UserString
from unittest import mock

import pytest
from builders.cases import for_each
from builders.tokenizer_kinds import CHAT_TEMPLATES as TEMPLATES

from penstock import SamplingParams
from penstock.frontend.requests.conversation_checks import check_conversation
from penstock.frontend.requests.prompts import parse_prompt, parse_prompts
from penstock.frontend.requests.tool_schemas import check_tools
from penstock.frontend.text.chat import render
from penstock.frontend.text.tokenizer import Tokenizer
from penstock.protocol.errors import RequestError

USER = {"role": "user", "content": "Which animal?"}
TOKENS = {"bos_token": "<s>", "eos_token": "</s>"}
OWN = "{% for m in messages if m.role in ('user', 'critic') %}[{{ m.role }}:{{ m.content | upper }}]{% endfor %}"
FIRST_PART = "{% for m in messages %}{% if m.role != 'usr' %}{{ m.content[0].text }}{% endif %}{% endfor %}"
STRICT = "{% for m in messages %}{% if m.role != 'user' %}{{ raise_exception('No such role') }}{% endif %}{% endfor %}"


@for_each("role", ["usr", "ipython", "observation", "critic", "User", "<role>"])
@for_each("family", TEMPLATES)
def test_a_message_is_in_the_prompt_or_the_conversation_is_refused(family, role):
    try:
        text = render(TEMPLATES[family], [USER, {"role": role, "content": "The blue whale."}], special_tokens=TOKENS)
    except RequestError:
        return
    assert "The blue whale." in text


@for_each("role, meant", [("usr", "user"), ("User", "user"), ("asistant", "assistant"), ("system ", "system")])
def test_the_role_that_was_meant_is_named(role, meant):
    message = {"role": role, "content": "one"}
    with pytest.raises(RequestError, match=f"knows no role '{role}': .* left out. Did you mean {meant}\\?"):
        render(TEMPLATES["qwen3"], [USER, message])
    with pytest.raises(RequestError, match=f"refuses this conversation: No such role. Did you mean {meant}\\?"):
        render(STRICT, [message])


def test_a_tokenizer_by_itself_renders_pictures_where_the_template_has_a_place_for_them():
    picture = {"type": "image_url", "image_url": {"url": "https://nowhere.invalid/a.png"}}
    messages = [{"role": "user", "content": [picture, {"type": "text", "text": "What is it?"}]}]
    text = Tokenizer.from_pretrained("pocket-sight").apply_chat_template(messages)
    assert text.count("<|image_pad|>") == 1 and "What is it?" in text
    with pytest.raises(RequestError, match="no placeholders for pictures"):
        Tokenizer.from_pretrained("pocket").apply_chat_template(messages)
    with pytest.raises(RequestError, match="sees nothing: .* must be text, .*'image_url'"):
        render(FIRST_PART, messages)


def test_a_role_of_the_templates_own_passes_and_another_beside_it_does_not():
    critic = {"role": "critic", "content": "one"}
    assert render(OWN, [USER, critic]) == "[user:WHICH ANIMAL?][critic:ONE]"
    with pytest.raises(RequestError, match="no role 'observer': what such a message says would be left out.$"):
        render(OWN, [USER, critic, {**critic, "role": "observer"}])
    with pytest.raises(RequestError, match="no role 'usr'"):  # though this text stands elsewhere too
        render(OWN, [USER, {"role": "usr", "content": "a"}])
    for role in ("tool", "function", "developer"):  # usual roles pass, also where a template leaves them out
        assert render(OWN, [USER, {"role": role, "content": "one"}]) == "[user:WHICH ANIMAL?]"
    parts = [{"type": "text", "text": "one"}]
    assert render(FIRST_PART, [{"role": "critic", "content": parts}]) == "one"
    with pytest.raises(RequestError, match="no role 'usr'"):
        render(FIRST_PART, [{"role": "critic", "content": parts}, {"role": "usr", "content": parts}])
    # A template that looks at what the message says is believed.
    probed = "{% for m in messages %}{{ raise_exception('odd') if 'probe' in m.content else m.content }}{% endfor %}"
    assert render(probed, [critic]) == "one"


class OddText(str):
    """Nobody can count its characters or write them."""

    __len__ = encode = mock.Mock(side_effect=RuntimeError)


class Pretender:
    """`isinstance` takes it for a text."""

    __class__ = str  # type: ignore[assignment]


def test_a_prompts_plain_text_is_taken_and_what_is_no_text_is_refused_in_a_sentence():
    for prompt in (OddText("abc"), {"prompt": OddText("abc")}):
        parsed = parse_prompt(prompt, SamplingParams())
        assert (type(parsed.text), parsed.text, parsed.refusal) == (str, "abc", None)
    for prompt in (Pretender(), {"prompt": Pretender()}, {"prompt": UserString("abc")}):
        parsed = parse_prompt(prompt, SamplingParams())
        assert parsed.text is None and parsed.refusal.endswith("."), prompt


@for_each("name", ["stop", "bad_words"])
def test_strings_of_parameters_are_plain_ones(name):
    [text] = getattr(SamplingParams(**{name: [OddText("abc")]}), name)
    assert (type(text), text) == (str, "abc")
    for value in (UserString("abc"), [UserString("abc")], [Pretender()]):
        with pytest.raises(RequestError, match=f"{name}=.*must be"):
            SamplingParams(**{name: value})


@for_each("message, fault", [
    ({"content": "a"}, "this one has no role"),
    ({"role": 3, "content": "a"}, "the role of this one is int"),
    ("a", "this one is str"),
    ({"role": "user", "content": [{"type": "text"}]}, "this one has no text"),
    ({"role": "user", "content": [{"type": "text", "text": 3}]}, "the text of this one is int"),
    ({"role": "user", "content": [b"a"]}, "this one is bytes"),
])  # fmt: skip
def test_a_message_or_part_without_its_text_is_told_what_it_lacks(message, fault):
    with pytest.raises(RequestError, match=f"; {fault}.$"):
        check_conversation([message])
    with pytest.raises(RequestError):
        render(TEMPLATES["chatml"], [message])
    for calls in ("x", {"function": {"name": "f"}}, ["f"], [{}], [{"id": "1", "type": "function"}]):
        with pytest.raises(RequestError, match="^tool_calls must be a list of calls such as"):
            check_conversation([{"role": "assistant", "tool_calls": calls}])
    for none in ([], "hello", {"role": "user", "content": "x"}):
        with pytest.raises(RequestError, match="conversation"):
            render(TEMPLATES["chatml"], none)


def test_names_that_templates_may_read_pass_and_so_do_others_names_of_types():
    own = {"images": [], "reason": "x", "weight": 1, "game": "go", "tool_name": "f", "reasoning_details": [], 5: 6}
    check_conversation([{**USER, **own}, {**USER, "content": [{"type": "text", "text": "a", "uuid": "b"}]}])
    for name in ("Content", "contents", "rol", "toolCalls", "tool_call", "reasoningContent"):
        with pytest.raises(RequestError, match=f"no '{name}'. Did you mean"):
            check_conversation([{**USER, name: "x"}])
    kinds = ["OBJECT", "dict", "float", "any", "str", "int", "list", "null", ["string", "null"], None, 5]
    named = {"type": {"type": "string"}, **{f"a{place}": {"type": kind} for place, kind in enumerate(kinds)}}
    check_tools([{"type": "function", "function": {"name": "f", "parameters": {"properties": named}}}, {}, {"a": 1}])


@for_each("params", [{"temperature": 0}, {}, "temperature", 3])
def test_what_can_be_no_parameters_at_all_is_refused_as_a_whole(params):
    with pytest.raises(RequestError, match=f"or one for each prompt, not {type(params).__name__}"):
        parse_prompts(["a"], params, SamplingParams())
