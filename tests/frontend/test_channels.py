"""gpt-oss's messages in channels are taken apart into thought, text and calls, whatever the model leaves out."""

import pytest
from builders.answers import parsed, read
from builders.cases import for_each

from penstock.frontend.parsing import REASONING, TOOL_CALLS, Parsing, Parsings, settled
from penstock.protocol.errors import ConfigError
from penstock.protocol.options.config import EngineConfig

BOTH = Parsing(REASONING["gpt-oss"], TOOL_CALLS["gpt-oss"])
THOUGHTS = Parsing(REASONING["gpt-oss"], None)
CALLS = Parsing(None, TOOL_CALLS["gpt-oss"])
PROMPT = "<|start|>user<|message|>Weather?<|end|><|start|>assistant"
TOOLS = {
    "weather": {"city": {"type": "string"}, "days": {"type": "integer"}},
    "clock": {},
    "patch": {"input": {"type": "string"}},
}
THOUGHT = "<|channel|>analysis<|message|>Hm.<|end|>"
START = "<|start|>assistant"
CALL = '<|channel|>commentary to=functions.weather <|constrain|>json<|message|>{"city": "Paris"}'
PREAMBLE = "<|channel|>commentary<|message|>I look.\n<|end|>"
FINAL = "<|channel|>final<|message|>Yes."
PARIS = [("weather", {"city": "Paris"})]


@for_each("answer, thought, text, calls", [
    (f"{THOUGHT}{START}{FINAL}", "Hm.", "Yes.", []),
    (f"{THOUGHT}{START}{FINAL}<|return|>", "Hm.", "Yes.", []),
    (FINAL, "", "Yes.", []), (f"{THOUGHT}{START}{CALL}<|call|>", "Hm.", "", PARIS),
    (f"{THOUGHT}{START}{CALL}", "Hm.", "", PARIS),
    # The recipient in the role's section, as chat templates write it.
    ('{S} to=functions.weather<|channel|>commentary json<|message|>{"city": "Paris"}', "", "", PARIS),
    (' to=functions.weather<|channel|>commentary <|constrain|>json<|message|>{"city": "Paris"}', "", "", PARIS),
    ('{S} to=functions.weather<|message|>{"city": "Paris"}', "", "", PARIS),
    # No format, another one, no space before it, in the channel of the model's own tools.
    ('<|channel|>commentary to=functions.weather<|message|>{"city": "Paris"}', "", "", PARIS),
    ('<|channel|>analysis to=functions.weather code<|message|>\n{"city": "Paris"}', "", "", PARIS),
    ('<|channel|>commentary to=functions.weather<|constrain|>json<|message|>{"city": "Paris"}', "", "", PARIS),
    ('<|channel|>commentary<|channel|>commentary to=weather<|message|>{"city": "Paris"}', "", "", PARIS),
    ("<|channel|>commentary to=functions.clock <|constrain|>json<|message|>{}<|call|>", "", "", [("clock", {})]),
    ("<|channel|>commentary to=functions.clock <|constrain|>json<|message|>", "", "", [("clock", {})]),
    ("<|channel|>commentary to=functions.weather<|message|><|call|>", "", "", [("weather", {})]),
    # What comes before a call and is for the user; thoughts between calls.
    (f"{THOUGHT}{START}{PREAMBLE}{START}{CALL}<|call|>", "Hm.", "I look.", PARIS),
    (f"{PREAMBLE}{START}{FINAL}<|end|>{START}{FINAL}\n", "", "I look.\n\nYes.\n\nYes.\n", []),
    (f"{THOUGHT}{START}{CALL}<|call|>{START}{THOUGHT}{START}{CALL}", "Hm.\n\nHm.", "", PARIS * 2),
    (f"{THOUGHT}{START}{THOUGHT}{START}{FINAL}", "Hm.\n\nHm.", "Yes.", []),
    # The model's own tools.
    (
        '<|channel|>analysis to=browser.search code<|message|>{"query": "x"}<|call|>',
        "", "", [("browser.search", {"query": "x"})],
    ),
    (
        '<|channel|>analysis to=python code<|message|>{1}\nprint("a\\n")<|call|>',
        "", "", [("python", {"code": '{1}\nprint("a\\n")'})],
    ),
    ("<|channel|>commentary to=functions.patch code<|message|> *A<|call|>", "", "", [("patch", {"input": " *A"})]),
    ('<|channel|>commentary to=functions.patch<|message|>{"input": ""}', "", "", [("patch", {"input": ""})]),
    # Formats of answers.
    ('<|channel|>final <|constrain|>json<|message|>{"a": 1}', "", '{"a": 1}', []),
    ('<|channel|>final json<|message|>{"a": 1}', "", '{"a": 1}', []),
    ("{S}<|message|>Yes.<|end|>", "", "Yes.", []),
])  # fmt: skip
def test_messages_are_told_apart_by_their_headers(answer, thought, text, calls):
    answer = answer.replace("{S}", START)
    assert read(BOTH, answer, prompt=PROMPT, tools=TOOLS) == (thought, text, calls)
    assert parsed(BOTH, answer, prompt=PROMPT, tools=TOOLS)["is_whole"] == bool(calls)
    check_pieces(BOTH, answer, PROMPT)


@for_each("answer, thought, text, calls", [
    # Marks are missing.
    (f"<|channel|>analysis<|message|>Hm.{FINAL}", "Hm.", "Yes.", []),
    (f"<|channel|>analysis<|message|>Hm.{START}{FINAL}", "Hm.", "Yes.", []),
    (f"{THOUGHT}{FINAL}", "Hm.", "Yes.", []),
    (f"{THOUGHT}commentary to=functions.weather json<|message|>{{\"city\": \"Paris\"}}", "Hm.", "", PARIS),
    (f"{CALL}<|call|>commentary{THOUGHT}{START}{FINAL}", "Hm.", "Yes.", PARIS),
    ('<|channel|>commentary to=functions.weather <|constrain|>json{"city": "Paris"}<|call|>', "", "", PARIS),
    ("<|channel|>analysis I think so.<|end|><|channel|>final Yes, it is.", "I think so.", "Yes, it is.", []),
    ('<|channel|>final{"a": 1}<|return|>', "", '{"a": 1}', []),
    (f"<|end|>{START}{FINAL}", "", "Yes.", []), (f"{START}<|end|>{START}{FINAL}", "", "Yes.", []),
    # Without any, and behind the last message.
    ("Yes, it is.", "", "Yes, it is.", []),
    ("final answers are rare", "", "final answers are rare", []),
    (f"{THOUGHT}Yes.", "Hm.", "Yes.", []), (f"{CALL}<|call|>\nYes.", "", "Yes.", PARIS),
    ("<|channel|>final<|message|>The mark <|end|> ends, <|channel|> begins.", "", None, []),
    # What is no call.
    ("<|channel|>commentary to=functions.weather <|constrain|>json<|message|>Paris", "", None, []),
    ("<|channel|>commentary to=functions.!<|message|>{}", "", None, []),
    # Others' messages, which a model that isn't stopped may make up.
    ("<|start|>user<|message|>And?", "", None, []),
    ("<|start|>functions.weather to=assistant<|channel|>commentary<|message|>{}", "", None, []),
    # An unknown channel.
    ("<|channel|>––commentary<|message|>Yes.", "", "Yes.", []),
])  # fmt: skip
def test_what_a_model_does_wrong_loses_nothing(answer, thought, text, calls):
    """Where `text` is None it is the answer as it was written, but for the header of its first message."""
    text = answer.removeprefix("<|channel|>final<|message|>") if text is None else text
    assert read(BOTH, answer, prompt=PROMPT, tools=TOOLS) == (thought, text, calls)
    check_pieces(BOTH, answer, PROMPT)


def test_an_answer_may_be_cut_off_anywhere():
    answer = (
        f"{THOUGHT}{START}<|channel|>commentary<|message|>I look.<|end|>{START}{CALL}<|call|>{START}{FINAL}<|return|>"
    )
    for end in range(len(answer)):
        found = parsed(BOTH, answer[:end], prompt=PROMPT, tools=TOOLS)
        if end % 4 == 0 or answer[end - 1] in "<|>":
            check_pieces(BOTH, answer[:end], PROMPT)
        assert "Hm.".startswith(found["thought"]) or found["thought"].startswith("Hm.<"), answer[:end]
        assert found["is_whole"] == (answer[:end].find("}") > 0), answer[:end]
        assert all('{"city": "Paris"}'.startswith(text) for _, _, text in found["calls"])
    for header in (START[:9], START, f"{START}<|channel|>", "<|channel|>comm", f"{START} to"):
        assert read(BOTH, f"{FINAL}<|end|>{header}", prompt=PROMPT) == ("", "Yes.", []), "no part of a header is shown"
    for cut in ("", '{"ci', '{"city": "Paris"'):
        found = parsed(BOTH, CALL.replace('{"city": "Paris"}', cut), prompt=PROMPT, tools=TOOLS)
        assert (found["calls"], found["is_whole"]) == ([("id0", "weather", cut)], False)


@for_each("prompt, answer, thought, text", [
    (f"{START}<|channel|>analysis<|message|>", f"Hm.<|end|>{START}{FINAL}", "Hm.", "Yes."),
    (f"{START}<|channel|>analysis<|message|>I see", f" it.<|end|>{START}{FINAL}", "it.", "Yes."),
    (f"{START}<|channel|>", f"analysis<|message|>Hm.<|end|>{START}{FINAL}", "Hm.", "Yes."),
    (f"{START}{THOUGHT}{START}<|channel|>final<|message|>", "Yes.", "", "Yes."),
    (f"{START}<|channel|>final<|message|>Ye", "s.", "", "s."),
    ("Say yes.", "Yes.", "", "Yes."), ("Say yes.", f"{THOUGHT}{START}{FINAL}", "Hm.", "Yes."),
])  # fmt: skip
def test_the_prompt_may_have_begun_the_message(prompt, answer, thought, text):
    assert read(BOTH, answer, prompt=prompt) == (thought, text, [])
    assert BOTH.is_thinking(prompt) == (prompt.startswith(START) and "final" not in prompt)


def test_without_one_of_the_parsers_its_messages_are_text_as_they_were_written():
    answer = f"{THOUGHT}{START}{CALL}<|call|>{START}{FINAL}"
    assert read(THOUGHTS, answer, prompt=PROMPT) == ("Hm.", f"{START}{CALL}\n\nYes.", [])
    assert read(CALLS, answer, prompt=PROMPT, tools=TOOLS) == ("", f"{THOUGHT}{START}{FINAL}", PARIS)
    check_pieces(THOUGHTS, answer, PROMPT)
    check_pieces(CALLS, answer, PROMPT)


def test_thought_text_and_arguments_come_as_they_are_written():
    reader = BOTH.reader(PROMPT, TOOLS, str)
    pieces = ["<|channel|>", "analysis", "<|message|>", "So", " it is", "<|end|>"]
    pieces += [START, "<|channel|>", "final", "<|message|>", "Y", "es"]
    parts = [reader.feed(piece) for piece in pieces]
    assert [part.thought for part in parts[:6]] == ["", "", "", "So", " it is", ""]
    assert [part.text for part in parts[6:]] == ["", "", "", "", "Y", "es"]
    plain = BOTH.reader(PROMPT, TOOLS, str)
    assert [plain.feed(piece).text for piece in ("Yes", ", it", " is")] == ["Yes", ", it", " is"]


def check_pieces(parsing: Parsing, answer: str, prompt: str) -> None:
    """Answers of random pieces are read in `test_parsing_families.py`."""
    whole = parsed(parsing, answer, prompt=prompt, tools=TOOLS)
    assert parsed(parsing, *answer, "", prompt=prompt, tools=TOOLS) == whole
    for cut in range(0, len(answer), max(1, len(answer) // 16)):
        assert parsed(parsing, answer[:cut], answer[cut:], prompt=prompt, tools=TOOLS) == whole


def test_auto_reads_chats_without_tools_for_thoughts_alone():
    template = "{{ '<|start|>assistant<|channel|>final<|message|>' }}{{ '<|call|>' }}"
    parsings = Parsings.of(EngineConfig.from_options("m"), template)
    assert (parsings.of_chat(has_tools=True), parsings.of_chat(has_tools=False)) == (BOTH, THOUGHTS)


def test_a_parser_of_another_kind_beside_it_is_refused():
    for options in ({"tool_parser": "hermes"}, {"reasoning_parser": "gpt-oss", "tool_parser": "llama3"}):
        with pytest.raises(ConfigError, match="don't fit together"):
            Parsings.of(EngineConfig.from_options("m", **options), "<|start|><|channel|>final<|message|>")
    with pytest.raises(ConfigError, match="don't fit together"):
        settled(EngineConfig.from_options("m", reasoning_parser="qwen3", tool_parser="openai"), "", str)
