"""Outputs as dicts and as JSON: every field under its name, whatever their values are."""

import dataclasses
import json
import math

import numpy as np
from builders.cases import for_each

from penstock import CompletionOutput, Logprob, RequestMetrics, RequestOutput
from penstock.protocol.outputs import FunctionCall, Samples, ToolCall


def full_output() -> RequestOutput:
    call = ToolCall("call_1", FunctionCall("add", '{"a": 1}'))
    logprobs = [{7: Logprob(-0.5, 1, "½"), 9: Logprob(-math.inf, 2)}]
    samples = Samples(
        CompletionOutput(number, "tëxt", [7], "tool_calls", logprobs=logprobs, tool_calls=[call]) for number in (0, 1)
    )
    return RequestOutput("3", "p", [1, 2], samples, True, RequestMetrics(1.5), prompt_logprobs=[None, *logprobs])


def test_the_json_reads_back_as_the_dict_with_every_field():
    output = full_output()
    output.prompt = "a\ud800b"  # half a surrogate pair, which is written as its escape
    plain, text = output.to_dict(), output.to_json()
    assert json.loads(text) == plain == json.loads(json.dumps(plain, allow_nan=False))
    assert json.loads(output.to_json(indent=2)) == plain
    assert text.encode() and "tëxt" in text and "\n" not in text
    assert list(plain) == [field.name for field in dataclasses.fields(RequestOutput)]
    assert plain["outputs"][1]["tool_calls"][0]["function"] == {"name": "add", "arguments": '{"a": 1}'}
    assert plain["outputs"][0]["logprobs"] == [
        {
            "7": {"logprob": -0.5, "rank": 1, "decoded_token": "½"},
            "9": {"logprob": -9999.0, "rank": 2, "decoded_token": None},
        }
    ]
    assert plain["prompt_logprobs"][0] is None and plain["metrics"]["arrival_time"] == 1.5
    assert output.outputs.to_dict() == output.outputs[0].to_dict() == plain["outputs"][0], "the first answer alone"
    for part in (output.outputs[0].tool_calls[0], output.outputs[0].tool_calls[0].function, output.metrics):
        assert json.loads(part.to_json()) == part.to_dict()


@for_each("ids", [np.array([1, 2]), [np.int64(1), np.int32(2)], (1, 2), range(1, 3)])
def test_what_is_no_list_of_python_numbers_becomes_one(ids):
    output = full_output()
    output.prompt_token_ids = ids
    output.outputs[0].cumulative_logprob = np.float32(-0.5)
    plain = json.loads(output.to_json())
    assert plain["prompt_token_ids"] == [1, 2] and plain["outputs"][0]["cumulative_logprob"] == -0.5
