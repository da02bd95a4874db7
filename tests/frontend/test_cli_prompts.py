"""Prompts as a shell gives them: arguments, lines of text, lines of JSON."""

import io
from collections.abc import Iterator

import pytest

from penstock.frontend.commands.generation.prompts import from_arguments, from_json_lines, from_lines, require_prompt
from penstock.protocol.errors import ConfigError, RequestError
from penstock.protocol.parameters.sampling import SamplingParams

PARAMS = SamplingParams(max_tokens=7)


def test_each_line_of_text_is_a_prompt_with_its_spaces_and_empty_ones_are_none():
    assert [row.prompt for row in from_lines(io.StringIO("one\n\n  two \r\n"), PARAMS)] == ["one", "  two "]


def test_an_argument_that_is_no_text_becomes_its_own_refusal():
    [bad, good] = from_arguments(["\udcff", "good"], PARAMS)
    assert isinstance(bad.prompt, RequestError) and good.prompt == "good"


def test_each_argument_is_a_prompt_as_it_stands():
    assert [row.prompt for row in from_arguments(["two\nlines\n", ""], PARAMS)] == ["two\nlines\n", ""]


@pytest.mark.parametrize(
    "line, prompt, name, max_tokens",
    [
        ('"text"', "text", None, 7),
        ("[1, 2]", [1, 2], None, 7),
        ('{"prompt": "text", "id": "a"}', {"prompt": "text"}, "a", 7),
        ('{"prompt_token_ids": [1], "max_tokens": 2, "id": 5}', {"prompt_token_ids": [1]}, 5, 2),
    ],
)
def test_a_json_line_brings_a_prompt_a_name_and_parameters(line, prompt, name, max_tokens):
    [row] = from_json_lines([line], PARAMS)
    assert (row.prompt, row.name, row.params.max_tokens) == (prompt, name, max_tokens)


@pytest.mark.parametrize(
    "line, sentence",
    [
        ("{", "Line 2 is not JSON"),
        ("5", "Line 2 is neither"),
        ('{"prompt": "x", "temperature": -1}', "Line 2: temperature=-1"),
        ('{"prompt": "x", "tempreature": 1}', "Line 2: 'tempreature' is neither"),
        ('{"prompt": 5}', "Line 2: `prompt` must be text"),
        ('{"messages": "hello"}', "Line 2: `messages` must be a list"),
        ('{"messages": ["hello"]}', "Line 2: `messages` must be a list"),
        ('{"messages": [], "prompt": "hello"}', "Line 2: 'prompt' can't stand beside `messages`"),
        ('{"messages": [], "tools": {}}', "Line 2: `tools` must be a list"),
        ('{"custom_id": 5, "url": "/v1/chat/completions", "body": {}}', "Line 2: custom_id=5"),
        ('{"url": "/v1/chat/completions", "body": {}}', "Line 2: custom_id=None"),
        ('{"prompt": "x", "image": 1}', "Line 2: image"),
        ("{}", "Line 2: A prompt needs `prompt` (text), `prompt_token_ids` or `messages`."),
        ('{"max_tokens": 5}', "Line 2: A prompt needs `prompt` (text), `prompt_token_ids` or `messages`."),
        ('["a"]', "Line 2 is a list"),
        ("[1, null]", "Line 2 is a list"),
    ],
)
def test_a_json_line_that_is_no_request_becomes_its_own_refusal(line, sentence):
    [_, row] = from_json_lines(['"good"', line], PARAMS)
    assert isinstance(row.prompt, RequestError)
    assert str(row.prompt).startswith(sentence)


def test_lines_are_read_as_they_are_wanted():
    def lines() -> Iterator[str]:
        yield '"first"'
        raise RuntimeError("the second line was read too early")

    assert next(from_json_lines(lines(), PARAMS)).prompt == "first"


@pytest.mark.parametrize("lines", [[], ["\n", "\r\n"]])
@pytest.mark.parametrize("is_json", [True, False])
def test_lines_without_a_prompt_are_refused_and_others_are_all_there(lines, is_json):
    with pytest.raises(ConfigError, match="prompts.jsonl is empty, so there is no prompt to answer. Write "):
        require_prompt(lines, "prompts.jsonl", is_json=is_json)
    assert list(require_prompt([*lines, "one\n", "\n"], "-", is_json=is_json)) == ["\n"] * len(lines) + ["one\n", "\n"]
    refusal = RequestError("This line is not UTF-8.")
    assert list(require_prompt([refusal], "-", is_json=is_json)) == [refusal]
