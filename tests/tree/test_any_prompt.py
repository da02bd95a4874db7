"""Whatever stands in the place of a prompt: that request ends alone, with a sentence, and the others are answered."""

import decimal
import json
import os
import signal
from io import BytesIO
from typing import Any

import msgspec
import numpy
import pytest
from builders.cases import for_each
from builders.starts import STAND_IN
from builders.watching import tree_processes, wait_until
from hypothesis import example, given, settings
from hypothesis import strategies as some

from penstock import LLM, EngineDeadError, SamplingParams
from penstock.frontend.commands.generation.answers import as_json
from penstock.frontend.commands.generation.lines import read_lines
from penstock.frontend.commands.generation.prompts import from_json_lines, from_lines

# Without `ignore_eos`: the stand-in worker looks for a token that its mask allows, and the end is always one.
PARAMS = SamplingParams(temperature=0, max_tokens=2)
GOOD = [7, 8, 9]

deep: list[Any] = []
for _ in range(100_000):
    deep = [deep]
# Values that cannot even be shown, so that hypothesis may not hold them itself.
HUGE = {"<digits>": 10**5000, "<nested>": deep}
scalars = some.none() | some.booleans() | some.integers() | some.floats() | some.text() | some.binary()
values = some.recursive(
    scalars | some.sampled_from(sorted(HUGE)) | some.complex_numbers() | some.decimals(),
    lambda inner: (
        some.lists(inner, max_size=4)
        | some.tuples(inner, inner)
        | some.dictionaries(some.text(max_size=8) | some.integers() | some.none(), inner, max_size=3)
    ),
    max_leaves=8,
)
parts = some.dictionaries(
    some.sampled_from(("prompt", "prompt_token_ids", "priority", "cache_salt", "lora_name", "image", "colour", 5)),
    values,
    max_size=4,
)


def with_huge(value: Any) -> Any:
    if isinstance(value, str):
        return HUGE.get(value, value)
    if isinstance(value, dict):
        return {key: with_huge(item) for key, item in value.items()}
    return type(value)(map(with_huge, value)) if isinstance(value, (list, tuple)) else value


def answered(llm: LLM, prompts: list[Any], params: Any = PARAMS) -> list[Any]:
    outputs = llm.generate(prompts, params, use_tqdm=False)
    for output in outputs:
        assert output.finished and output.error_code in (200, 400), output
        assert output.error_code == 200 or output.error_msg, output
    return outputs


def holds(llm: LLM, prompt: Any) -> None:
    before, _, behind = answered(llm, [GOOD, with_huge(prompt), GOOD])
    assert before.error_code == behind.error_code == 200
    assert before.outputs.token_ids == behind.outputs.token_ids


# What is asked, under which parameters, and a word of the sentence that refuses it.
BAD = {
    "empty text": ("", PARAMS, "empty"),
    "no ids": ([], PARAMS, "empty"),
    "too long": ([5] * 600, PARAMS, "600"),
    "id beyond the vocabulary": ([1, 10**6], PARAMS, "vocabulary"),
    "negative id": ([1, -1], PARAMS, "vocabulary"),
    "not an id": ({"prompt_token_ids": [1, "x"]}, PARAMS, "whole numbers"),
    "too many characters": ("x" * 100_000, PARAMS, "characters"),
    "unknown adapter": ({"prompt": "x", "lora_name": "nobody"}, PARAMS, "nobody"),
    "multimodal data": ({"prompt": "x", "multimodal_data": {"image": []}}, PARAMS, "sees no pictures"),
    "unknown part": ({"prompt": "x", "colour": 1}, PARAMS, "colour"),
    "neither text nor ids": ({"priority": 1}, PARAMS, "prompt"),
    "stop id beyond the vocabulary": ("x", SamplingParams(stop_token_ids=[10**6]), "stop_token_ids"),
    "bias beyond the vocabulary": ("x", SamplingParams(logit_bias={10**6: 1.0}), "logit_bias"),
    "too many stop strings": ("x", SamplingParams(stop=["s"] * 65), "stop"),
    "no room left": ([5] * 20, SamplingParams(max_length=20), "max_length"),
    "a schema that nothing fits": ("x", SamplingParams(guided_json={"not": {}}), "schema is false"),
    "a regular expression that is none": ("x", SamplingParams(guided_regex="(a"), "unclosed"),
    "a thought nobody knows": ("x", SamplingParams(reasoning_max_tokens=3), "reasoning_parser"),
}


def test_bad_requests_among_a_hundred_good_ones_end_alone(stand_in):
    good = [[number, number + 1, 9] for number in range(1, 101)]
    expected = [output.outputs.token_ids for output in answered(stand_in, good)]
    prompts, params = list(good), [PARAMS] * 100
    for place, (prompt, own, _) in enumerate(BAD.values()):
        prompts.insert(6 * place, prompt)
        params.insert(6 * place, own)
    outputs = stand_in.generate(prompts, params, use_tqdm=False)
    for place, (name, (_, _, word)) in enumerate(BAD.items()):
        bad = outputs.pop(5 * place)
        assert bad.error_code == 400 and word in bad.error_msg, (name, bad.error_msg)
        assert bad.outputs.finish_reason == "error" and bad.finished, name
    assert [output.outputs.token_ids for output in outputs] == expected


def test_a_bad_request_in_a_stream_is_its_only_output(stand_in):
    [output] = stand_in.stream([10**6], PARAMS)
    assert (output.error_code, output.finished) == (400, True)


@settings(max_examples=30)
@given(values | parts)
@example({1: "x", "a": "y"})
@example([decimal.Decimal("sNaN")])
@example({"prompt": "x", "priority": "<digits>"})
@example(["<digits>"])
@example("<nested>")
@example(numpy.array(5))
@example(numpy.array([["a"]]))
@example(memoryview(b"abc"))
@example(object())
@example(range(10**9))
def test_any_value_among_prompts_ends_alone(stand_in, prompt):
    holds(stand_in, prompt)


@for_each("params", [5, {"temperature": 0}, "greedy", [PARAMS]])
def test_so_do_parameters_of_a_wrong_type(stand_in, params):
    first, second, third = answered(stand_in, [GOOD, GOOD, GOOD], [PARAMS, params, None])
    assert (first.error_code, second.error_code, third.error_code) == (200, 400, 200)
    assert "SamplingParams" in second.error_msg


def test_so_does_a_conversation(stand_in):
    good = [{"role": "user", "content": "x"}]
    picture = [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "http://x/y.png"}}]}]
    wrong = [5, None, {"a": 1}, "text", [5], [{"content": "x"}], [{"role": deep}], deep, picture]
    conversations = [conversation for each in wrong for conversation in (good, each)]
    outputs = stand_in.chat(conversations, PARAMS, use_tqdm=False)
    assert [output.error_code for output in outputs] == [200, 400] * len(wrong)
    assert len({tuple(output.outputs.token_ids) for output in outputs[::2]}) == 1


# --- lines of a file --------------------------------------------------------------------------------------------------

NAMES = [field.name for field in msgspec.structs.fields(SamplingParams)]
json_values = some.recursive(
    some.none() | some.booleans() | some.integers() | some.floats() | some.text(max_size=8),
    lambda inner: some.lists(inner, max_size=4) | some.dictionaries(some.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)
keys = some.sampled_from(("prompt", "prompt_token_ids", "id", *NAMES))
objects = some.dictionaries(keys, json_values, max_size=4)
written = (json_values | objects).map(lambda value: json.dumps(value).encode())


@some.composite
def damaged(draw: some.DrawFn) -> bytes:
    """A line with some bytes put in, taken out, or repeated many times."""
    line = draw(written)
    start = draw(some.integers(0, len(line)))
    end = draw(some.integers(start, len(line)))
    piece = draw(some.binary(max_size=4) | some.sampled_from((b"[" * 5000, b"\\ud800", b"NaN", b"9" * 5000, b"1e999")))
    return (line[:start] + piece + line[end:]).replace(b"\n", b"")


noise = some.binary(max_size=12).map(lambda line: line.replace(b"\n", b""))


@settings(max_examples=30)
@given(some.lists(written | damaged() | noise, max_size=5))
@example([b"\xff\xfe"])
@example([b"\xef\xbb\xbf", b"\xef\xbb\xbf"])
def test_any_line_of_json_fails_alone(stand_in, lines):
    text = b"".join(line + b"\n[7, 8, 9]\n" for line in lines)
    rows = list(from_json_lines(read_lines(BytesIO(text), "in"), PARAMS))
    blank = [not line.removeprefix(b"\xef\xbb\xbf").decode(errors="replace").strip() for line in lines]
    assert len(rows) == 2 * len(lines) - sum(blank)
    outputs = answered(stand_in, [row.prompt for row in rows], [row.params for row in rows])
    good = [output for output in outputs if output.prompt_token_ids == GOOD and output.prompt is None]
    assert len(good) >= len(lines)
    for number, (row, output) in enumerate(zip(rows, outputs, strict=True)):
        record = json.loads(as_json(number, row, output).encode(), parse_constant=pytest.fail)
        assert record["index"] == number


VALUES = [
    None, True, False, 0, -1, 1.5, 10**30, "", "x", "\0", "(", "{", [], [[]], [1, "a"], [[1], []], ["x", None], {},
    {"x": 1}, {"5": 1e300}, {"type": 5}, {"type": []}, {"$ref": 5}, {"$ref": "#"}, {"properties": 5}, {"enum": {}},
    {"anyOf": 5}, {"structures": [5], "triggers": [5]}, {"structures": [{"begin": 1, "schema": 1, "end": 1}],
    "triggers": ["x"]}, {"format": 5}, {"format": {"type": "triggered_tags", "tags": 5, "triggers": 5}},
    {"type": "json_schema", "json_schema": 5}, {"type": "json_schema", "json_schema": {"schema": 5}},
    {"type": "structural_tag"}, {"window_size": "x"}, {"window_size": 10**9, "threshold": []}, {"json": {"x": 1}},
    {"format": []}, {"minItems": 1e308}, '{"minItems": 1e999}', '{"minimum": NaN}', {"json": 5}, {"regex": []},
    {"choice": {"a": 1}}, {"grammar": "start: "}, {"a": 1, "b": 2},
]  # fmt: skip


def test_any_value_of_any_parameter_fails_alone(stand_in):
    lines = [json.dumps({"prompt_token_ids": GOOD, name: value}) for name in NAMES for value in VALUES]
    rows = list(from_json_lines(lines, PARAMS))
    outputs = answered(stand_in, [row.prompt for row in rows], [row.params for row in rows])
    assert len(outputs) == len(NAMES) * len(VALUES)
    assert 0.05 < sum(output.error_code == 200 for output in outputs) / len(outputs) < 0.6


@settings(max_examples=15)
@given(some.lists(noise, max_size=5))
def test_any_line_of_text_fails_alone(stand_in, lines):
    rows = list(from_lines(read_lines(BytesIO(b"".join(line + b"\ngood\n" for line in lines)), "in"), PARAMS))
    outputs = answered(stand_in, [row.prompt for row in rows])
    assert sum(output.prompt == "good" and output.error_code == 200 for output in outputs) >= len(lines)


# --- what was finished ------------------------------------------------------------------------------------------------


def test_a_death_hands_on_everything_that_had_finished(model_folder, monkeypatch):
    """Also what nobody had taken yet: the caller comes back to it after the death."""
    monkeypatch.setenv("PENSTOCK_FAULTS", "worker.step=delay:0.2")
    with LLM(model_folder, quiet=True, **STAND_IN) as llm:
        lengths = [1, 4, 4, 4, 4, 900]
        params = [SamplingParams(max_tokens=length, ignore_eos=True) for length in lengths]
        run = llm.generate_iter([GOOD] * len(lengths), params, ordered=False)
        finished = [next(run)]
        client = llm._session.transport
        wait_until(lambda: len(client._pending) == 1, 60, "all but the long one have come")
        os.kill(tree_processes(llm)["worker 0"], signal.SIGKILL)
        wait_until(lambda: client.error is not None, 60, "the death is known")
        with pytest.raises(EngineDeadError, match="SIGKILL"):
            for output in run:
                finished.append(output)
    assert sorted(len(output.outputs.token_ids) for output in finished) == [1, 4, 4, 4, 4]
