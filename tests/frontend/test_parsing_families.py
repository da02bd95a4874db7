"""Every family's own way of writing thoughts and calls is read, the same however the answer is cut into pieces."""

import json

from builders.answers import CALLS, EXPECTED, SCRAPS, THOUGHTS, TOOLS, broken, parsed, read
from builders.cases import for_each
from builders.tokenizer_kinds import KINDS
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.frontend.parsing import REASONING, TOOL_CALLS, Parsing
from penstock.frontend.text.incremental import Decoding


def calls_of(name: str) -> Parsing:
    return Parsing(None, TOOL_CALLS[name])


def test_every_family_has_its_example():
    assert (set(CALLS), set(THOUGHTS)) == (set(TOOL_CALLS), set(REASONING))


@for_each("name", CALLS)
def test_a_familys_calls_are_read_with_text_around_them_and_wrong_ones_are_text(name):
    right, wrong = CALLS[name]
    assert read(calls_of(name), right, tools=TOOLS) == ("", "", EXPECTED)
    assert parsed(calls_of(name), right, tools=TOOLS)["is_whole"]
    around = read(calls_of(name), f"Let me look.\n\n{right}\nThat was it.", tools=TOOLS)
    assert around == ("", "Let me look.\n\nThat was it.", EXPECTED)
    assert read(calls_of(name), wrong, tools=TOOLS) == ("", wrong, [])
    assert read(calls_of(name), f"{wrong}\n{right}", tools=TOOLS) == ("", wrong, EXPECTED)


@for_each("name", CALLS)
def test_a_familys_calls_are_the_same_for_every_two_pieces_and_letter_by_letter_whole_or_cut_off(name):
    for answer in CALLS[name]:
        answer = f"So:\n{answer}\nDone. "
        whole = parsed(calls_of(name), answer, tools=TOOLS)
        for cut in range(len(answer)):
            assert parsed(calls_of(name), answer[:cut], answer[cut:], tools=TOOLS) == whole
        assert parsed(calls_of(name), *answer, "", tools=TOOLS) == whole
    answer = CALLS[name][0]
    for end in range(1, len(answer)):
        whole = parsed(calls_of(name), answer[:end], tools=TOOLS)
        assert len(whole["calls"]) <= 2
        assert parsed(calls_of(name), answer[: end - 1], answer[end - 1 : end], "", tools=TOOLS) == whole
        if end % 7 == len(name) % 7:
            assert parsed(calls_of(name), *answer[:end], "", tools=TOOLS) == whole
    # The name comes first, and the arguments in more than one piece.
    reader = calls_of(name).reader("", TOOLS, str)
    told = [call.function for letter in answer for call in reader.feed(letter).calls if call.index == 0]
    assert told[0].name == "weather" and json.loads("".join(call.arguments for call in told)) == EXPECTED[0][1]
    assert len([call for call in told if call.arguments]) > 1


@for_each("name", CALLS)
def test_a_familys_calls_are_read_token_by_token_though_its_marks_are_hidden_tokens(name):
    parsing, backend = calls_of(name), KINDS["byte_level"]()
    backend.add_special_tokens([mark for mark in parsing.shown if len(mark) > 2])
    ids = backend.encode(CALLS[name][0], add_special_tokens=False).ids
    assert Decoding(backend).decoder().feed(ids) != CALLS[name][0]
    decoder = Decoding(backend, parsing.shown).decoder()
    pieces = [decoder.feed([token]) for token in ids]
    assert parsed(parsing, *pieces, "", tools=TOOLS) == parsed(parsing, CALLS[name][0], tools=TOOLS)


@for_each("name", THOUGHTS)
def test_a_familys_thought_and_answer_are_read_also_where_the_prompt_began_or_closed_the_thought(name):
    row, answer = REASONING[name], THOUGHTS[name]
    parsing = Parsing(row, None)
    assert read(parsing, answer)[:2] == ("Hm.", "Yes.")
    begun = answer.removeprefix(next((mark for mark in row.all_openings if answer.startswith(mark)), ""))
    assert read(parsing, begun, prompt=f"user\nWell?\n{row.opening}\n")[:2] == ("Hm.", "Yes.")
    assert read(parsing, "Yes.", prompt=f"{row.opening}\n\n{row.closing}\n\n") == ("", "Yes.", [])
    whole = parsed(parsing, answer)
    for cut in range(len(answer)):
        assert parsed(parsing, answer[:cut], answer[cut:]) == whole


def test_an_answer_between_marks_is_followed_by_calls():
    parsing = Parsing(REASONING["ernie-x1"], TOOL_CALLS["ernie"])
    assert read(parsing, f"Hm.\n</think>\n\n\n{CALLS['ernie'][0]}") == ("Hm.", "", EXPECTED)
    answer = f"Hm.\n</think>\n\n\n<response>\nLook.\n</response>\n{CALLS['ernie'][0]}"
    assert read(parsing, answer) == ("Hm.", "Look.", EXPECTED)


@for_each("name, answer, text, calls", [
    ("llama3", '{"name": "f", "parameters": {"a": 1}}', "", [("f", {"a": 1})]),
    ("llama3", 'Sure:\n  {"name": "f", "parameters": {}}', "Sure:", [("f", {})]),
    ("llama3", '{"type": "function", "name": "f", "parameters": {}}', "", [("f", {})]),
    ("llama3", '{"type": "function", "function": {"name": "f", "parameters": {}}}', "", [("f", {})]),
    ("llama3", '{"name": "Bob", "age": 3}', None, []), ("llama3", '{"name": "Bob"}', None, []),
    ("llama3", "function f() {\n{ return 1; }\n}", None, []),
    ("llama3", 'Like {"name": "f", "parameters": {}}', None, []),
    ("llama3", '{"name": "f", "parameters": {}}; so', "; so", [("f", {})]),
    ("mistral", '[TOOL_CALLS]f[ARGS]{"a": 1}[TOOL_CALLS]g[CALL_ID]x1[ARGS]{}', "", [("f", {"a": 1}), ("g", {})]),
    ("mistral", '[TOOL_CALLS]f{"a": 1}Done.', "Done.", [("f", {"a": 1})]),
    ("mistral", '[TOOL_CALLS] {"name": "f", "arguments": {}}', "", [("f", {})]),
    ("mistral", '[TOOL_CALLS][{"name": "f", "arguments": {}}, {"x": 1}]', '{"x": 1}]', [("f", {})]),
    ("mistral", '[TOOL_CALLS][{"arguments": {"a": 1}, "name": "f"}]', "", [("f", {"a": 1})]),
    ("granite", '<tool_call>[{"name": "f", "arguments": {}}]</tool_call>', "", [("f", {})]),
    ("deepseek", '<｜tool▁call▁begin｜>f<｜tool▁sep｜>{"a": 1}<｜tool▁call▁end｜>', "", [("f", {"a": 1})]),
    ("qwen3-coder", "<function=f>\n<parameter=a>\n1\n</parameter>\n</function>", "", [("f", {"a": "1"})]),
    ("qwen3-coder", "<tool_call>\n<function=f>\nWell.\n</function>\n</tool_call>", "Well.", [("f", {})]),
    ("pythonic", "[f(a={'d': [true, None]}, b=-2.5)]", "", [("f", {"a": {"d": [True, None]}, "b": -2.5})]),
    ("pythonic", r'[f(pattern="\d\n")]', "", [("f", {"pattern": "\\d\n"})]),
    ("pythonic", "[f(a=1), g(b)]", "g(b)]", [("f", {"a": 1})]),
    ("pythonic", "[1, 2] or [a link](to.it) or\n[x for x in y]", None, []),
    ("pythonic", "[f(a=b)]", "a=b)]", [("f", None)]),
    ("pythonic", "[f(a=b)]\n[g()]", "a=b)]", [("f", None), ("g", {})]),
    ("hermes", '<tool_call>{"name": "f", "arguments": "{\\"a\\": 1}"}</tool_call>', "", [("f", {"a": 1})]),
    ("hermes", '<tool_call>{"name": "f", "parameters": {"a": 1}}</tool_call>', "", [("f", {"a": 1})]),
])  # fmt: skip
def test_forms_of_a_family(name, answer, text, calls):
    """Where `text` is None the answer is all text; a call whose arguments are None was told without them."""
    whole = parsed(calls_of(name), answer)
    assert whole["text"] == (answer if text is None else text)
    assert [(found, json.loads(arguments or "null")) for _, found, arguments in whole["calls"]] == calls
    assert parsed(calls_of(name), *answer, "") == whole


BETWEEN_MARKS = {
    "qwen3-coder": "<function=weather>\n<parameter={key}>\n{written}\n</parameter>\n</function>",
    "glm45": "<tool_call>weather\n<arg_key>{key}</arg_key>\n<arg_value>{written}</arg_value>\n</tool_call>",
    "minimax-m2": '<invoke name="weather">\n<parameter name="{key}">{written}</parameter>\n</invoke>',
}


@for_each("name", BETWEEN_MARKS)
@for_each("key, written, value", [
    ("city", "12", "12"), ("city", "a <b> & \"c\"\n\nd", "a <b> & \"c\"\n\nd"), ("city", "", ""),
    ("city", "北京 😀", "北京 😀"), ("unknown", "[1]", "[1]"), ("days", "[1, 2]", [1, 2]),
    ("days", "one day", "one day"), ("code", "12", "12"), ("kind", "1", "1"),
    ("limit", "3", 3), ("limit", "None", None), ("exact", "True", True), ("exact", "false", False),
])  # fmt: skip
def test_the_tools_schema_says_what_a_value_between_marks_is(name, key, written, value):
    answer = BETWEEN_MARKS[name].format(key=key, written=written)
    assert read(calls_of(name), answer, tools=TOOLS) == ("", "", [("weather", {key: value})])
    assert parsed(calls_of(name), *answer, "", tools=TOOLS) == parsed(calls_of(name), answer, tools=TOOLS)


@for_each("name", BETWEEN_MARKS)
@for_each("odd", [5, None, True, "x", [], {}, [5, None], {"a": {"b": []}}])
@for_each("key", ["type", "anyOf", "oneOf", "enum"])
def test_whatever_a_tools_schema_says_a_call_is_read(name, key, odd):
    city = {key: odd}
    for depth in range(50):
        city = {key: odd, "anyOf": [city, city] if depth < 4 else [city]}
    tools = {"weather": {"type": "object", "properties": {"city": city}}}
    answer = BETWEEN_MARKS[name].format(key="city", written="Paris")
    assert read(calls_of(name), answer, tools=tools) == ("", "", [("weather", {"city": "Paris"})])


def test_a_call_that_is_cut_off_or_no_json_keeps_what_came_and_is_not_whole():
    for name, answer, call, arguments in (
        ("hermes", '<tool_call>{"name": "f", "arguments": {"a": "Par', "f", '{"a": "Par'),
        ("hermes", '<tool_call>{"name": "f", "arguments": {"a": Par}}</tool_call>', "f", '{"a": Par}'),
        ("qwen3-coder", "<function=weather>\n", "weather", ""),
        ("qwen3-coder", "<function=weather>\n<parameter=city>\nPar", "weather", '{"city": "Par'),
        ("qwen3-coder", "<function=weather>\n<parameter=days>\n[1, 2", "weather", '{"days": \n[1, 2'),
    ):
        found = parsed(calls_of(name), answer, tools=TOOLS)
        assert (found["calls"], found["is_whole"]) == ([("id0", call, arguments)], False)


@given(st.sampled_from(sorted(CALLS)), st.data())
@settings(max_examples=300)
def test_the_parts_of_any_answer_do_not_depend_on_how_it_was_cut(name, data):
    """An answer made of the family's own pieces, right and wrong, read at once, in pieces and letter by letter."""
    right, wrong = CALLS[name]
    fitting = [row for row in REASONING.values() if row.channels == TOOL_CALLS[name].channels]
    thoughts = data.draw(st.sampled_from([None, *fitting]))
    marks = TOOL_CALLS[name].shown | (thoughts.shown if thoughts else set())
    half = data.draw(st.integers(0, len(right)))
    fragments = [*SCRAPS, *broken(marks), right, wrong, right[:half], right[half:]]
    answer = "".join(data.draw(st.lists(st.sampled_from(fragments), max_size=10)))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(answer)), max_size=8)))
    pieces = [answer[start:end] for start, end in zip([0, *cuts], [*cuts, len(answer)])]
    prompts = ["", thoughts.opening, f"{thoughts.opening}\n\n{thoughts.closing}\n\n"] if thoughts else [""]
    options = {"tools": TOOLS, "prompt": f"user\nWell?\n{data.draw(st.sampled_from(prompts))}"}
    parsing = Parsing(thoughts, TOOL_CALLS[name])
    whole = parsed(parsing, answer, **options)
    assert parsed(parsing, *pieces, **options) == whole
    assert parsed(parsing, *answer, "", **options) == whole


@given(st.sampled_from(sorted(CALLS)), st.text('<>[]{}a \n":', max_size=40))
@settings(max_examples=150)
def test_an_answer_without_a_call_is_handed_over_letter_by_letter(name, answer):
    found = parsed(calls_of(name), answer, tools=TOOLS)
    assert found["text"] == answer and not found["calls"]
