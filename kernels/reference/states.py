"""What a layer of a gated delta net computes between its products: a causal convolution, the net, a gated norm.

A token's numbers, and a state's, come from steps that know nothing of how many tokens are computed together: prompts,
answers and replays have the same bits.
"""

import torch
from torch import Tensor

from ..registry import op
from ..states import DeltaHeads, LayerStates, Segment, Segments, StateActivation

SMALLEST_SQUARE = 1e-6  # added to the sum of a query's or a key's squares
LINEAR_FROM = 20.0  # log(1 + e^x) is x above


@op()
def causal_convolution(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    activation: StateActivation,
    states: LayerStates,
    segments: Segments,
) -> Tensor:
    """[T, channels]: of each channel the sum of its last `width` inputs, each times its weight [channels, width].

    The newest input meets the last weight. The state is the inputs before a token, as many as later ones need.
    """
    convolved, width = torch.empty_like(x), weight.shape[1]
    for segment in segments:
        own = x[segment.tokens].float()
        inputs = torch.cat((_state_before(states.convolved, segment), own))  # [width - 1 + n, channels]
        total = torch.zeros_like(own) if bias is None else bias.float().expand_as(own)
        for tap in range(width):
            total = total + inputs[tap : tap + len(own)] * weight[:, tap].float()
        convolved[segment.tokens] = silu(total) if activation == "silu" else total
        states.convolved[segment.write] = inputs[len(own) :]
    return convolved


@op(tolerance=1e-4)
def delta_net(
    convolved: Tensor, b: Tensor, a: Tensor, heads: DeltaHeads, states: LayerStates, segments: Segments
) -> Tensor:
    """[T, value heads × value_dim] of queries, keys and values side by side, and two numbers of each value head.

    All of these may be overwritten.
    """
    attended = convolved.new_empty(len(convolved), heads.num_value_heads, heads.value_dim)
    query, key, value = heads.parts(convolved)
    for segment in segments:
        state = _state_before(states.recurrent, segment)
        for token in range(segment.tokens.start, segment.tokens.stop):
            state, attended[token] = _step(state, query[token], key[token], value[token], b[token], a[token], heads)
        states.recurrent[segment.write] = state
    return attended.flatten(1)


delta_net_invariant = delta_net.invariant()


def _step(
    state: Tensor, query: Tensor, key: Tensor, value: Tensor, b: Tensor, a: Tensor, heads: DeltaHeads
) -> tuple[Tensor, Tensor]:
    """One token: the state [value heads, key_dim, value_dim] behind it, and what its query reads there.

    S = S × exp(-exp(A_log) × softplus(a + dt_bias))
    S = S + k (sigmoid(b) × (v - Sᵀ k))ᵀ
    o = Sᵀ q
    """
    query, key = (_unit(x.float()).repeat_interleave(heads.num_shared, 0)[..., None] for x in (query, key))
    decay = -heads.log_decay.exp() * _softplus(a.float() + heads.step_bias)
    rate = 1 / (1 + b.float().neg().exp())
    state = state * decay.exp()[:, None, None]
    change = (value.float() - (state * key).sum(1)) * rate[:, None]  # [value heads, value_dim]
    state = state + key * change[:, None]
    return state, (state * query * heads.key_dim**-0.5).sum(1)


def _softplus(x: Tensor) -> Tensor:
    return torch.where(x > LINEAR_FROM, x, x.clamp(max=LINEAR_FROM).exp().log1p())


def _unit(x: Tensor) -> Tensor:
    return x * (x.square().sum(-1, keepdim=True) + SMALLEST_SQUARE).rsqrt()


@op()
def gated_norm(x: Tensor, gate: Tensor, weight: Tensor, epsilon: float, num_heads: int) -> Tensor:
    """x / sqrt(mean(x²) + ε) × weight × silu(gate), the mean over a head; x and gate are [T, heads × size]."""
    heads = x.float().unflatten(1, (num_heads, -1))
    normed = heads * (heads.square().mean(-1, keepdim=True) + epsilon).rsqrt() * weight.float()
    return (normed.flatten(1) * silu(gate.float())).to(x.dtype)


def silu(x: Tensor) -> Tensor:
    """Made of operations whose result doesn't depend on the lane of a vector, unlike torch's own."""
    return x / (1 + x.neg().exp())


def _state_before(memory: Tensor, segment: Segment) -> Tensor:
    """A copy of the state that a segment begins with."""
    return torch.zeros_like(memory[0]) if segment.read is None else memory[segment.read].clone()
