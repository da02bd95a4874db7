"""Content in parts reaches a template in parts wherever it looks at them, and as one text wherever it doesn't."""

import itertools
from contextlib import closing

import pytest
from builders.cases import for_each
from builders.tokenizer_kinds import CHAT_TEMPLATES as TEMPLATES
from builders.tokenizer_kinds import write_tokenizer

from penstock.frontend.text.chat import render
from penstock.frontend.text.template_input import TemplateInput, render_input
from penstock.frontend.text.template_process import TemplateProcesses
from penstock.protocol.errors import RequestError
from penstock.protocol.processes.bounded_process import Bounds

IN_PARTS = {"gemma3", "glm4.5", "kimi-k2", "mistral-v7", "qwen3.5", "reka", "step3.5"}
SPECIAL = {"bos_token": "<s>", "eos_token": "</s>"}
CALL = {"id": "call_1", "type": "function", "function": {"name": "look", "arguments": {"at": "it"}}}


def part(text, **more):
    return {"type": "text", "text": text, **more}


def message(role, *texts, **more):
    return {"role": role, "content": [part(text) for text in texts], **more}


CONVERSATIONS = {
    "user": [message("user", "one", "two\n", "three")],
    "one part": [message("user", "only")],
    "more in a part": [{"role": "user", "content": [part("a", cache_control={"type": "ephemeral"}), part("b")]}],
    "bare texts": [{"role": "user", "content": ["a", "b"]}],
    "no parts": [message("user")],
    "system": [message("system", "Be ", "brief."), message("user", "Hello")],
    "turns": [message("user", "Hello"), message("assistant", "<think>\nhm\n</think>\n\n", "Hi"), message("user", "?")],
    "tool": [
        message("user", "Look"),
        message("assistant", "I ", "look", tool_calls=[CALL]),
        message("tool", '{"seen": ', "3}", tool_call_id="call_1"),
    ],
}


def in_parts(conversation):
    pieces = [[part(each) if isinstance(each, str) else each for each in one["content"]] for one in conversation]
    return [{**one, "content": content} for one, content in zip(conversation, pieces)]


def joined(conversation):
    return [{**one, "content": "\n".join(each["text"] for each in one["content"])} for one in in_parts(conversation)]


def outcome(work):
    try:
        return work()
    except Exception as error:
        return f"refused: {error}"


@pytest.fixture(scope="module")
def reference(tmp_path_factory):
    """transformers' own way from a conversation to a text."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(write_tokenizer(tmp_path_factory.mktemp("t"), "byte_fallback"))

    def rendered(template, conversation):
        options = {"tokenize": False, "add_generation_prompt": True, **SPECIAL}
        return tokenizer.apply_chat_template(in_parts(conversation), chat_template=template, **options)

    return rendered


@for_each("name", CONVERSATIONS)
@for_each("family", sorted(IN_PARTS))
def test_parts_are_rendered_as_transformers_renders_them(family, name, reference):
    template, conversation = TEMPLATES[family], CONVERSATIONS[name]
    expected = outcome(lambda: reference(template, conversation))
    found = outcome(lambda: render(template, conversation, special_tokens=SPECIAL))
    if "concatenate" in expected:  # the template goes through the users' parts alone
        in_text = [each if each["role"] == "user" else text for each, text in zip(conversation, joined(conversation))]
        assert found == outcome(lambda: render(template, in_text, special_tokens=SPECIAL))
    elif expected.startswith("refused"):
        assert found.endswith(expected.removeprefix("refused: "))
    else:
        assert found == expected


@for_each("family, name", [
    *itertools.product(sorted(TEMPLATES.keys() - IN_PARTS), ("user", "system", "turns", "tool")),
    *(("qwen3", name) for name in ("one part", "more in a part", "bare texts", "no parts")),  # joined for all alike
])  # fmt: skip
def test_a_template_that_looks_at_no_parts_gets_them_as_one_text(family, name):
    template, conversation = TEMPLATES[family], CONVERSATIONS[name]
    found = outcome(lambda: render(template, conversation, special_tokens=SPECIAL))
    assert found == outcome(lambda: render(template, joined(conversation), special_tokens=SPECIAL))


LOOP = "{% for p in c %}[{{ p.text }}]{% endfor %}"
WAYS = {
    "an attribute": "{% for p in messages[0].content %}[{{ p.text }}]{% endfor %}",
    "an item": "{% for p in messages[0]['content'] %}[{{ p['text'] }}]{% endfor %}",
    "get": "{% for p in messages[0].get('content', []) %}[{{ p.get('text') }}]{% endfor %}",
    "a name": "{% set c = messages[0].content %}" + LOOP,
    "a name of a name": "{% set d = messages[0].content %}{% set c = d %}" + LOOP,
    "one of several names": "{% set r, c = messages[0].role, messages[0].content %}" + LOOP,
    "a filter": "{% for p in messages[0].content | list | reverse %}[{{ p.text }}]{% endfor %}",
    "a choice": "{% set c = messages[0].content if messages[0].content is defined else [] %}" + LOOP,
    "or": "{% set c = messages[0].content or [] %}" + LOOP,
    "with": "{% with c = messages[0].content %}" + LOOP + "{% endwith %}",
    "a namespace": "{% set ns = namespace() %}{% set ns.c = messages[0].content %}"
    "{% for p in ns.c %}[{{ p.text }}]{% endfor %}",
    "a macro": "{% macro show(c) %}" + LOOP + "{% endmacro %}{{ show(messages[0].content) }}",
    "a macro by keyword": "{% macro show(x, c) %}" + LOOP + "{% endmacro %}{{ show(1, c=messages[0].content) }}",
    "a macro of a message": "{% macro show(m) %}{% for p in m.content %}[{{ p.text }}]{% endfor %}{% endmacro %}"
    "{{ show(messages[0]) }}",
    "a macro's default": "{% macro show(x, c=messages[0].content) %}" + LOOP + "{% endmacro %}{{ show(1) }}",
    "a macro in a macro": "{% macro show(c) %}" + LOOP + "{% endmacro %}{% macro outer(d) %}{{ show(d) }}{% endmacro %}"
    "{{ outer(messages[0].content) }}",
    "a caller": "{% macro each(x) %}{{ caller(x) }}{% endmacro %}"
    "{% call(c) each(messages[0].content) %}" + LOOP + "{% endcall %}",
    "a loop over contents": "{% for c in [messages[0].content] %}" + LOOP + "{% endfor %}",
    "contents of all": "{% for c in messages | map(attribute='content') %}" + LOOP + "{% endfor %}",
    "numbers": "{% for i in range(2) %}[{{ messages[0].content[i].text }}]{% endfor %}",
    "the first and the last": "[{{ (messages[0].content | first).text }}][{{ (messages[0].content | last)['text'] }}]",
    "a part's name": "{% set c = messages[0].content %}{% set a, b = c[0], c[1] %}[{{ a.text }}][{{ b.text }}]",
    "a slice": "[{{ messages[0].content[0].text }}]{% for p in messages[0].content[1:] %}[{{ p.text }}]{% endfor %}",
    "map": "[{{ messages[0].content | map(attribute='text') | join('][') }}]",
    "join": "[{{ messages[0].content | join('][', attribute='text') }}]",
    "a name that it reckons": "{% set k = 'te' ~ 'xt' %}"
    "{% for p in messages[0].content | map(attribute=k) %}[{{ p }}]{% endfor %}",
    "selectattr": "{% for p in messages[0].content | selectattr('type', 'eq', 'text') %}[{{ p.text }}]{% endfor %}",
}


@for_each("way", WAYS)
def test_whatever_way_a_template_takes_to_the_parts_it_finds_them(way):
    text = render(WAYS[way], [message("user", "one", "two")])
    assert text in ("[one][two]", "[two][one]")


TEXT_ONLY = {
    "text or nothing": "{% if messages[0].content is string %}{{ messages[0].content }}{% endif %}",
    "JSON of what isn't text": "{% if messages[0].content is mapping or messages[0].content is sequence %}"
    "{{ messages[0].content }}{% endif %}",
    "lines": "{% for line in messages[0].content.split('\\n') %}{{ line }}{{ '\\n' if not loop.last }}{% endfor %}",
    "a letter": "{{ messages[0].content[0].lower() }}{{ messages[0].content[1:] }}",
    "loops over something else": "{% for m in messages %}{% for t in m.x %}{% endfor %}{{ m.content }}{% endfor %}",
}


@for_each("kind", TEXT_ONLY)
def test_a_template_that_knows_text_alone_gets_text(kind):
    assert render(TEXT_ONLY[kind], [message("user", "one", "two")]) == "one\ntwo"


PLACES = {
    "printed": "{{ c }}", "behind a text": "{{ 'x' + c }}", "before a text": "{{ c + 'x' }}", "joined": "{{ 'x' ~ c }}",
    "filtered": "{{ c | trim | upper }}",
    "searched": "{{ 'two' in c }} {{ 'three' in c }}",
    "split": "{{ c.split('\\n')[-1].strip() }}", "begun with": "{{ c.startswith('one') }}",
    "formatted": "{{ '%s' | format(c) }} {{ '{}'.format(c) }}",
}  # fmt: skip


@for_each("place", PLACES)
def test_where_a_template_takes_the_parts_for_text_they_are_one(place):
    """Models' templates often go through the parts of users' messages alone."""
    takes_text = "{% set c = messages[0].content %}" + PLACES[place]
    takes_parts = "{% for m in messages[1:] %}{% for part in m.content %}{% endfor %}{% endfor %}" + takes_text
    parts = [message("user", "one", "two")]
    assert render(takes_parts, parts) == render(takes_text, joined(parts))


@for_each("attribute", ["_text", "__class__", "append", "nothing"])
def test_parts_are_no_way_out_of_the_sandbox(attribute):
    template = "{% for p in messages[0].content %}{% endfor %}{{ messages[0].content." + attribute + "('x') }}"
    with pytest.raises(RequestError):
        render(template, [message("user", "one", "two")])


def test_the_process_that_renders_for_clients_gives_parts_too():
    turns = [TemplateInput(conversation, None, {}) for conversation in CONVERSATIONS.values()]
    with closing(TemplateProcesses(Bounds(wall_seconds=600.0))) as processes:
        for family in IN_PARTS:
            found = processes.render(TEMPLATES[family], SPECIAL, turns, 10_000)
            here = [render_input(TEMPLATES[family], SPECIAL, turn, 10_000).text for turn in turns]
            assert list(map(str, found)) == here, family


NO_CONTENT = [None, 3, False, {"text": "x"}, {}, b"text", ..., [3], [None], [{"type": "text"}], [{"text": 3}], [[]]]


@for_each("role", ["system", "user", "assistant", "tool"])
@for_each("content", NO_CONTENT, ids=repr)
def test_a_message_without_text_is_refused_and_never_an_empty_one(role, content):
    for conversation in ([{"role": role, "content": content}], [{"role": role}]):
        with pytest.raises(RequestError, match="must be text"):
            render("{% for m in messages %}{{ m.content }}{% endfor %}", conversation)


@for_each("more", [{"tool_calls": [CALL]}, {"reasoning_content": "hm"}, {"thinking": "hm"}])
@for_each("content", [{}, {"content": None}, {"content": ""}])
def test_a_models_turn_may_be_calls_or_thoughts_alone(content, more):
    conversation = [message("user", "x"), {"role": "assistant", **content, **more}]
    assert render("{% for m in messages %}<{{ m.content }}>{% endfor %}", conversation) == "<x><>"
