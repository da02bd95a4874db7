"""States on the CPU: a token's bits and a state's are the same however a row is cut, in any company, by any threads."""

import torch
from builders.cases import for_each
from builders.native_variants import needs_variant
from builders.operation_examples.states import delta_heads, delta_inputs, segments_of
from builders.recorded_layers import RECORDED
from torch import Tensor

from penstock.kernels.cpu.library import load
from penstock.kernels.registry import OPS
from penstock.kernels.states import DeltaHeads, LayerStates, Segments

pytestmark = needs_variant
TOKENS = 40
# Tokens of each segment, by row of a step, one step after another; all go on in one state.
CUTS = ([[[1]]] * TOKENS, [[[40]]], [[[3, 1, 1]], [[5]], [[4]], [[7, 19]]], [[[2, 2]], [[0, 36]]])
# (key heads, value heads, key_dim, value_dim): blocks of columns that are whole, in part, and no vector long
SHAPES = [(1, 2, 64, 128), (2, 4, 16, 48), (1, 3, 24, 40), (2, 2, 7, 33)]


def _net(x: Tensor, states: LayerStates, segments: Segments, heads: DeltaHeads) -> Tensor:
    count = heads.num_value_heads
    return RECORDED["states.delta_net"](
        x[:, 2 * count :], x[:, :count], x[:, count : 2 * count], heads, states, segments
    )


def _convolution(x: Tensor, states: LayerStates, segments: Segments, others: tuple) -> Tensor:
    return RECORDED["states.causal_convolution"](x, *others, states, segments)


def _cases():
    """Name, operation, rows of inputs, memory of five states, and what else it takes."""
    generator = torch.Generator().manual_seed(1)
    for shape in SHAPES:
        heads = delta_heads(*shape, generator)
        x, b, a, _, states, _ = delta_inputs(heads, segments_of([[(TOKENS, -1, 0)]]), 5, generator)
        yield f"net {shape}", _net, torch.cat((b, a, x), 1), states, heads
    for channels, width in ((300, 4), (19, 3), (64, 2), (33, 8)):
        x, weight = (torch.randn(*each, generator=generator) for each in ((TOKENS, channels), (channels, width)))
        states = LayerStates(torch.randn(5, width - 1, channels, generator=generator))
        yield f"convolution {channels} × {width}", _convolution, x, states, (weight, None, "silu")


CASES = {name: case for name, *case in _cases()}


def _copied(states: LayerStates) -> LayerStates:
    return LayerStates(*(each.clone() for each in states))


@for_each("name", CASES)
@for_each("threads", [1, 2, 3])
def test_a_row_has_the_same_bits_however_it_is_cut(name, threads, variant):
    run, x, before, others = CASES[name]
    load().set_threads(1)
    whole = _copied(before)
    expected = run(x, whole, segments_of([[(TOKENS, 0, 1)]]), others)
    load().set_threads(threads)
    for steps in CUTS:
        states, at, read, found = _copied(before), 0, 0, []
        for [row] in steps:
            segments = []
            for tokens in row:
                write = 1 + (at + tokens) % 4  # now the state that is read, now another one
                segments.append((tokens, read, write))
                at, read = at + tokens, write
            found.append(run(x[at - sum(row) : at], states, segments_of([segments]), others))
        assert torch.equal(torch.cat(found), expected), steps
        for held, other in zip(states, whole, strict=True):
            assert not len(held) or torch.equal(held[read], other[1]), steps


@for_each("name", CASES)
@for_each("threads", [1, 2])
def test_a_row_has_the_same_bits_alone_and_in_company(name, threads, variant):
    run, x, before, others = CASES[name]
    load().set_threads(threads)
    rows = [[(1, 0, 0)], [(20, -1, 1), (2, 1, 2)], [(3, 3, 3)], [(14, -1, 4)]]
    together = _copied(before)
    found, at = run(x, together, segments_of(rows), others), 0
    for row in rows:
        own, alone = slice(at, at := at + sum(tokens for tokens, _, _ in row)), _copied(before)
        assert torch.equal(run(x[own], alone, segments_of([row]), others), found[own]), row
        for held, other in zip(alone, together, strict=True):
            assert not len(held) or torch.equal(held[row[-1][2]], other[row[-1][2]]), row


def test_what_is_not_finite_stays_in_its_row(variant):
    for name, (run, x, before, others) in CASES.items():
        poisoned = x.clone()
        poisoned[3] = torch.nan
        found = run(poisoned, _copied(before), segments_of([[(20, 0, 0)], [(20, 1, 1)]]), others)
        assert found[3].isnan().all() and found[:3].isfinite().all() and found[20:].isfinite().all(), name


def test_large_steps_and_gates_give_what_the_formula_gives(variant):
    """Where e^x would be infinite."""
    generator = torch.Generator().manual_seed(2)
    for scale in (30, 300):
        heads = delta_heads(1, 2, 16, 32, generator)
        x, b, a, _, states, segments = delta_inputs(heads, segments_of([[(9, 0, 1)]]), 2, generator)
        arguments = x, b * scale, a * scale, heads
        expected = OPS["states.delta_net"].reference(*arguments, _copied(states), segments)
        found = RECORDED["states.delta_net"](*arguments, _copied(states), segments)
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
