"""Outputs as dicts and as JSON: every field under its name, whatever their values are."""

import dataclasses
import json
import math

import numpy as np
from builders.cases import for_each

from penstock import CompletionOutput, Logprob, RequestMetrics, RequestOutput
from penstock.protocol.outputs import FunctionCall, Samples, ToolCall

KINDS = [CompletionOutput, FunctionCall, RequestMetrics, RequestOutput, ToolCall]


def full_output() -> RequestOutput:
    call = ToolCall("call_1", FunctionCall("add", '{"a": 1}'))
    logprobs = [{7: Logprob(-0.5, 1, "½"), 9: Logprob(-math.inf, 2)}]
    samples = Samples(
        CompletionOutput(number, "tëxt", [7], "tool_calls", logprobs=logprobs, tool_calls=[call]) for number in (0, 1)
    )
    return RequestOutput("3", "p", [1, 2], samples, True, RequestMetrics(1.5), prompt_logprobs=[None, *logprobs])


def test_the_json_reads_back_as_the_dict_with_every_field():
    output = full_output()
    plain = output.to_dict()
    assert json.loads(output.to_json()) == plain == json.loads(json.dumps(plain, allow_nan=False))
    assert list(plain) == [field.name for field in dataclasses.fields(RequestOutput)]
    assert plain["outputs"][1]["tool_calls"][0]["function"] == {"name": "add", "arguments": '{"a": 1}'}
    assert plain["outputs"][0]["logprobs"] == [
        {
            "7": {"logprob": -0.5, "rank": 1, "decoded_token": "½"},
            "9": {"logprob": -9999.0, "rank": 2, "decoded_token": None},
        }
    ]
    assert plain["prompt_logprobs"][0] is None and plain["metrics"]["arrival_time"] == 1.5


def test_the_first_answer_is_told_alone_where_it_is_asked_alone():
    output = full_output()
    assert output.outputs.to_dict() == output.outputs[0].to_dict() == output.to_dict()["outputs"][0]


def test_every_kind_of_output_can():
    assert all(callable(kind.to_dict) and callable(kind.to_json) for kind in KINDS)


@for_each("ids", [np.array([1, 2]), [np.int64(1), np.int32(2)], (1, 2), range(1, 3)])
def test_what_is_no_list_of_python_numbers_becomes_one(ids):
    output = full_output()
    output.prompt_token_ids = ids
    output.outputs[0].cumulative_logprob = np.float32(-0.5)
    plain = json.loads(output.to_json())
    assert plain["prompt_token_ids"] == [1, 2] and plain["outputs"][0]["cumulative_logprob"] == -0.5


def test_half_a_surrogate_pair_is_written_as_its_escape():
    output = full_output()
    output.prompt = "a\ud800b"
    text = output.to_json()
    assert text.encode() and json.loads(text)["prompt"] == "a\ud800b" and "tëxt" in text


def test_an_indent_is_for_people():
    output = full_output()
    assert "\n" not in output.to_json() and json.loads(output.to_json(indent=2)) == output.to_dict()
