"""A receipt or a line from a stranger is data: it runs nothing, names no file, and if damaged it is not judged."""

import base64
import io
import json
import zlib
from collections.abc import Mapping
from types import MappingProxyType

import msgspec
from builders.cases import for_each

from penstock.frontend.commands.verify import options_of
from penstock.frontend.receipts.door import params_of
from penstock.frontend.receipts.receipt import PREFIX, ClaimedSample, Receipt, View
from penstock.frontend.receipts.written import _sum, packed_ids
from penstock.frontend.requests.prompts import of_receipt
from penstock.frontend.verify.lines import LedBodies, from_file
from penstock.frontend.verify.repeated import foreign_parameter, foreign_question
from penstock.protocol.options.config import EngineConfig
from penstock.protocol.parameters.sampling import SamplingParams

HARMLESS = {
    "quantization": "int8", "block_size": 64, "deterministic": "portable", "tensor_parallel_size": 2,
    "reasoning_parser": "qwen3", "tool_call_parser": "hermes",
}  # fmt: skip


def receipt(**changes) -> Receipt:
    samples = [ClaimedSample(packed_ids([5]), "length", None)]
    given = {"facts": {}, "params": {"max_tokens": 1, "seed": 1}, "prompt": packed_ids([1, 2, 3]), "samples": samples}
    return Receipt(**{**given, **changes})


def sealed(encoded: bytes) -> str:
    """The text of a receipt that its writer has encoded in a way of his own."""
    packed = zlib.compress(encoded, 9)
    return PREFIX + base64.urlsafe_b64encode(_sum(packed) + packed).decode().rstrip("=")


def line(text: str) -> str:
    return json.dumps({"object": "text_completion", "model": "pocket", "receipt": text})


def test_a_receipt_sets_options_that_change_bits_and_none_that_names_a_file_or_code():
    values = {**dict.fromkeys(EngineConfig.__struct_fields__, "/tmp/mine"), **HARMLESS}
    facts = {f"option {name}": json.dumps(value) for name, value in values.items()} | {"KV cache": "int8"}
    found = options_of("pocket", receipt(facts=facts | {"option record": '["'}))
    assert found == {**HARMLESS, "kv_cache_dtype": "int8"}


@for_each(
    "hostile",
    [
        "[" * 100_000, '{"a": 1, "a": 2}', '{"receipt": "pr1_\\ud800"}', "7", "not JSON", '{"a": NaN}', line("pr1_"),
        line("pr2_AAAA"), line("pr1_AAAA"), line(receipt().text()[:-1]), line(receipt(prompt=b"abc").text()),
        '{"custom_id": "x", "response": []}', line(sealed(b"\x97" + b"\xdd\x00\xff\xff\xff" + b"\x80" * 2**24)),
        line(sealed(msgspec.msgpack.encode(receipt(tools=[{}] * 2**21)))),
        line(sealed(msgspec.msgpack.encode(receipt()) + b"\0")),
        line(sealed(msgspec.msgpack.encode([*msgspec.to_builtins(receipt()), 1]))),
    ],
)  # fmt: skip
def test_a_line_that_is_no_answer_with_a_whole_receipt_is_not_judged(hostile):
    [found] = from_file(io.BytesIO(hostile.encode()), "lines")
    assert found.receipts == [] and found.reason


@for_each(
    "changes", [{"beams": {"beam_width": "many"}}, {"params": {"max_tokens": "x"}}, {"params": {"temperature": -1}}]
)
def test_parameters_of_another_kind_are_refused(changes):
    assert "damaged" in (of_receipt(receipt(**changes)).refusal or "")


def test_a_receipt_knows_nothing_of_predictions():
    predicted, plain = (SamplingParams(max_tokens=4, prediction=text) for text in ("one", None))
    assert params_of(predicted, predicted, 1) == params_of(plain, plain, 1)


def test_a_file_is_read_once_and_answers_of_another_model_than_the_first_are_not_judged():
    lines = ["not JSON", line(receipt().text()), line(receipt().text()).replace("pocket", "other")]
    led = LedBodies.of(from_file(io.BytesIO("\n".join(lines).encode()), "lines"), "lines", None)
    assert led.model == "pocket" and led.receipt == receipt()
    bodies = list(led.bodies)
    assert [len(body.receipts) for body in bodies] == [0, 1, 0] and "its model is other" in bodies[2].reason
    led = LedBodies.of(from_file(io.BytesIO("\n".join(lines).encode()), "lines"), "lines", "third")
    assert led.model == "third" and [len(body.receipts) for body in led.bodies] == [0, 1, 1]


TOOL = {"type": "function", "name": "weather", "description": None, "parameters": None, "strict": True}
SEARCH = {**TOOL, "name": "search"}
RESPONSE = {
    "object": "response", "temperature": 1.0, "top_p": 0.9, "max_output_tokens": 90, "metadata": {"a": "b"},
    "parallel_tool_calls": True, "tool_choice": "required", "tools": [TOOL, SEARCH],
}  # fmt: skip
ALLOWED = {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "search"}]}


def nested(*tools: dict) -> list[dict]:
    return [{"type": "function", "function": {"name": tool["name"], "strict": True}} for tool in tools]


def asked(facts: Mapping[str, str] = MappingProxyType({"max_model_len": "93"})) -> Receipt:
    """With a prompt of three tokens, so that this length leaves 90."""
    params = {"top_p": 0.9, "max_tokens": 90, "seed": 1, "temperature": 1.0}
    return receipt(params=params, facts=dict(facts), tools=nested(TOOL, SEARCH), view=View(is_call=True))


@for_each(
    "change, place",
    [
        ({}, None), ({"temperature": 1}, None), ({"temperature": 0.8}, "temperature"), ({"top_p": 0.91}, "top_p"),
        ({"top_p": None}, "top_p"), ({"max_output_tokens": 91}, None), ({"max_output_tokens": 89}, "max_output_tokens"),
        ({"max_output_tokens": None}, None), ({"metadata": {}, "parallel_tool_calls": False}, None),
        ({"tool_choice": "auto"}, "tool_choice"), ({"tool_choice": ALLOWED["tools"][0]}, "tool_choice"),
        ({"tool_choice": ALLOWED}, "tool_choice"), ({"tool_choice": {**ALLOWED, "mode": "required"}}, "tools"),
        ({"tools": [TOOL]}, "tools"), ({"tools": [TOOL, {**SEARCH, "description": "find"}]}, "tools"),
        ({"tools": [TOOL, {**SEARCH, "strict": None}]}, "tools"), ({"tools": "all"}, "tools"),
        ({"object": "chat.completion", "temperature": 7}, None),
    ],
)  # fmt: skip
def test_a_parameter_that_a_response_repeats_must_be_the_receipts_if_it_decides_tokens(change, place):
    found = foreign_parameter({**RESPONSE, **change}, asked())
    assert (found and found.path) == place


def test_a_limit_is_the_receipts_unless_the_models_length_has_cut_it():
    body = {**RESPONSE, "max_output_tokens": 91}
    assert foreign_parameter(body, asked({"max_model_len": "94"})).expected == 90
    assert foreign_parameter(body, asked({})) is None  # an earlier receipt doesn't say


class Letters:
    """A tokenizer for the test: an id for each letter."""

    def encode(self, text: str, add_special_tokens: bool) -> list[int]:
        return list(map(ord, text))

    def decode(self, ids: list[int], skip_special_tokens: bool) -> str:
        return "".join(map(chr, ids))


@for_each(
    "body, place",
    [
        ({"prompt": "  What is\n2 + 3? "}, None), ({"prompt": "What is 2 + 2?"}, "prompt"),
        ({"prompt": list(map(ord, "<user>What is 2 + 3?</user>"))}, None), ({"prompt": [1, 2]}, "prompt"),
        ({"messages": [{"role": "system", "content": "x"}, {"role": "user", "content": "What is 2 + 3?"}]}, None),
        ({"messages": [{"role": "user", "content": [{"type": "text", "text": "What was"}]}]}, "messages[0]"),
        ({"object": "response", "instructions": "What is"}, None),
        ({"object": "response", "instructions": "Be rude."}, "instructions"), ({"object": "chat.completion"}, None),
    ],
)  # fmt: skip
def test_a_question_that_a_body_has_must_be_the_receipts(body, place):
    own = receipt(prompt=packed_ids(list(map(ord, "<user>What is 2 + 3?</user>"))))
    found = foreign_question(body, own, Letters())
    assert (found and found[0]) == place
