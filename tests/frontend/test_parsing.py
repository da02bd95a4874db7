"""Answers are taken apart into thought, text and calls, the same however they are cut into pieces."""

import json

from builders.answers import parsed, read
from builders.cases import for_each
from hypothesis import example, given
from hypothesis import strategies as st

from penstock.frontend.parsing import REASONING, TOOL_CALLS, Parsing

BOTH = Parsing(REASONING["qwen3"], TOOL_CALLS["hermes"])
OPENED = "<|im_start|>assistant\n<think>\n"
CLOSED = "<|im_start|>assistant\n<think>\n\n</think>\n\n"
WEATHER = '<tool_call>\n{"name": "weather", "arguments": {"city": "Paris", "days": [1, 2]}}\n</tool_call>'
CLOCK = '<tool_call>\n{"name": "clock", "arguments": {}}\n</tool_call>'


# --- thoughts --------------------------------------------------------------------------------------------------------


@for_each(
    "answer, prompt, thought, text",
    [
        ("<think>\nTwo and two.\n</think>\n\nFour.\n", "", "Two and two.", "Four.\n"),
        ("Two and two.\n</think>\n\nFour.", OPENED, "Two and two.", "Four."),
        ("<think>\nTwo.\n</think>\n\nFour.", OPENED, "Two.", "Four."),
        ("Four.", CLOSED, "", "Four."),
        ("<think>\n\n</think>\n\nFour.", "", "", "Four."),
        ("\n Four.", "", "", "\n Four."),
        ("Write <think> and </think>.", "", "", "Write <think> and </think>."),
        ("<think>Not yet", "", "Not yet", ""),
        ("Not yet </thi", OPENED, "Not yet </thi", ""),
        ("<thi", "", "", "<thi"),
        ("a < b\n\n</think>b > a", OPENED, "a < b", "b > a"),
        (f"<think>I could {CLOCK}</think>No.", "", f"I could {CLOCK}", "No."),
        ("", OPENED, "", ""),
        ("It opens.", "user\nWhat does <think> do?<|im_end|>\nassistant\n", "", "It opens."),
    ],
)
def test_a_thought_stands_at_the_beginning_or_was_begun_by_the_prompt(answer, prompt, thought, text):
    assert read(BOTH, answer, prompt=prompt) == (thought, text, [])


def test_without_a_row_its_marks_are_text():
    answer = f"<think>Hm.</think>{CLOCK}"
    assert read(Parsing(None, TOOL_CALLS["hermes"]), answer)[:2] == ("", "<think>Hm.</think>")
    assert read(Parsing(REASONING["qwen3"], None), answer) == ("Hm.", CLOCK, [])


# --- calls -----------------------------------------------------------------------------------------------------------

PARIS = ("weather", {"city": "Paris", "days": [1, 2]})


@for_each(
    "answer, text, calls",
    [
        (WEATHER, "", [PARIS]),
        (f"{WEATHER}\n{CLOCK}", "", [PARIS, ("clock", {})]),
        (f"Let me look.\n{WEATHER}\n{CLOCK}\n", "Let me look.", [PARIS, ("clock", {})]),
        (f"Let me look.\n{WEATHER}\nDone. ", "Let me look.\nDone. ", [PARIS]),
        (WEATHER.removesuffix("\n</tool_call>"), "", [PARIS]),
        ('<tool_call>{"arguments": {"a": 1}, "name": "f"}</tool_call>', "", [("f", {"a": 1})]),
        ('<tool_call>{"name": "f"}</tool_call>', "", [("f", {})]),
        ('<tool_call>{"name": "f", "arguments": {"a": {}}</tool_call>', "", [("f", {"a": {}})]),
        (r'<tool_call>{"name": "\u0066", "arguments": {"a": "\"}\\"}}</tool_call>', "", [("f", {"a": '"}\\'})]),
        ('<tool_call>{"arguments": {"城": "😀"}, "name": "f"}</tool_call>', "", [("f", {"城": "😀"})]),
        # Behind the mention of its mark.
        (f"Calls begin with <tool_call> here: {CLOCK}", "Calls begin with <tool_call> here:", [("clock", {})]),
        (f'<tool_call>{{"name": {WEATHER}', '<tool_call>{"name":', [PARIS]),
    ],
)
def test_calls_are_taken_out_of_the_text(answer, text, calls):
    assert read(BOTH, answer) == ("", text, calls)
    assert parsed(BOTH, answer)["is_whole"]


@for_each(
    "answer",
    [
        "<tool_call>weather Paris</tool_call>",
        "<tool_call>\n{'name': 'f', 'arguments': {'a': 1}}\n</tool_call>",
        '<tool_call>{"name": "f", "arguments": {bad}}</tool_call>',
        '<tool_call>{"name": "f", "arguments": "a"}</tool_call> ',
        '<tool_call>{"name": "", "arguments": {}}</tool_call>',
        '<tool_call>{"name": "f", "argum',
        '<tool_call>{"arguments": {"a": 1}}</tool_call>\n\nSo.',
        "<tool_call>[1]</tool_call>",
        "<tool_call></tool_call>",
        " \n<tool_call> ",
        "Before. <tool_call>{}</tool_call> After.",
        "</tool_call> <tool_ca",
        "<tool_call>" + '{"a": ' * 5000,
    ],
)
def test_what_is_no_call_is_handed_over_as_the_text_that_it_is(answer):
    assert read(BOTH, answer) == ("", answer, [])


def test_names_arguments_and_text_come_as_soon_as_they_are_certain():
    reader = BOTH.reader("", {}, lambda index: f"id{index}")
    pieces = ['<tool_call>\n{"name": "f"', ', "arguments": ', '{"', 'a": [1', ", 2]", "}}\n</tool_call>"]
    calls = [reader.feed(piece).calls for piece in pieces]
    told = [[(call.id, call.function.name, call.function.arguments) for call in new] for new in calls]
    assert told == [
        [], [], [("id0", "f", '{"')], [(None, None, 'a": [1')], [(None, None, ", 2]")], [(None, None, "}")]
    ]  # fmt: skip
    reader = BOTH.reader("", {}, str)
    shown = [reader.feed(piece).text for piece in ("Is a <", "b> ", "<tool", "_box>?")]
    assert shown == ["Is a", " <b>", "", " <tool_box>?"]


# --- any text ------------------------------------------------------------------------------------------------------

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
