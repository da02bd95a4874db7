"""Receipts of numbers without a model: what is packed, which digits are the same number, and forms of bodies."""

import json
import math
import random
from typing import Any

import numpy
import pytest
from builders.cases import for_each
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from penstock.frontend.receipts.numbers import ClaimedNumbers, NumbersReceipt, NumbersView, digest_of, joined
from penstock.frontend.receipts.written import packed_ids
from penstock.frontend.rows.prompts import UnusableLine, decoder_of, json_value
from penstock.frontend.verify.lines import from_file
from penstock.frontend.verify.number_forms import FORMS, Computed
from penstock.frontend.verify.written_numbers import WrittenNumber, is_same
from penstock.protocol.errors import RequestError

FLOATS = st.floats(width=32, allow_nan=False, allow_infinity=False)
NO_VIEW = NumbersView()
WRITTEN = decoder_of(WrittenNumber)


def receipt(num_prompts: int = 1, view: NumbersView = NO_VIEW, **params: Any) -> NumbersReceipt:
    prompts = [ClaimedNumbers(packed_ids([1, place, 70_000]), bytes(16)) for place in range(num_prompts)]
    return NumbersReceipt({"weights": "a" * 64, "kernels": "avx2"}, [params], prompts, view=view)


@given(FLOATS)
def test_a_number_is_the_same_however_it_is_written_and_another_one_with_any_digit_changed(value):
    for text in (
        repr(value),
        f"{value:.17g}",
        f"{value:.9g}",
        f"{value:.9e}",
        str(numpy.float32(value)),
        f"{value:.40g}",
    ):
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
    one, two = receipt(dimensions=8), receipt(2, normalize=True)
    assert NumbersReceipt.read(f" {one.text()}\n") == one
    whole = NumbersReceipt.read(joined([one.text(), two.text(), one.text()]))
    assert whole.params == [{"dimensions": 8}, {"normalize": True}]
    assert [prompt.params for prompt in whole.prompts] == [0, 1, 1, 0]
    assert [prompt.ids for prompt in whole.prompts][1:3] == [[1, 0, 70_000], [1, 1, 70_000]]
    assert whole.pooling[0].dimensions == 8 and all(each.receipt for each in whole.pooling)
    with pytest.raises(RequestError, match="too long"):
        joined([receipt(instruction=f"{number}" * 300_000).text() for number in range(4)])


@for_each("change", [
    {"params": []}, {"prompts": []}, {"prompts": [ClaimedNumbers(b"123", b"")]},
    {"prompts": [ClaimedNumbers(b"", b"", 5)]}, {"prompts": [ClaimedNumbers(b"", b"", 0, -1)]},
    {"prompts": [ClaimedNumbers(b"", b"")] * 70_000}, {"facts": {"weights": "a" * (1 << 20)}},
])  # fmt: skip
def test_a_receipt_that_no_model_has_made_is_damaged(change):
    with pytest.raises(RequestError, match="damaged"):
        NumbersReceipt.read(replace(receipt(), **change).text())


def test_a_receipt_with_any_character_changed_is_damaged():
    draw, text = random.Random(5), receipt(3, dimensions=8).text()
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
    {"object": "list", "data": [{"probs": {}}]},
    {"object": "list", "data": [{"score": None}]},
    {"results": [{"document": 5}, 7]},
    {"results": []},
    {"embeddings": {"float": 5, "hex": []}, "texts": [5]},
    {"embeddings": {}, "texts": []},
    {"answers": [], "usage": {}},
    {"answers": [5], "num_prompt_tokens": []},
    {"outputs": {"score": 1.0}},
    {"outputs": {"data": [[1]]}},
    {"outputs": {}},
]


@for_each("body", BODIES)
def test_a_body_of_strange_values_has_a_form_and_is_compared_or_is_of_another_kind(body):
    [form] = [form for form in FORMS if form.fits(body)][:1]
    computed = Computed(receipt(2), [numpy.zeros(3, numpy.float32)] * 2, None)
    try:
        assert form.expected(body, computed) != body
        list(form.vectors(body))
    except (ValueError, IndexError, StopIteration, TypeError, AttributeError, KeyError):
        pass


def test_a_line_with_a_receipt_of_numbers_is_read_with_its_digits(tmp_path):
    line = json.dumps({"object": "list", "data": [{"embedding": [0.5]}], "receipt": receipt().text()})
    lines = [
        line.replace("0.5", "0.50000000000"),
        line.replace('"embedding"', '"number"'),
        line.replace("pn1_", "pn1_A"),
    ]
    path = tmp_path / "lines"
    path.write_text("\n".join([*lines, '{"receipt": "pn1_"}', '{"receipt": 5, "data": []}']))
    with open(path, "rb") as file:
        good, unknown, *damaged = from_file(file, str(path))
    assert good.body["data"][0]["embedding"] == ["0.50000000000"] and good.num_prompts == 1
    assert "vectors, scores" in str(unknown.reason) and not any(each.receipts for each in damaged)
