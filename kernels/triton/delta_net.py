"""The gated delta net on a GPU: token by token, or in chunks of 64 tokens.

Within a chunk, with the state S before it, and its tokens' decays G (summed from the chunk's start) and rates β:

  L[t, i] = β_t exp(G_t - G_i) (k_t · k_i) for i < t     A = (I + L)⁻¹
  U       = A (β (V - exp(G) K S))                        what the tokens write
  output  = exp(G) Q S + (Q Kᵀ exp(G_t - G_i) for i ≤ t) U
  S       = exp(G_last) S + (exp(G_last - G) K)ᵀ U

A first launch computes, for all chunks, A (by substitution, which is stable even for a large L) and U's factor in the
output. In a second launch, each program takes some columns of one row's head from chunk to chunk. A segment begins a
new chunk, so a token's bits don't depend on other rows, but they do depend on where steps cut its row, and on whether
its step is computed in chunks. So the invariant form goes token by token, and so do rows in float32, whose tiles don't
fit into registers.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from ..reference import states as formulas
from ..states import DeltaHeads, LayerStates, Segments
from .products.tiles.tiles import met

CHUNK = 64
SHORTEST = 16  # a step with a segment of at least so many tokens goes in chunks
_COLUMNS, _WARPS = 16, 8  # of a program; of one that goes in chunks
_SEGMENTS = tl.constexpr(256)  # searched at once
_CHUNK = tl.constexpr(CHUNK)
_SMALLEST_SQUARE, _LINEAR_FROM = tl.constexpr(formulas.SMALLEST_SQUARE), tl.constexpr(formulas.LINEAR_FROM)
# Keeps sums of decays small enough for exact differences; e^-30 of a state is negligible next to a token.
_LEAST_DECAY = tl.constexpr(-30.0)


@triton.jit
def _decay(a, log_decay):
    """Return the logarithm of the share of the state that is kept from one token to the next."""
    softplus = tl.where(a > _LINEAR_FROM, a, tl.log(1 + tl.exp(tl.minimum(a, _LINEAR_FROM))))
    return -tl.exp(log_decay) * softplus


@triton.jit
def _unit(x, AXIS: tl.constexpr):
    return x * tl.rsqrt(tl.sum(x * x, AXIS, keep_dims=True) + _SMALLEST_SQUARE)


@triton.jit
def _heads(convolved, tokens, is_there, offset, columns, is_column, WIDTH: tl.constexpr):
    """Load queries, keys or values, float32 [tokens, columns]."""
    numbers = convolved + tokens[:, None] * WIDTH + offset + columns[None, :]
    return tl.load(numbers, mask=is_there[:, None] & is_column[None, :], other=0).to(tl.float32)


@triton.jit
def _gates(b, a, tokens, is_there, head, decay, step_bias, NUM_VALUE_HEADS: tl.constexpr):
    """Return the rates of a chunk's tokens, and their decays summed up. Where there is no token, both inputs are 0."""
    at = tokens * NUM_VALUE_HEADS + head
    rates = tl.where(is_there, 1 / (1 + tl.exp(-tl.load(b + at, mask=is_there, other=0).to(tl.float32))), 0.0)
    decays = _decay(tl.load(a + at, mask=is_there, other=0).to(tl.float32) + step_bias, decay)
    decays = tl.maximum(decays, _LEAST_DECAY, propagate_nan=tl.PropagateNan.ALL)
    return rates, tl.cumsum(tl.where(is_there, decays, 0.0), 0)


@triton.jit
def _kept_between(sums):
    """Return the share of an earlier token's write that a later token reads, [later tokens, earlier tokens]."""
    return tl.exp(tl.minimum(sums[:, None] - sums[None, :], 0.0))


@triton.jit
def _multiplied(x, y, TYPE: tl.constexpr):
    """Multiply in the rows' format, which the matrix units take, and sum in float32."""
    return tl.dot(met(x, TYPE), met(y, TYPE), input_precision="ieee")


@triton.jit
def _chunk_of(number, starts, num_segments):
    """Return the first token of the step's chunk of this number, and one past the last token of its segment."""
    first, end, count = 0, 0, 0
    for base in range(0, num_segments, _SEGMENTS):
        segments = base + tl.arange(0, _SEGMENTS)
        begins = tl.load(starts + segments, mask=segments < num_segments, other=0)
        ends = tl.load(starts + segments + 1, mask=segments < num_segments, other=0)
        chunks = tl.cdiv(ends - begins, _CHUNK)
        before = count + tl.cumsum(chunks, 0) - chunks
        is_own = (before <= number) & (number < before + chunks)
        first += tl.sum(tl.where(is_own, begins + (number - before) * _CHUNK, 0), 0)
        end += tl.sum(tl.where(is_own, ends, 0), 0)
        count += tl.sum(chunks, 0)
    return first, end


@triton.jit(do_not_specialize=["num_segments"])
def prepare_chunks_kernel(
    convolved, b, a, log_decay, step_bias, starts, inverses, scores, num_segments, scale, NUM_KEY_HEADS: tl.constexpr,
    NUM_VALUE_HEADS: tl.constexpr, KEY_DIM: tl.constexpr, VALUE_DIM: tl.constexpr,
):  # fmt: skip
    """A program: A of one chunk and value head, and U's factor in the output, both stored row by row, by token."""
    first, end = _chunk_of(tl.program_id(0), starts, num_segments)
    head, rows = tl.program_id(1), tl.arange(0, _CHUNK)
    if first < end:
        tokens, is_there = (first + rows).to(tl.int64), first + rows < end
        columns = tl.arange(0, max(16, triton.next_power_of_2(KEY_DIM)))
        is_key = columns < KEY_DIM
        WIDTH: tl.constexpr = 2 * NUM_KEY_HEADS * KEY_DIM + NUM_VALUE_HEADS * VALUE_DIM
        TYPE: tl.constexpr = convolved.dtype.element_ty
        offset = head // (NUM_VALUE_HEADS // NUM_KEY_HEADS) * KEY_DIM
        of_keys = NUM_KEY_HEADS * KEY_DIM + offset
        keys = _unit(_heads(convolved, tokens, is_there, of_keys, columns, is_key, WIDTH), 1)
        decay, bias = tl.load(log_decay + head).to(tl.float32), tl.load(step_bias + head).to(tl.float32)
        rates, sums = _gates(b, a, tokens, is_there, head, decay, bias, NUM_VALUE_HEADS)
        lower = rates[:, None] * _kept_between(sums) * _multiplied(keys, tl.trans(keys), TYPE)
        lower = tl.where(rows[:, None] > rows[None, :], lower, 0.0)
        inverse = tl.where(rows[:, None] == rows[None, :], 1.0, 0.0)
        for row in range(1, tl.minimum(end - first, _CHUNK)):
            is_row = rows[:, None] == row
            factors = tl.sum(tl.where(is_row, lower, 0.0), 0)
            inverse -= tl.where(is_row, tl.sum(factors[:, None] * inverse, 0)[None, :], 0.0)
        to = (tokens * NUM_VALUE_HEADS + head)[:, None] * _CHUNK + rows[None, :]
        tl.store(inverses + to, inverse, mask=is_there[:, None])
        queries = _unit(_heads(convolved, tokens, is_there, offset, columns, is_key, WIDTH), 1) * scale
        # Loaded again: kept meanwhile, they would occupy registers.
        keys = _unit(_heads(convolved, tokens, is_there, of_keys, columns, is_key, WIDTH), 1)
        met_keys = _kept_between(sums) * _multiplied(queries, tl.trans(keys), TYPE)
        tl.store(scores + to, tl.where(rows[:, None] >= rows[None, :], met_keys, 0.0), mask=is_there[:, None])


@triton.jit
def _through_chunk(
    state, convolved, b, a, inverses, scores, output, first, end, head, key_head, columns, decay, step_bias, scale,
    NUM_KEY_HEADS: tl.constexpr, NUM_VALUE_HEADS: tl.constexpr, KEY_DIM: tl.constexpr, VALUE_DIM: tl.constexpr,
):  # fmt: skip
    """Store a chunk's output and return the state after it."""
    rows, keys = tl.arange(0, _CHUNK), tl.arange(0, state.shape[0])
    WIDTH: tl.constexpr = 2 * NUM_KEY_HEADS * KEY_DIM + NUM_VALUE_HEADS * VALUE_DIM
    TYPE: tl.constexpr = convolved.dtype.element_ty
    tokens, is_there = (first + rows).to(tl.int64), first + rows < end
    is_key, is_inside = keys < KEY_DIM, columns < VALUE_DIM
    rates, sums = _gates(b, a, tokens, is_there, head, decay, step_bias, NUM_VALUE_HEADS)
    through, at = tl.exp(sums)[:, None], (tokens * NUM_VALUE_HEADS + head)[:, None]
    key = _unit(_heads(convolved, tokens, is_there, (NUM_KEY_HEADS + key_head) * KEY_DIM, keys, is_key, WIDTH), 1)
    offset = 2 * NUM_KEY_HEADS * KEY_DIM + head * VALUE_DIM
    value = _heads(convolved, tokens, is_there, offset, columns, is_inside, WIDTH)
    inverse = tl.load(inverses + at * _CHUNK + rows[None, :], mask=is_there[:, None], other=0)
    change = _multiplied(inverse, rates[:, None] * (value - through * _multiplied(key, state, TYPE)), TYPE)
    query = _unit(_heads(convolved, tokens, is_there, key_head * KEY_DIM, keys, is_key, WIDTH), 1) * scale
    weights = tl.load(scores + at * _CHUNK + rows[None, :], mask=is_there[:, None], other=0)
    read = through * _multiplied(query, state, TYPE) + _multiplied(weights, change, TYPE)
    to = output + at * VALUE_DIM + columns[None, :]
    tl.store(to, read.to(output.dtype.element_ty), mask=is_there[:, None] & is_inside[None, :])
    last = tl.min(sums, 0)  # they only fall
    return tl.exp(last) * state + _multiplied(tl.trans(key * tl.exp(last - sums)[:, None]), change, TYPE)


@triton.jit
def _through_token(
    state, convolved, b, a, output, token, head, key_head, columns, decay, step_bias, scale,
    NUM_KEY_HEADS: tl.constexpr, NUM_VALUE_HEADS: tl.constexpr, KEY_DIM: tl.constexpr, VALUE_DIM: tl.constexpr,
):  # fmt: skip
    """Store a token's output and return the state after it."""
    keys = tl.arange(0, state.shape[0])
    is_key, is_inside = keys < KEY_DIM, columns < VALUE_DIM
    own = convolved + token * (2 * NUM_KEY_HEADS * KEY_DIM + NUM_VALUE_HEADS * VALUE_DIM)
    query = tl.load(own + key_head * KEY_DIM + keys, mask=is_key, other=0).to(tl.float32)
    key = tl.load(own + (NUM_KEY_HEADS + key_head) * KEY_DIM + keys, mask=is_key, other=0).to(tl.float32)
    of_values = own + 2 * NUM_KEY_HEADS * KEY_DIM + head * VALUE_DIM
    value = tl.load(of_values + columns, mask=is_inside, other=0).to(tl.float32)
    query, key = _unit(query, 0) * scale, _unit(key, 0)
    rate = 1 / (1 + tl.exp(-tl.load(b + token * NUM_VALUE_HEADS + head).to(tl.float32)))
    state *= tl.exp(_decay(tl.load(a + token * NUM_VALUE_HEADS + head).to(tl.float32) + step_bias, decay))
    change = (value - tl.sum(state * key[:, None], 0)) * rate
    state += key[:, None] * change[None, :]
    to = output + (token * NUM_VALUE_HEADS + head) * VALUE_DIM + columns
    tl.store(to, tl.sum(state * query[:, None], 0).to(output.dtype.element_ty), mask=is_inside)
    return state


@triton.jit(do_not_specialize=["state_stride"])
def delta_net_kernel(
    convolved, b, a, log_decay, step_bias, states, starts, reads, writes, of_rows, inverses, scores, output,
    state_stride, scale, NUM_KEY_HEADS: tl.constexpr, NUM_VALUE_HEADS: tl.constexpr, KEY_DIM: tl.constexpr,
    VALUE_DIM: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """A program: some columns of one row's head, through all segments of the row."""
    row, head, columns = tl.program_id(0), tl.program_id(1), tl.program_id(2) * BLOCK + tl.arange(0, BLOCK)
    keys = tl.arange(0, max(16, triton.next_power_of_2(KEY_DIM)))
    is_number = (keys < KEY_DIM)[:, None] & (columns < VALUE_DIM)[None, :]
    key_head = head // (NUM_VALUE_HEADS // NUM_KEY_HEADS)
    offsets = head * (KEY_DIM * VALUE_DIM) + keys[:, None] * VALUE_DIM + columns[None, :]
    decay, bias = tl.load(log_decay + head).to(tl.float32), tl.load(step_bias + head).to(tl.float32)
    for segment in range(tl.load(of_rows + row), tl.load(of_rows + row + 1)):
        begin, end = tl.load(starts + segment), tl.load(starts + segment + 1)
        read, write = tl.load(reads + segment), tl.load(writes + segment)
        before = states + read.to(tl.int64) * state_stride + offsets
        state = tl.load(before, mask=is_number & (read >= 0), other=0)
        if inverses is not None:
            for first in range(begin, end, _CHUNK):
                state = _through_chunk(
                    state, convolved, b, a, inverses, scores, output, first, end, head, key_head, columns, decay, bias,
                    scale, NUM_KEY_HEADS, NUM_VALUE_HEADS, KEY_DIM, VALUE_DIM,
                )  # fmt: skip
        else:
            for number in range(begin, end):
                state = _through_token(
                    state, convolved, b, a, output, number + tl.zeros((), tl.int64), head, key_head, columns, decay,
                    bias, scale, NUM_KEY_HEADS, NUM_VALUE_HEADS, KEY_DIM, VALUE_DIM,
                )  # fmt: skip
        tl.store(states + write.to(tl.int64) * state_stride + offsets, state, mask=is_number)
        tl.debug_barrier()


@formulas.delta_net.implement("triton")
def delta_net(
    convolved: Tensor, b: Tensor, a: Tensor, heads: DeltaHeads, states: LayerStates, segments: Segments
) -> Tensor:
    longest = len(convolved) if segments.longest is None else segments.longest
    is_by_chunks = longest >= SHORTEST and convolved.dtype != torch.float32
    form = delta_net_in_chunks if is_by_chunks else delta_net_by_token
    return form(convolved, b, a, heads, states, segments)


def delta_net_in_chunks(
    convolved: Tensor, b: Tensor, a: Tensor, heads: DeltaHeads, states: LayerStates, segments: Segments
) -> Tensor:
    convolved, b, a = convolved.contiguous(), b.contiguous(), a.contiguous()
    shape, num_segments = (2, len(convolved), heads.num_value_heads, CHUNK), len(segments.reads)
    inverses, scores = torch.empty(shape, dtype=torch.float32, device=convolved.device)
    most = len(convolved) // CHUNK + num_segments
    prepare_chunks_kernel[most, heads.num_value_heads](
        convolved, b, a, heads.log_decay, heads.step_bias, segments.starts, inverses, scores, num_segments,
        heads.key_dim**-0.5, *_sizes(heads), num_warps=_WARPS, num_stages=1,
    )  # fmt: skip
    return _launched(convolved, b, a, heads, states, segments, (inverses, scores))


@formulas.delta_net_invariant.implement("triton")
def delta_net_by_token(
    convolved: Tensor, b: Tensor, a: Tensor, heads: DeltaHeads, states: LayerStates, segments: Segments
) -> Tensor:
    return _launched(convolved.contiguous(), b.contiguous(), a.contiguous(), heads, states, segments, None)


def _sizes(heads: DeltaHeads) -> tuple[int, int, int, int]:
    return heads.num_key_heads, heads.num_value_heads, heads.key_dim, heads.value_dim


def _launched(
    convolved: Tensor,
    b: Tensor,
    a: Tensor,
    heads: DeltaHeads,
    states: LayerStates,
    segments: Segments,
    chunks: tuple[Tensor, Tensor] | None,
) -> Tensor:
    output = convolved.new_empty(len(convolved), heads.num_value_heads * heads.value_dim)
    grid = (len(segments.of_rows) - 1, heads.num_value_heads, triton.cdiv(heads.value_dim, _COLUMNS))
    delta_net_kernel[grid](
        convolved, b, a, heads.log_decay, heads.step_bias, states.recurrent, segments.starts, segments.reads,
        segments.writes, segments.of_rows, *(chunks or (None, None)), output, states.recurrent.stride(0),
        heads.key_dim**-0.5, *_sizes(heads), _COLUMNS, num_warps=4 if chunks is None else _WARPS, num_stages=1,
    )  # fmt: skip
    return output
