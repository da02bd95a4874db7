"""Answers are taken apart into thought, text and calls, the same however they are cut into pieces.

How is said by rows, which are chosen by name, by a chat template, or come from a user's file or an installed package.
"""

import json
import sys
from pathlib import Path

import pytest
from builders.answers import parsed, read
from builders.cases import for_each
from builders.plugin_package import plugin_package
from builders.tokenizer_kinds import CHAT_TEMPLATES
from builders.watching import write_unnoticed
from hypothesis import example, given
from hypothesis import strategies as st

from penstock.frontend.parsing import REASONING, TOOL_CALLS, Parsing, settled
from penstock.protocol.errors import ConfigError
from penstock.protocol.options.config import EngineConfig

BOTH = Parsing(REASONING["qwen3"], TOOL_CALLS["hermes"])
OPENED = "<|im_start|>assistant\n<think>\n"
CLOSED = "<|im_start|>assistant\n<think>\n\n</think>\n\n"
WEATHER = '<tool_call>\n{"name": "weather", "arguments": {"city": "Paris", "days": [1, 2]}}\n</tool_call>'
CLOCK = '<tool_call>\n{"name": "clock", "arguments": {}}\n</tool_call>'


@for_each("answer, prompt, thought, text", [
    ("<think>\nTwo and two.\n</think>\n\nFour.\n", "", "Two and two.", "Four.\n"),
    ("Two and two.\n</think>\n\nFour.", OPENED, "Two and two.", "Four."),
    ("<think>\nTwo.\n</think>\n\nFour.", OPENED, "Two.", "Four."),
    ("Four.", CLOSED, "", "Four."), ("\n Four.", "", "", "\n Four."),
    ("Write <think> and </think>.", "", "", "Write <think> and </think>."),
    ("<think>Not yet", "", "Not yet", ""), ("Not yet </thi", OPENED, "Not yet </thi", ""), ("<thi", "", "", "<thi"),
    ("a < b\n\n</think>b > a", OPENED, "a < b", "b > a"),
    (f"<think>I could {CLOCK}</think>No.", "", f"I could {CLOCK}", "No."),
    ("It opens.", "user\nWhat does <think> do?<|im_end|>\nassistant\n", "", "It opens."),
])  # fmt: skip
def test_a_thought_stands_at_the_beginning_or_was_begun_by_the_prompt(answer, prompt, thought, text):
    assert read(BOTH, answer, prompt=prompt) == (thought, text, [])


def test_without_a_row_its_marks_are_text():
    answer = f"<think>Hm.</think>{CLOCK}"
    assert read(Parsing(None, TOOL_CALLS["hermes"]), answer)[:2] == ("", "<think>Hm.</think>")
    assert read(Parsing(REASONING["qwen3"], None), answer) == ("Hm.", CLOCK, [])


PARIS = ("weather", {"city": "Paris", "days": [1, 2]})


@for_each("answer, text, calls", [
    (f"Let me look.\n{WEATHER}\n{CLOCK}\n", "Let me look.", [PARIS, ("clock", {})]),
    (WEATHER.removesuffix("\n</tool_call>"), "", [PARIS]),
    ('<tool_call>{"arguments": {"a": 1}, "name": "f"}</tool_call>', "", [("f", {"a": 1})]),
    ('<tool_call>{"name": "f"}</tool_call>', "", [("f", {})]),
    ('<tool_call>{"name": "f", "arguments": {"a": {}}</tool_call>', "", [("f", {"a": {}})]),
    (r'<tool_call>{"name": "\u0066", "arguments": {"a": "\"}\\"}}</tool_call>', "", [("f", {"a": '"}\\'})]),
    ('<tool_call>{"arguments": {"城": "😀"}, "name": "f"}</tool_call>', "", [("f", {"城": "😀"})]),
    # Behind the mention of its mark.
    (f"Calls begin with <tool_call> here: {CLOCK}", "Calls begin with <tool_call> here:", [("clock", {})]),
    (f'<tool_call>{{"name": {WEATHER}', '<tool_call>{"name":', [PARIS]),
    # What is no call is handed over as the text that it is.
    *((text, text, []) for text in (
        "<tool_call>\n{'name': 'f', 'arguments': {'a': 1}}\n</tool_call>",
        '<tool_call>{"name": "f", "arguments": {bad}}</tool_call>',
        '<tool_call>{"name": "f", "arguments": "a"}</tool_call> ',
        '<tool_call>{"name": "", "arguments": {}}</tool_call>',
        '<tool_call>{"arguments": {"a": 1}}</tool_call>\n\nSo.',
        *("<tool_call></tool_call>", " \n<tool_call> ", "Before. <tool_call>{}</tool_call> After."),
        *("</tool_call> <tool_ca", "<tool_call>" + '{"a": ' * 5000),
    )),
])  # fmt: skip
def test_calls_are_taken_out_of_the_text(answer, text, calls):
    assert read(BOTH, answer) == ("", text, calls)
    assert parsed(BOTH, answer)["is_whole"] == bool(calls)


def test_names_arguments_and_text_come_as_soon_as_they_are_certain():
    reader = BOTH.reader("", {}, lambda index: f"id{index}")
    pieces = ['<tool_call>\n{"name": "f"', ', "arguments": ', '{"', 'a": [1', ", 2]", "}}\n</tool_call>"]
    calls = [reader.feed(piece).calls for piece in pieces]
    told = [[(call.id, call.function.name, call.function.arguments) for call in new] for new in calls]
    assert told == [
        [], [], [("id0", "f", '{"')], [(None, None, 'a": [1')], [(None, None, ", 2]")], [(None, None, "}")]
    ]  # fmt: skip
    reader = BOTH.reader("", {}, str)
    shown = [reader.feed(piece).text for piece in ("Is a <", "b> ", "<tool", "_box>?", "<tool_call>", "[1")]
    assert shown == ["Is a", " <b>", "", " <tool_box>?", "", "<tool_call>[1"]


FRAGMENTS = (
    "<think>", "</think>", "<tool_call>", "</tool_call>", "<", "</", "think>", "tool_call>", " ", "\n", "Hm.", "😀",
    '{"name": "f", "arguments": {', '"a": 1', '"b": "}"', "}}", "}", "{", '"', "\\", ",", WEATHER, CLOCK,
    '{"arguments": {}, "name": "g"}', '{"name": "f" , ', '"arguments": {"x": {"y": []}}}',
)  # fmt: skip
answers = st.lists(st.sampled_from(FRAGMENTS), max_size=14).map("".join)


@given(answers)
@example(f"<think>Hm.</think>{WEATHER}{CLOCK}")
def test_what_is_handed_over_stands_in_the_answer_in_its_order(answer):
    found = parsed(BOTH, answer)
    left = answer[answer.index(found["thought"]) + len(found["thought"]) :]
    if not found["calls"]:
        assert left.endswith(found["text"])
    for character in found["text"]:
        left = left[left.index(character) + 1 :]


@given(st.lists(st.tuples(st.text(min_size=1), st.dictionaries(st.text(), st.integers() | st.text())), max_size=3))
def test_calls_come_back_as_the_values_that_they_were_written_from(calls):
    written = [json.dumps({"name": name, "arguments": arguments}, ensure_ascii=False) for name, arguments in calls]
    if any("tool_call>" in text for text in written):
        return
    answer = "\n".join(f"<tool_call>\n{text}\n</tool_call>" for text in written)
    assert read(BOTH, answer) == ("", "", calls)


EXAMPLE = Path(__file__).resolve().parents[2] / "docs" / "examples" / "plugins" / "arrow_calls.py"


def chosen(**options: str) -> Parsing | None:
    return Parsing.of(settled(EngineConfig.from_options("m", **options), "", str))


def test_the_documented_example_reads_its_family():
    plugins = {"reasoning_parser_plugin": str(EXAMPLE), "tool_parser_plugin": str(EXAMPLE)}
    parsing = chosen(reasoning_parser="Arrow", tool_parser="arrow", **plugins)
    answer = "# Ask. ##\nSo:\n=> weather city=Paris days=2\n=> clock\n=>  is an arrow, and => this is cut"
    whole = parsed(parsing, answer)
    assert (whole["thought"], whole["text"]) == ("Ask.", "So:\n=>  is an arrow, and")
    calls = [("weather", '{"city": "Paris", "days": "2"}'), ("clock", "{}"), ("this", '{"is": ""')]
    assert ([call[1:] for call in whole["calls"]], whole["is_whole"]) == (calls, False)
    for cut in range(len(answer)):
        assert parsed(parsing, answer[:cut], answer[cut:]) == whole
    assert parsed(parsing, *answer, "") == whole


def test_a_file_can_replace_a_row_and_leaves_the_others(tmp_path):
    path = tmp_path / "own.py"
    path.write_text(
        "from penstock.frontend.parsing import CallForm, CallMarks, JsonCall\n"
        'TOOL_CALLS = {"hermes": CallMarks((CallForm("<<", JsonCall, ">>"),))}\n'
    )
    own = chosen(tool_parser="hermes", tool_parser_plugin=str(path))
    assert read(own, '<<{"name": "f", "arguments": {}}>>') == ("", "", [("f", {})])
    assert chosen(tool_parser="qwen3_coder", tool_parser_plugin=str(path)).calls is TOOL_CALLS["qwen3-coder"]
    write_unnoticed(path, path.read_bytes().replace(b"<<", b"[["))
    other = chosen(tool_parser="hermes", tool_parser_plugin=str(path))
    assert read(other, '[[{"name": "f", "arguments": {}}>>') == ("", "", [("f", {})])
    path.write_text("TOOL_CALLS = {}\n")  # read again, since it has changed
    with pytest.raises(ConfigError, match="it must define TOOL_CALLS, a dict of names and CallMarks rows"):
        chosen(tool_parser="hermes", tool_parser_plugin=str(path))


@for_each("text, sentence", [
    (None, "is no file"),
    ("REASONING = 1 / 0", "can't be loaded: ZeroDivisionError"),
    ("THOUGHTS = {}", "must define REASONING"),
    ('REASONING = {"mine": "<think>"}', r"REASONING\['mine'\] in .* is a str; it must be a ThoughtMarks"),
    (
        'from penstock.frontend.parsing import ThoughtMarks\nREASONING = {"mine": ThoughtMarks("<", ">")}',
        "reasoning_parser='other': must be one of auto, none, mine, qwen3",
    ),
])  # fmt: skip
def test_a_file_that_cannot_be_used_is_refused_with_the_reason(tmp_path, text, sentence):
    path = tmp_path / "own.py"
    if text is not None:
        path.write_text(text)
    with pytest.raises(ConfigError, match=sentence):
        chosen(reasoning_parser="other", reasoning_parser_plugin=str(path))
    with pytest.raises(ConfigError, match="reasoning_parser_plugin brings arrow: choose with reasoning_parser="):
        chosen(reasoning_parser_plugin=str(EXAMPLE))


def test_an_installed_package_brings_rows_by_entry_points(tmp_path, monkeypatch):
    source = EXAMPLE.read_text() + 'CALLS = TOOL_CALLS["arrow"]\nWRONG = 1\n'
    rows = {"Arrow_Calls": "CALLS", "wrong": "WRONG", "missing": "NOTHING"}
    monkeypatch.syspath_prepend(str(plugin_package(tmp_path, "arrows", source, {"penstock.tool_parsers": rows})))
    try:
        parsing = chosen(tool_parser="arrow-calls")
        assert read(parsing, "=> clock\n") == ("", "", [("clock", {})])
        with pytest.raises(ConfigError, match="the entry point wrong = arrows:WRONG .* is a int"):
            chosen(tool_parser="wrong")
        with pytest.raises(ConfigError, match="the entry point missing = arrows:NOTHING .* AttributeError"):
            chosen(tool_parser="missing")
        with pytest.raises(ConfigError, match="must be one of auto, none, hermes, .*arrow-calls, missing, wrong"):
            chosen(tool_parser="unheard-of")
    finally:
        sys.modules.pop("arrows", None)


# The names that other engines give to rows of ours.
THOUGHTS = {
    "DeepSeek-R1": "deepseek-r1", "ernie-45-vl": "ernie-45-vl", "ernie-45-vl-thinking": "ernie-x1",
    "ernie45": "ernie-x1", "glm-4.5": "qwen3", "seed_oss": "seed-oss", "hunyuan_a13b": "hunyuan", "harmony": "gpt-oss",
}  # fmt: skip
CALLS = {
    "qwen3_xml": "qwen3-coder", "ernie-x1": "ernie", "ernie-45-vl-thinking": "ernie", "llama3_json": "llama3",
    "llama4_pythonic": "pythonic", "deepseek_v31": "deepseek", "phi4_mini_json": "phi4-mini", "jamba": "hunyuan",
    "GptOss": "gpt-oss", "openai": "gpt-oss", "openai_gptoss": "gpt-oss",
}  # fmt: skip


def test_rows_have_the_names_that_other_engines_give_them():
    for name, row in THOUGHTS.items():
        assert chosen(reasoning_parser=name).thoughts is REASONING[row], name
    for name, row in CALLS.items():
        assert chosen(tool_parser=name).calls is TOOL_CALLS[row], name


def test_an_unknown_row_is_refused_with_the_known_ones():
    for options, sentence in (
        ({"reasoning_parser": "qwen33"}, "reasoning_parser='qwen33': must be one of auto, .* Did you mean qwen3"),
        ({"tool_parser": "x"}, "tool_call_parser='x': must be one of auto, none, hermes"),
        ({"tool_parser": "auto", "tool_call_parser": "hermes"}, "give one of them"),
    ):
        with pytest.raises(ConfigError, match=sentence):
            chosen(**options)


@for_each("shown, rows", [
    ("{{ '<think>\\n\\n</think>' }} {{ '<tool_call>' }}{{ '</tool_call>' }}", ("qwen3", "hermes")),
    ("{{ '<tool_call>' }}{{ '</tool_call>' }}", (None, "hermes")),
    ("<think> </think> <tool_call>\\n<function=", ("qwen3", "qwen3-coder")),
    ("<think> </think> <tool_call> <arg_key>", ("qwen3", "glm45")),
    ("<｜Assistant｜> <think> </think> <｜tool▁call▁begin｜>", ("deepseek-r1", "deepseek")),
    ("<think> </think> <response> <tool_call>", ("ernie-x1", "ernie")),
    ("[THINK] [/THINK] [TOOL_CALLS]", ("mistral", "mistral")),
    ('{"name": function name, "parameters": dictionary}', (None, "llama3")),
    ("Write your thoughts after 'Here is my thought process:' <|tool_call|>", ("granite", "granite")),
    ("[func_name1(params_name1=params_value1)]", (None, "pythonic")),
    ("<|start|>assistant<|channel|>final<|message|> <|call|>", ("gpt-oss", "gpt-oss")),
    ("<|return|><|constrain|><|channel|><|start|><|end|><|message|><|call|>", ("gpt-oss", "gpt-oss")),
    (CHAT_TEMPLATES["deepseek-r1"], ("deepseek-r1", None)), (CHAT_TEMPLATES["qwen3"], ("qwen3", None)),
    (CHAT_TEMPLATES["zephyr"], (None, None)), ("{{ messages }}", (None, None)),
])  # fmt: skip
def test_auto_is_seen_by_the_template_and_else_by_the_special_tokens(shown, rows):
    config = EngineConfig.from_options("m", reasoning_parser="auto", tool_parser="AUTO")
    for found in (settled(config, shown, str), settled(config, "{{ messages }}", lambda: shown)):
        assert (found.reasoning_parser, found.tool_call_parser) == rows
        assert (Parsing.of(found) is None) == (rows == (None, None))
