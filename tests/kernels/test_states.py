"""A delta net's formulas give what transformers gives, and the same bits however a prompt is cut into segments."""

import importlib
from typing import Any

import torch
from builders.cases import for_each
from builders.operation_examples.states import delta_heads, delta_inputs, segments_of

from penstock.kernels.reference.states import causal_convolution, delta_net, gated_norm
from penstock.kernels.states import LayerStates

TOKENS = 37
# Of one row: (tokens, state read, state written). The last one is written by all of these.
CUTS = {
    "in one piece, in place": [[(37, 0, 0)]],
    "to another state": [[(37, 0, 2)]],
    "past a checkpoint": [[(16, 0, 1), (21, 1, 2)]],
    "token by token": [[(1, 0, 0)]] * 37,
    "in uneven chunks": [[(5, 0, 3)], [(1, 3, 3)], [(20, 3, 1), (11, 1, 2)]],
}


def theirs() -> Any:
    """Imported in tests only: it imports triton, which then can't be interpreted any more."""
    return importlib.import_module("transformers.models.qwen3_next.modeling_qwen3_next")


def _draws(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def _delta(seed=0):
    generator = torch.Generator().manual_seed(seed)
    return delta_inputs(delta_heads(2, 6, 16, 24, generator), segments_of([[(TOKENS, -1, 0)]]), 4, generator)


@for_each("form", ["torch_recurrent_gated_delta_rule", "torch_chunk_gated_delta_rule"])
@for_each("read", [-1, 1], ids=["from nothing", "from a state"])
def test_the_delta_net_gives_what_both_forms_of_transformers_give(form, read):
    x, b, a, heads, states, _ = _delta()
    query, key, value = (part[None] for part in heads.parts(x))
    decay = -heads.log_decay.exp() * torch.nn.functional.softplus(a + heads.step_bias)
    before = None if read < 0 else states.recurrent[read : read + 1].clone()
    expected, state = getattr(theirs(), form)(
        query, key, value, g=decay[None], beta=b.sigmoid()[None], initial_state=before, output_final_state=True,
        use_qk_l2norm_in_kernel=True,
    )  # fmt: skip
    found = delta_net(x, b, a, heads, states, segments_of([[(TOKENS, read, 0)]]))
    torch.testing.assert_close(found, expected[0].flatten(1), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(states.recurrent[0], state[0], rtol=1e-4, atol=1e-5)


@for_each("cut", CUTS)
def test_a_delta_net_has_the_same_bits_however_a_row_is_cut(cut):
    x, b, a, heads, states, _ = _delta()
    before = states.recurrent.clone()
    expected = delta_net(x, b, a, heads, states, segments_of([[(TOKENS, 0, 2)]]))
    last, at = states.recurrent[2], 0
    memory, found = LayerStates(recurrent=before.clone()), []
    for chunk in CUTS[cut]:
        own = slice(at, at := at + sum(tokens for tokens, _, _ in chunk))
        found.append(delta_net(x[own], b[own], a[own], heads, memory, segments_of([chunk])))
    assert torch.equal(torch.cat(found), expected)
    assert torch.equal(memory.recurrent[CUTS[cut][-1][-1][2]], last)


@for_each("cut", CUTS)
@for_each("activation", ["silu", None])
def test_a_convolution_has_the_same_bits_however_a_row_is_cut(cut, activation):
    x, weight, bias = _draws(TOKENS, 19), _draws(19, 4, seed=1), _draws(19, seed=2)
    before = _draws(4, 3, 19, seed=3)
    states = LayerStates(before.clone())
    expected = causal_convolution(x, weight, bias, activation, states, segments_of([[(TOKENS, 0, 2)]]))
    memory, found, at = LayerStates(before.clone()), [], 0
    for chunk in CUTS[cut]:
        own = slice(at, at := at + sum(tokens for tokens, _, _ in chunk))
        found.append(causal_convolution(x[own], weight, bias, activation, memory, segments_of([chunk])))
    assert torch.equal(torch.cat(found), expected)
    assert torch.equal(memory.convolved[CUTS[cut][-1][-1][2]], states.convolved[2])


def test_the_convolution_gives_what_transformers_gives():
    x, weight, bias = _draws(TOKENS, 19), _draws(19, 4, seed=1), _draws(19, seed=2)
    states = LayerStates(torch.full((1, 3, 19), torch.nan))
    found = causal_convolution(x, weight, bias, "silu", states, segments_of([[(TOKENS, -1, 0)]]))
    expected = theirs().causal_conv1d_fn(x.T[None], weight, bias, activation="silu")[0].T
    torch.testing.assert_close(found, expected)
    assert torch.equal(states.convolved[0], x[-3:])


def test_a_row_shorter_than_the_convolution_keeps_inputs_of_before():
    x, states = _draws(2, 5), LayerStates(_draws(2, 3, 5, seed=1))
    newest = states.convolved[1, 2].clone()
    causal_convolution(x, _draws(5, 4, seed=2), None, None, states, segments_of([[(2, 1, 0)]]))
    assert torch.equal(states.convolved[0], torch.stack((newest, *x)))


def test_the_gated_norm_gives_what_transformers_gives():
    x, gate, weight = _draws(7, 3 * 24), _draws(7, 3 * 24, seed=1) * 4, _draws(24, seed=2)
    norm = theirs().Qwen3NextRMSNormGated(24, eps=1e-5)
    norm.weight.data = weight
    expected = norm(x.view(-1, 24), gate.view(-1, 24)).view(7, -1).detach()
    torch.testing.assert_close(gated_norm(x, gate, weight, 1e-5, 3), expected)
