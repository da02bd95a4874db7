"""The gated delta net in chunks: the formula's numbers, whatever the lengths, and a row's bits in any company."""

from builders import interpreted  # noqa: F401  isort: skip  before anything that imports triton

import pytest
import torch
from builders.operation_examples.states import delta_heads, delta_inputs, segments_of
from builders.quantized_parts import quick
from hypothesis import given
from hypothesis import strategies as st

from penstock.kernels.reference.states import delta_net
from penstock.kernels.states import LayerStates
from penstock.kernels.triton import delta_net as kernels

SEGMENTS = [[(66, -1, 0), (1, 0, 1)], [(1, 2, 2)], [(17, 3, 3), (64, 3, 4)]]


def inputs_of(rows, shape=(1, 2, 16, 24), gates: float = 1.0, seed: int = 0):
    generator = torch.Generator().manual_seed(seed)
    x, b, a, *rest = delta_inputs(delta_heads(*shape, generator), segments_of(rows), 5, generator)
    return x, b * gates, a * gates, *rest


def assert_right(inputs, tolerance: float) -> None:
    *given_inputs, states, segments = inputs
    kept = LayerStates(states.convolved, states.recurrent.clone())
    expected = delta_net.reference(*given_inputs, kept, segments)
    found = kernels.delta_net_in_chunks(*given_inputs, states, segments)
    torch.testing.assert_close(found, expected, rtol=tolerance, atol=tolerance)
    torch.testing.assert_close(states.recurrent, kept.recurrent, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("gates", [1.0, pytest.param(30.0, marks=pytest.mark.long), 300.0])
def test_chunks_give_what_the_formula_gives_token_by_token(gates):
    """Also where decays leave nothing of a state, or all, and where a chunk's tokens are all alike."""
    assert_right(inputs_of(SEGMENTS, gates=gates), delta_net.tolerance)
    alike = inputs_of([[(70, 0, 0)]], (1, 1, 16, 16))
    alike[0][:] = alike[0][:1]
    alike[1].fill_(20.0)
    alike[2].fill_(-20.0)
    assert_right(alike, 1e-3)


@pytest.mark.long
@quick
@given(st.lists(st.integers(1, 200), min_size=1, max_size=3), st.sampled_from([(1, 1, 16, 16), (1, 3, 24, 40)]))
def test_any_lengths_give_what_the_formula_gives(lengths, shape):
    assert_right(inputs_of([[(length, row, row)] for row, length in enumerate(lengths)], shape), delta_net.tolerance)


def test_a_row_has_the_same_bits_alone_and_in_company():
    x, b, a, heads, states, segments = inputs_of(SEGMENTS)
    together = LayerStates(states.convolved, states.recurrent.clone())
    found, at = kernels.delta_net_in_chunks(x, b, a, heads, together, segments), 0
    for row in SEGMENTS:
        own, alone = slice(at, at := at + sum(each[0] for each in row)), states.recurrent.clone()
        kept = LayerStates(states.convolved, alone)
        assert torch.equal(
            kernels.delta_net_in_chunks(x[own], b[own], a[own], heads, kept, segments_of([row])), found[own]
        )
        assert all(torch.equal(alone[write], together.recurrent[write]) for _, _, write in row)


def test_long_segments_of_16_bit_rows_go_in_chunks_and_no_others(monkeypatch):
    seen = []
    for name in ("delta_net_in_chunks", "delta_net_by_token"):
        monkeypatch.setattr(kernels, name, lambda *given, name=name: seen.append(name))
    for rows, dtype in (
        ([[(16, 0, 0)]], torch.bfloat16),
        ([[(15, 0, 0)]], torch.bfloat16),
        ([[(99, 0, 0)]], torch.float32),
    ):
        x, *rest = inputs_of(rows)
        kernels.delta_net(x.to(dtype), *rest)
    assert seen == ["delta_net_in_chunks", "delta_net_by_token", "delta_net_by_token"]
