"""States: the formulas give what transformers gives; a token's bits and a state's are the same however a row is cut.

So they are in any company and by any threads, of the formulas and of the native kernels, which are held against them in
test_cpu_versions.py.
"""

import importlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from builders.cases import for_each
from builders.native_variants import available_variants, forced, quick_or_long
from builders.operation_examples.states import delta_heads, delta_inputs, segments_of
from builders.recorded_layers import RECORDED
from torch import Tensor

from penstock.kernels.cpu.library import load
from penstock.kernels.reference.states import causal_convolution, delta_net, gated_norm
from penstock.kernels.registry import OPS
from penstock.kernels.states import DeltaHeads, LayerStates, Segments

TOKENS = 40
# Tokens of each segment, by row of a step, one step after another; all go on in one state.
CUTS = ([[[1]]] * TOKENS, [[[40]]], [[[3, 1, 1]], [[5]], [[4]], [[7, 19]]], [[[2, 2]], [[0, 36]]])
# (key heads, value heads, key_dim, value_dim): blocks of columns that are whole, in part, and no vector long
SHAPES = [(1, 2, 64, 128), (2, 4, 16, 48), (1, 3, 24, 40), (2, 2, 7, 33)]
NET, CONVOLUTION = "states.delta_net", "states.causal_convolution"
Versions = dict[str, Callable[..., Tensor]]


@pytest.fixture(params=[*quick_or_long(available_variants()), "reference"])
def versions(request: pytest.FixtureRequest) -> Iterator[Versions]:
    """The operations by their names: their formulas, or their native kernels in one of the variants."""
    if request.param == "reference":
        yield {name: OPS[name].reference for name in (NET, CONVOLUTION)}
        return
    with forced(request.param):
        yield RECORDED
        load().set_threads(1)


def set_threads(versions: Versions, number: int) -> None:
    if versions is RECORDED:
        load().set_threads(number)


def _net(versions: Versions, x: Tensor, states: LayerStates, segments: Segments, heads: DeltaHeads) -> Tensor:
    count = heads.num_value_heads
    return versions[NET](x[:, 2 * count :], x[:, :count], x[:, count : 2 * count], heads, states, segments)


def _convolution(versions: Versions, x: Tensor, states: LayerStates, segments: Segments, others: tuple) -> Tensor:
    return versions[CONVOLUTION](x, *others, states, segments)


def _cases():
    """Name, operation, rows of inputs, memory of five states, and what else it takes."""
    generator = torch.Generator().manual_seed(1)
    for shape in SHAPES:
        heads = delta_heads(*shape, generator)
        x, b, a, _, states, _ = delta_inputs(heads, segments_of([[(TOKENS, -1, 0)]]), 5, generator)
        yield f"net {shape}", _net, torch.cat((b, a, x), 1), states, heads
    for channels, width, activation in ((300, 4, "silu"), (19, 3, None), (64, 2, "silu"), (33, 8, "silu")):
        x, weight = (torch.randn(*each, generator=generator) for each in ((TOKENS, channels), (channels, width)))
        states = LayerStates(torch.randn(5, width - 1, channels, generator=generator), torch.empty(0))
        yield f"convolution {channels} × {width}", _convolution, x, states, (weight, None, activation)


CASES = {name: case for name, *case in _cases()}


def _copied(states: LayerStates) -> LayerStates:
    return LayerStates(*(each.clone() for each in states))


@for_each("name", CASES)
def test_a_row_has_the_same_bits_however_it_is_cut(name, versions):
    run, x, before, others = CASES[name]
    set_threads(versions, 1)
    whole = _copied(before)
    expected = run(versions, x, whole, segments_of([[(TOKENS, 0, 1)]]), others)
    for threads in (1, 2, 3) if versions is RECORDED else (1,):
        set_threads(versions, threads)
        for steps in CUTS:
            states, at, read, found = _copied(before), 0, 0, []
            for [row] in steps:
                segments = []
                for tokens in row:
                    write = 1 + (at + tokens) % 4  # now the state that is read, now another one
                    segments.append((tokens, read, write))
                    at, read = at + tokens, write
                found.append(run(versions, x[at - sum(row) : at], states, segments_of([segments]), others))
            assert torch.equal(torch.cat(found), expected), (steps, threads)
            for held, other in zip(states, whole, strict=True):
                assert not len(held) or torch.equal(held[read], other[1]), (steps, threads)


@for_each("name", CASES)
@for_each("threads", [1, 2])
def test_a_row_has_the_same_bits_alone_and_in_company(name, threads, versions):
    run, x, before, others = CASES[name]
    set_threads(versions, threads)
    rows = [[(1, 0, 0)], [(20, -1, 1), (2, 1, 2)], [(3, 3, 3)], [(14, -1, 4)]]
    together = _copied(before)
    found, at = run(versions, x, together, segments_of(rows), others), 0
    for row in rows:
        own, alone = slice(at, at := at + sum(tokens for tokens, _, _ in row)), _copied(before)
        assert torch.equal(run(versions, x[own], alone, segments_of([row]), others), found[own]), row
        for held, other in zip(alone, together, strict=True):
            assert not len(held) or torch.equal(held[row[-1][2]], other[row[-1][2]]), row


def test_what_is_not_finite_stays_in_its_row(versions):
    for name, (run, x, before, others) in CASES.items():
        poisoned = x.clone()
        poisoned[3] = torch.nan
        found = run(versions, poisoned, _copied(before), segments_of([[(20, 0, 0)], [(20, 1, 1)]]), others)
        assert found[3].isnan().all() and found[:3].isfinite().all() and found[20:].isfinite().all(), name


def test_large_steps_and_gates_give_what_the_formula_gives(versions):
    """Where e^x would be infinite."""
    generator = torch.Generator().manual_seed(2)
    for scale in (30, 300):
        heads = delta_heads(1, 2, 16, 32, generator)
        x, b, a, _, states, segments = delta_inputs(heads, segments_of([[(9, 0, 1)]]), 2, generator)
        arguments = x, b * scale, a * scale, heads
        expected = delta_net.reference(*arguments, _copied(states), segments)
        found = versions[NET](*arguments, _copied(states), segments)
        assert found.isfinite().all()
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


# --- the formulas -----------------------------------------------------------------------------------------------------


def theirs() -> Any:
    """Imported in tests only: it imports triton, which then can't be interpreted any more."""
    return importlib.import_module("transformers.models.qwen3_next.modeling_qwen3_next")


def _draws(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@for_each("form", ["torch_recurrent_gated_delta_rule", "torch_chunk_gated_delta_rule"])
@for_each("read", [-1, 1], ids=["from nothing", "from a state"])
def test_the_delta_net_gives_what_both_forms_of_transformers_give(form, read):
    generator = torch.Generator().manual_seed(0)
    given = delta_inputs(delta_heads(2, 6, 16, 24, generator), segments_of([[(TOKENS, read, 0)]]), 4, generator)
    x, b, a, heads, states, _ = given
    query, key, value = (part[None] for part in heads.parts(x))
    decay = -heads.log_decay.exp() * torch.nn.functional.softplus(a + heads.step_bias)
    before = None if read < 0 else states.recurrent[read : read + 1].clone()
    expected, state = getattr(theirs(), form)(
        query, key, value, g=decay[None], beta=b.sigmoid()[None], initial_state=before, output_final_state=True,
        use_qk_l2norm_in_kernel=True,
    )  # fmt: skip
    torch.testing.assert_close(delta_net(*given), expected[0].flatten(1), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(states.recurrent[0], state[0], rtol=1e-4, atol=1e-5)


def test_the_convolution_gives_what_transformers_gives_and_keeps_the_newest_inputs():
    x, weight, bias = _draws(TOKENS, 19), _draws(19, 4, seed=1), _draws(19, seed=2)
    states = LayerStates(torch.full((1, 3, 19), torch.nan), torch.empty(0))
    found = causal_convolution(x, weight, bias, "silu", states, segments_of([[(TOKENS, -1, 0)]]))
    torch.testing.assert_close(found, theirs().causal_conv1d_fn(x.T[None], weight, bias, activation="silu")[0].T)
    assert torch.equal(states.convolved[0], x[-3:])
    causal_convolution(x[:2], weight, None, None, states, segments_of([[(2, 0, 0)]]))
    assert torch.equal(states.convolved[0], torch.stack((x[-1], *x[:2]))), "a row shorter than the convolution"


def test_the_gated_norm_gives_what_transformers_gives():
    x, gate, weight = _draws(7, 3 * 24), _draws(7, 3 * 24, seed=1) * 4, _draws(24, seed=2)
    norm = theirs().Qwen3NextRMSNormGated(24, eps=1e-5)
    norm.weight.data = weight
    expected = norm(x.view(-1, 24), gate.view(-1, 24)).view(7, -1).detach()
    torch.testing.assert_close(gated_norm(x, gate, weight, 1e-5, 3), expected)
