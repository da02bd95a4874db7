"""What a packed message takes when it is unpacked, found out without unpacking it."""

import tracemalloc

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.protocol.errors import RequestError
from penstock.protocol.packed import MOST_VALUES, array_length, unpacked_bytes

plain = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.text() | st.binary(),
    lambda inner: st.lists(inner, max_size=20) | st.dictionaries(st.text(max_size=3), inner, max_size=20),
    max_leaves=40,
)


def num_values(value) -> int:
    if isinstance(value, dict):
        return 1 + sum(map(num_values, value)) + sum(map(num_values, value.values()))
    return 1 + sum(map(num_values, value)) if isinstance(value, list) else 1


@given(plain)
@settings(max_examples=40)
def test_every_value_is_counted_once(value):
    packed = msgspec.msgpack.encode(value)
    assert unpacked_bytes(packed) == len(packed) + 128 * num_values(value)
    assert array_length(packed) == (len(value) if isinstance(value, list) else 0)


@pytest.mark.parametrize("length", [0, 15, 16, 255, 256, 65_535, 65_536])
def test_texts_bytes_and_arrays_of_every_length_are_skipped_whole(length):
    for value in ("x" * length, b"x" * length, [1] * length, {str(number): "x" for number in range(length // 2)}):
        unpacked_bytes(msgspec.msgpack.encode(value))


@pytest.mark.parametrize(
    "worst",
    [[{}] * 30_000, [[]] * 30_000, [{0: 0}] * 9_000, ["ab"] * 30_000, ["éa"] * 30_000, [1000] * 30_000, [1.5] * 30_000],
    ids=["maps", "lists", "maps of one", "short texts", "wide texts", "numbers", "floats"],
)
def test_it_is_never_more(worst):
    packed = msgspec.msgpack.encode(worst)
    tracemalloc.start()
    unpacked = msgspec.msgpack.decode(packed)
    taken, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert unpacked == worst and taken <= unpacked_bytes(packed)


@pytest.mark.parametrize(
    "many", [b"\xdd\xff\xff\xff\xff", b"\xdf\xff\xff\xff\xff", msgspec.msgpack.encode([[]] * (MOST_VALUES + 1))]
)
def test_more_values_than_any_request_needs_are_refused_before_they_are_looked_at(many):
    with pytest.raises(RequestError, match="holds more"):
        unpacked_bytes(many)
