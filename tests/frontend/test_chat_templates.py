"""Conversations become exactly the text that transformers makes of them, and templates can do no harm."""

import copy
import enum
import json
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal

import pytest
from builders.cases import for_each
from builders.tokenizer_kinds import CHAT_TEMPLATES as TEMPLATES
from builders.tokenizer_kinds import write_tokenizer

from penstock.frontend.text.chat import render
from penstock.frontend.text.tokenizer import Tokenizer
from penstock.protocol.errors import ConfigError, RequestError

FUNCTION = {
    "name": "get_weather",
    "description": 'Weather in a <city> & its "surroundings" — né',
    "parameters": {
        "type": "object",
        "properties": {"city": {"type": "string"}, "days": {"type": ["integer", "null"]}},
        "required": ["city"],
    },
}
WEATHER = {"type": "function", "function": FUNCTION}
CALL = {"id": "abcdefghi", "type": "function", "function": {"name": "get_weather", "arguments": {"city": "Zürich"}}}
SYSTEM = {"role": "system", "content": "Be brief."}
USER = {"role": "user", "content": "  Hello, <b>you</b> & 'me' 你好 "}
ASSISTANT = {"role": "assistant", "content": "<think>\nhm\n</think>\n\nHi! "}
CALLING = {"role": "assistant", "content": "", "tool_calls": [CALL]}
CONVERSATIONS = {
    "one turn": [USER],
    "system": [SYSTEM, USER],
    "turns": [USER, ASSISTANT, {"role": "user", "content": "More"}],
    "thought": [USER, {"role": "assistant", "content": "Hi", "reasoning": "thinking…"}],
    "nothing said": [USER, {"role": "assistant", "content": "x", "tool_calls": None}, USER],
    "tool call": [SYSTEM, USER, CALLING, {"role": "tool", "content": '{"degrees": 3}'}],
}
OPTIONS = {
    "plain": {},
    "no prompt": {"add_generation_prompt": False},
    "tools": {"tools": [WEATHER]},
    "documents": {"documents": [{"title": "A", "text": "first"}, {"title": "B", "text": "second"}]},
    "arguments": {"enable_thinking": False, "date_string": "1 Jan 2020", "controls": {"length": "long"}},
}


@pytest.fixture(scope="module")
def ways(tmp_path_factory):
    """From a conversation to a text: ours, and transformers' own."""
    from transformers import AutoTokenizer

    folder = write_tokenizer(tmp_path_factory.mktemp("tokenizer"), "byte_fallback")
    return [each.from_pretrained(folder).apply_chat_template for each in (Tokenizer, AutoTokenizer)]


def outcome(apply, messages, template, options):
    """The text, or what the template raised."""
    try:
        return apply(messages, tokenize=False, chat_template=template, **{"add_generation_prompt": True, **options})
    except RequestError as error:
        return f"refused: {str(error).split(': ', 1)[1]}"
    except Exception as error:
        return f"refused: {error}"


def same_outcome(ways, *given):
    ours, theirs = (outcome(apply, *given) for apply in ways)
    assert ours == theirs
    return ours


def combinations():
    """Each template with each conversation and with each option, and with tools where one was called."""
    for number, family in enumerate(TEMPLATES):
        for at, conversation in enumerate(CONVERSATIONS):
            yield family, conversation, list(OPTIONS)[(number + at) % len(OPTIONS)]
        yield family, "tool call", "tools"


@for_each("family, conversation, options", combinations())
def test_the_text_is_that_of_transformers(family, conversation, options, ways):
    same_outcome(ways, CONVERSATIONS[conversation], TEMPLATES[family], OPTIONS[options])


@for_each("family", ["chatml", "llama3", "deepseek-r1", "phi3"])
@for_each("last", ["Hi", " padded ", "two\nlines\n"])
def test_going_on_from_the_last_message_cuts_where_transformers_does(family, last, ways):
    options = {"continue_final_message": True, "add_generation_prompt": False}
    same_outcome(ways, [USER, {"role": "assistant", "content": last}], TEMPLATES[family], options)


def test_a_conversation_is_given_in_another_form_where_the_template_fails_on_it():
    remark = {"role": "assistant", "content": "I look.", "reasoning_content": "Hm.", "tool_calls": [CALL]}
    bare = {"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object", "properties": {}}}}
    thought = {"role": "assistant", "reasoning_content": "Hm."}
    for messages, tools, part in (
        ([USER, remark], None, "analysis<|message|>Hm.\n\nI look.<|end|><|start|>assistant to=functions.get_weather"),
        ([USER, thought, USER], None, "final<|message|><|end|><|start|>user"),
        ([USER, {"role": "assistant", "content": "Hi", "tool_calls": []}, USER], None, "final<|message|>Hi<|end|>"),
        ([USER], [bare], "type get_weather = () => any;"),
    ):
        assert part in render(TEMPLATES["gpt-oss"], messages, tools=tools)
    # One that renders stays as it is, and one that never does keeps its refusal.
    assert render("{{ messages[0].tool_calls }}", [{"role": "assistant", "content": "", "tool_calls": []}]) == "[]"
    assert render("{{ tools[0].function.description is defined }}", [USER], tools=[bare]) == "False"
    with pytest.raises(RequestError, match="refuses this conversation: no$"):
        render("{{ raise_exception('no') }}", [USER, thought])


class Unit(enum.Enum):
    CELSIUS = "c"
    KELVIN = "k"


def forecast(
    city: str,
    days: int | None = None,
    unit: Unit = Unit.CELSIUS,
    tags: list[str] | None = None,
    mode: Literal["x", "y", 3] = "x",
    pair: tuple[int, str] = (1, ""),
    either: int | list[str] = 3,
) -> dict[str, float]:
    """
    Forecast for a city.
    In several lines.

    Args:
        city: Where, in words
            of one's own
        days: How many
        unit: Of temperature
        tags: Labels (choices: ["a", "b"])
        mode: Which
        pair: Two things
        either: One or many

    Returns:
        Degrees by day.
    """
    return {}


def test_a_function_becomes_the_schema_that_transformers_makes(ways):
    assert "forecast" in same_outcome(ways, [USER], TEMPLATES["qwen2.5"], {"tools": [forecast]})


def test_a_tool_that_cannot_be_described_is_refused_with_the_reason():
    def undocumented(city: str): ...

    def untyped(city):
        """Without types."""

    def odd(city: Tokenizer):
        """With a type of its own."""

    refused = ((undocumented, "no docstring"), (untyped, "no type hint"), (odd, "no JSON schema"), (3, "not int"))
    for tool, why in refused:
        with pytest.raises(RequestError, match=why):
            render(TEMPLATES["qwen2.5"], [USER], tools=[tool])


def test_the_callers_objects_are_never_changed():
    template = "{% for m in messages %}{{ m.update({'content': 'x'}) }}{% endfor %}{{ tools.append(1) }}"
    parts = {"role": "user", "content": [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]}
    messages, tools = copy.deepcopy([*CONVERSATIONS["tool call"], parts]), [copy.deepcopy(WEATHER)]
    before = copy.deepcopy((messages, tools))
    with pytest.raises(RequestError):
        render(template, messages, tools=tools)
    for family in TEMPLATES.values():
        with suppress(RequestError):
            render(family, messages, tools=tools)
    assert (messages, tools) == before


@for_each(
    "expression",
    [
        "messages.__class__.__mro__", "''.__class__.__base__.__subclasses__()", "strftime_now.__globals__",
        "dict.__init__.__globals__", "namespace(__init__=1)", "cycler.__init__.__globals__.os.popen('id').read()",
        "'{0.__class__.__init__.__globals__}'.format(messages)",
    ],
)  # fmt: skip
def test_a_template_cannot_leave_its_sandbox(expression):
    try:
        text = render(f"{{{{ {expression} }}}}", [USER])
    except RequestError:
        return
    assert "<class" not in text and "module" not in text and "uid" not in text


def test_objects_reach_a_template_as_plain_data():
    class Thing:
        def __repr__(self):
            return "secret"

    @dataclass
    class Said:
        role: str
        content: str

    template = "{{ messages[0].role }} {{ messages[0].content }} {{ thing }} {{ kind }}"
    text = render(template, [Said("user", "hi")], arguments={"thing": Thing(), "kind": Unit.KELVIN})
    assert text == "user hi <Thing> <Unit>"


@for_each("template, reason", [
    (TEMPLATES["gemma"], "System role not supported"),  # the template's own message
    ("{% if %}", "not valid Jinja.*line 1"), ("{{ 1 / 0 }}", "ZeroDivisionError"),
    ("{{ nothing.at.all }}", "undefined"),
    ("{% for i in range(999999999) %}{% endfor %}", "Range too big"),
])  # fmt: skip
def test_a_template_that_is_wrong_ends_the_request_with_the_reason(template, reason):
    with pytest.raises(RequestError, match=reason):
        render(template, CONVERSATIONS["system"])


def test_arguments_neither_replace_the_messages_nor_contradict_each_other():
    with pytest.raises(RequestError, match="'messages' is given"):
        render(TEMPLATES["chatml"], [USER], arguments={"messages": [ASSISTANT]})
    with pytest.raises(RequestError, match="add_generation_prompt=False"):
        render(TEMPLATES["chatml"], [USER, ASSISTANT], continue_final_message=True)


def tokenizer_with(folder, **settings):
    return Tokenizer.from_pretrained(write_tokenizer(folder, "byte_level_with_bos", **settings))


def test_a_file_of_its_own_counts_before_the_settings_and_these_before_the_processors_file(tmp_path):
    (tmp_path / "chat_template.json").write_text(json.dumps({"chat_template": "from the processor"}))
    assert tokenizer_with(tmp_path).apply_chat_template([USER]) == "from the processor"
    assert tokenizer_with(tmp_path, chat_template="settings").apply_chat_template([USER]) == "settings"
    (tmp_path / "chat_template.jinja").write_text("from the file")
    assert tokenizer_with(tmp_path, chat_template="settings").apply_chat_template([USER]) == "from the file"


def test_named_templates_are_chosen_by_name_or_by_tools_and_files_of_templates_by_theirs(tmp_path):
    named = [{"name": name, "template": name} for name in ("default", "tool_use", "rag")]
    tokenizer = tokenizer_with(tmp_path / "settings", chat_template=named)
    assert tokenizer.apply_chat_template([USER]) == "default"
    assert tokenizer.apply_chat_template([USER], tools=[WEATHER]) == "tool_use"
    assert tokenizer.apply_chat_template([USER], chat_template="rag") == "rag"
    (tmp_path / "additional_chat_templates").mkdir()
    (tmp_path / "additional_chat_templates" / "rag.jinja").write_text("rag")
    tokenizer = tokenizer_with(tmp_path)
    assert tokenizer.apply_chat_template([USER], chat_template="rag") == "rag"
    with pytest.raises(RequestError, match="by name.*rag"):
        tokenizer.apply_chat_template([USER])


def test_where_a_model_has_no_template_one_may_be_given_as_text_or_as_a_file(tmp_path):
    tokenizer = tokenizer_with(tmp_path)
    with pytest.raises(RequestError, match="no chat template.*chat_template="):
        tokenizer.apply_chat_template([USER])
    (tmp_path / "mine.txt").write_text("{{ messages | length }}")
    assert tokenizer.apply_chat_template([USER], chat_template="{{ messages | length }}") == "1"
    assert tokenizer.apply_chat_template([USER], chat_template=str(tmp_path / "mine.txt")) == "1"
    with pytest.raises(ConfigError, match="neither"):
        tokenizer.apply_chat_template([USER], chat_template="missing.jinja")
    with pytest.raises(ConfigError) as refused:
        tokenizer.apply_chat_template([USER], chat_template="a" * 3_000_000)
    assert len(str(refused.value)) < 200


def test_a_conversation_has_the_templates_own_bos_only_and_many_make_many_texts(tmp_path):
    tokenizer = tokenizer_with(tmp_path, chat_template="{{ bos_token }}{{ messages[0].content }}")
    text, ids = tokenizer.apply_chat_template([USER]), tokenizer.apply_chat_template([USER], tokenize=True)
    assert text == f"<|start|>{USER['content']}"
    assert ids.count(tokenizer.bos_token_id) == 1 and ids == tokenizer.encode(text)
    assert tokenizer.apply_chat_template([[USER], [ASSISTANT]]) == [text, f"<|start|>{ASSISTANT['content']}"]
