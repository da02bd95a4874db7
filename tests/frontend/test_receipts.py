"""A receipt or a line from a stranger is data: it runs nothing, names no file, and if damaged it is not judged."""

import base64
import io
import json
import math
import random
import zlib
from collections.abc import Mapping
from contextlib import nullcontext
from types import MappingProxyType, SimpleNamespace
from typing import Any

import msgspec
import numpy
import pytest
from builders.cases import for_each
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from penstock.frontend import cli
from penstock.frontend.commands import verify
from penstock.frontend.commands.verify import options_of
from penstock.frontend.receipts.door import params_of
from penstock.frontend.receipts.numbers import ClaimedNumbers, NumbersReceipt, NumbersView, digest_of, joined
from penstock.frontend.receipts.receipt import MAX_LENGTH, PREFIX, VERSIONS, ClaimedSample, Receipt, View, unlike
from penstock.frontend.receipts.written import _sum, packed_ids
from penstock.frontend.requests.prompts import of_receipt
from penstock.frontend.rows.prompts import UnusableLine, decoder_of, json_value
from penstock.frontend.verify.lines import LedBodies, from_file
from penstock.frontend.verify.number_forms import FORMS, Computed
from penstock.frontend.verify.repeated import foreign_parameter, foreign_question
from penstock.frontend.verify.verdict import Verdict
from penstock.frontend.verify.written_numbers import WrittenNumber, is_same
from penstock.protocol.errors import RequestError
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


@for_each("changes, facts, adapter, words", [
    ({}, {}, None, None), ({"adapter": "a"}, {}, "a", None),
    ({"facts": {VERSIONS[0]: "1", MAX_LENGTH: "9"}}, {}, None, None),
    ({"adapter": "a" * 64}, {}, None, "its LoRA adapter is aaaaaaaaaaaa…, and here that name has none"),
    ({}, {}, "b", "its LoRA adapter is none, and here that name has b"),
    ({"facts": {"weights": "a"}}, {"weights": "b", "KV": "c"}, None, "weights was a and is b; KV was none and is c"),
])  # fmt: skip
def test_a_model_judges_the_receipts_of_its_own_weights_and_adapters_alone(changes, facts, adapter, words):
    assert unlike(receipt(**changes), facts, adapter) == words


@for_each("statuses, status, told", [
    (["proved", "proved"], 0, "2 proved, 0 differ, 0 not judged."),
    (["proved", "not judged"], 1, "b: not judged: why\n1 proved, 0 differ, 1 not judged."),
    (["proved", "differs"], 1, "b: differs at why: had nothing\n1 proved, 1 differ, 0 not judged."),
    ([], 1, "0 proved, 0 differ, 0 not judged."),
])  # fmt: skip
def test_the_command_succeeds_only_where_every_answer_is_proved(statuses, status, told, tmp_path, monkeypatch, capsys):
    (tmp_path / "lines").write_text(line(receipt().text()))
    found = [Verdict(each, name, "why") for each, name in zip(statuses, "ab")]
    monkeypatch.setattr(verify, "load", lambda *model: nullcontext(SimpleNamespace(_session=None)))
    monkeypatch.setattr(verify, "verdicts", lambda *given: found)
    assert cli.main(["verify", str(tmp_path / "lines"), "--connect", "never"]) == status
    assert capsys.readouterr().out == f"{told}\n"


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


FLOATS = st.floats(width=32, allow_nan=False, allow_infinity=False)
NO_VIEW = NumbersView()
WRITTEN = decoder_of(WrittenNumber)


def of_numbers(num_prompts: int = 1, view: NumbersView = NO_VIEW, **params: Any) -> NumbersReceipt:
    prompts = [ClaimedNumbers(packed_ids([1, place, 70_000]), bytes(16)) for place in range(num_prompts)]
    return NumbersReceipt({"weights": "a" * 64, "kernels": "avx2"}, [params], prompts, view=view)


@given(FLOATS)
def test_a_number_is_the_same_however_it_is_written_and_another_one_with_any_digit_changed(value):
    written = (f"{value:{form}}" for form in (".17g", ".9g", ".9e", ".40g"))
    for text in (repr(value), str(numpy.float32(value)), *written):
        found = json_value(f"[{text}]", decoder=WRITTEN)[0]
        assert is_same(value, found), text
        draw = random.Random(text)
        digits = [place for place, each in enumerate(text.split("e")[0]) if each.isdigit()]
        place = draw.choice(digits)
        other = text[:place] + draw.choice([each for each in "0123456789" if each != text[place]]) + text[place + 1 :]
        try:
            [changed] = json_value(f"[{other}]", decoder=WRITTEN)
        except UnusableLine:  # a number doesn't begin with 0
            continue
        assert not is_same(value, changed), (text, other)


@for_each("expected, found, same", [
    (1.0, 1, True), (1.0, True, False), (1.0, None, False), (1.0, "1.0", False), (1.0, [1.0], False), (0.0, 0, True),
    (math.nan, None, True), (math.inf, None, True), (math.inf, 9999.0, True), (-math.inf, 9999.0, False),
    (9999.0, 9999.0, True), (3, 3, True), (3, 3.0, False), ("a", "a", True), (None, None, True), (True, 1, False),
    (0.1, 10**400, False), (float(numpy.float32(0.1)), 0.1, True), (0.1, 0.10000000149, False),
])  # fmt: skip
def test_values_of_other_types_are_not_the_same(expected, found, same):
    assert is_same(expected, found) is same


def test_a_receipt_survives_copying_and_several_are_joined_with_each_set_of_parameters_once():
    one, two = of_numbers(dimensions=8), of_numbers(2, normalize=True)
    assert NumbersReceipt.read(f" {one.text()}\n") == one
    whole = NumbersReceipt.read(joined([one.text(), two.text(), one.text()]))
    assert whole.params == [{"dimensions": 8}, {"normalize": True}]
    assert [prompt.params for prompt in whole.prompts] == [0, 1, 1, 0]
    assert [prompt.ids for prompt in whole.prompts][1:3] == [[1, 0, 70_000], [1, 1, 70_000]]
    assert whole.pooling[0].dimensions == 8 and all(each.receipt for each in whole.pooling)
    with pytest.raises(RequestError, match="too long"):
        joined([of_numbers(instruction=f"{number}" * 300_000).text() for number in range(4)])


@for_each("change", [
    {"params": []}, {"prompts": []}, {"prompts": [ClaimedNumbers(b"123", b"")]},
    {"prompts": [ClaimedNumbers(b"", b"", 5)]}, {"prompts": [ClaimedNumbers(b"", b"", 0, -1)]},
    {"prompts": [ClaimedNumbers(b"", b"")] * 70_000}, {"facts": {"weights": "a" * (1 << 20)}},
])  # fmt: skip
def test_a_receipt_that_no_model_has_made_is_damaged(change):
    with pytest.raises(RequestError, match="damaged"):
        NumbersReceipt.read(replace(of_numbers(), **change).text())


def test_a_receipt_with_any_character_changed_is_damaged():
    draw, text = random.Random(5), of_numbers(3, dimensions=8).text()
    for _ in range(50):
        spot = draw.randrange(len(text))
        other = draw.choice([each for each in "Aa0-" if each != text[spot]])
        with pytest.raises(RequestError, match="damaged"):
            NumbersReceipt.read(text[:spot] + other + text[spot + 1 :])


def test_digests_are_of_bits_and_of_the_shape():
    row = numpy.float32([1, 2, 3, 4])
    digests = {digest_of(each) for each in (row, row.reshape(2, 2), numpy.nextafter(row, 9), -row, row[:3])}
    assert len(digests) == 5 and digest_of(row.astype(">f4")) in digests


BODIES: list[dict[str, Any]] = [
    {"object": "list", "data": [{"embedding": [1.0]}]},
    {"object": "list", "data": [{"data": "AAAA"}, {"data": 5}]},
    {"object": "list", "data": [{"probs": {}}]}, {"object": "list", "data": [{"score": None}]},
    {"results": [{"document": 5}, 7]}, {"results": []}, {"embeddings": {"float": 5, "hex": []}, "texts": [5]},
    {"embeddings": {}, "texts": []}, {"answers": [], "usage": {}}, {"answers": [5], "num_prompt_tokens": []},
    {"outputs": {"score": 1.0}}, {"outputs": {"data": [[1]]}}, {"outputs": {}},
]  # fmt: skip


@for_each("body", BODIES)
def test_a_body_of_strange_values_has_a_form_and_is_compared_or_is_of_another_kind(body):
    [form] = [form for form in FORMS if form.fits(body)][:1]
    computed = Computed(of_numbers(2), [numpy.zeros(3, numpy.float32)] * 2, None)
    try:
        assert form.expected(body, computed) != body
        list(form.vectors(body))
    except (ValueError, IndexError, StopIteration, TypeError, AttributeError, KeyError):
        pass


def test_a_line_with_a_receipt_of_numbers_is_read_with_its_digits():
    line = json.dumps({"object": "list", "data": [{"embedding": [0.5]}], "receipt": of_numbers().text()})
    changes = (("0.5", "0.50000000000"), ('"embedding"', '"number"'), ("pn1_", "pn1_A"))
    lines = [*(line.replace(*change) for change in changes), '{"receipt": "pn1_"}', '{"receipt": 5, "data": []}']
    good, unknown, *damaged = from_file(io.BytesIO("\n".join(lines).encode()), "lines")
    assert good.body["data"][0]["embedding"] == ["0.50000000000"] and good.num_prompts == 1
    assert "vectors, scores" in str(unknown.reason) and not any(each.receipts for each in damaged)
