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
    lambda inner: some.lists(inner, max_size=4)
    | some.tuples(inner, inner)
    | some.dictionaries(some.text(max_size=8) | some.integers() | some.none(), inner, max_size=3),
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


@settings(max_examples=50)
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


@pytest.mark.parametrize("params", [5, {"temperature": 0}, "greedy", [PARAMS]])
def test_so_do_parameters_of_a_wrong_type(stand_in, params):
    first, second, third = answered(stand_in, [GOOD, GOOD, GOOD], [PARAMS, params, None])
    assert (first.error_code, second.error_code, third.error_code) == (200, 400, 200)
    assert "SamplingParams" in second.error_msg


@pytest.mark.parametrize("conversation", [5, None, {"a": 1}, "text", [5], [{"content": "x"}], [{"role": deep}], deep])
def test_so_does_a_conversation(stand_in, conversation):
    good = [{"role": "user", "content": "x"}]
    first, second, third = stand_in.chat([good, conversation, good], PARAMS, use_tqdm=False)
    assert (first.error_code, second.error_code, third.error_code) == (200, 400, 200)


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


@settings(max_examples=50)
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


@settings(max_examples=50)
@given(some.lists(noise, max_size=5))
def test_any_line_of_text_fails_alone(stand_in, lines):
    rows = list(from_lines(read_lines(BytesIO(b"".join(line + b"\ngood\n" for line in lines)), "in"), PARAMS))
    outputs = answered(stand_in, [row.prompt for row in rows])
    assert sum(output.prompt == "good" and output.error_code == 200 for output in outputs) >= len(lines)


# --- what was finished ------------------------------------------------------------------------------------------------


def test_a_death_hands_on_everything_that_had_finished(model_folder, monkeypatch):
    """Also what nobody had taken yet: the caller comes back to it after the death."""
    monkeypatch.setenv("PENSTOCK_FAULTS", "worker.step=delay:0.02")
    with LLM(model_folder, load_format="stand-in", max_model_len=1024, num_gpu_blocks_override=256, quiet=True) as llm:
        lengths = [1, 4, 4, 4, 4, 900]
        params = [SamplingParams(max_tokens=length, ignore_eos=True) for length in lengths]
        run = llm.generate_iter([GOOD] * len(lengths), params, ordered=False)
        finished = [next(run)]
        client = llm._session.transport
        wait_until(lambda: len(client._pending) == 1, 20, "all but the long one have come")
        os.kill(tree_processes(llm)["worker 0"], signal.SIGKILL)
        wait_until(lambda: client.error is not None, 20, "the death is known")
        with pytest.raises(EngineDeadError, match="SIGKILL"):
            for output in run:
                finished.append(output)
    assert sorted(len(output.outputs.token_ids) for output in finished) == [1, 4, 4, 4, 4]
