"""What happens to each row between two products: norm, rotation, activation, embedding, log-softmax, sums."""

from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from ..operands import Activation, HeadLayout, PlacedRows, TokenRotation
from ..registry import op


@op()
def rms_norm(x: Tensor, weight: Tensor, epsilon: float) -> Tensor:
    """x / sqrt(mean(x²) + ε) × weight over the last dimension; the weight may differ per head."""
    return (F.rms_norm(x.float(), x.shape[-1:], None, epsilon).to(x.dtype)).mul_(weight)


rms_norm_invariant = rms_norm.invariant()


@op()
def layer_norm(x: Tensor, weight: Tensor, bias: Tensor | None, epsilon: float) -> Tensor:
    """(x - mean(x)) / sqrt(mean((x - mean(x))²) + ε) × weight + bias; the weight may differ per head."""
    normed = F.layer_norm(x.float(), x.shape[-1:], None, None, epsilon) * weight.float()
    return (normed if bias is None else normed + bias.float()).to(x.dtype)


layer_norm_invariant = layer_norm.invariant()


@op()
def rotate_halves(heads: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate element i of each head against element i + half; `sin` carries the sign: [-sin, sin]."""
    return torch.roll(heads, heads.shape[-1] // 2, -1).mul_(sin).add_(heads * cos)


@op()
def rotate_pairs(heads: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate neighbours 2i and 2i + 1 of each head against one another; `sin` carries the sign: -sin, sin, -sin, …"""
    partners = heads.unflatten(-1, (-1, 2)).flip(-1).flatten(-2)
    return partners.mul_(sin).add_(heads * cos)


def rotated(heads: Tensor, layout: HeadLayout, rotation: TokenRotation | None) -> Tensor:
    """Heads as their layout wants them. Where not all of a head is rotated, cosines are 1 and sines 0 behind that."""
    if rotation is None:
        return heads
    cos, sin, _ = rotation
    if layout.rotates_pairs:
        return rotate_pairs(heads, cos, sin)
    if layout.num_rotated == layout.head_dim:
        return rotate_halves(heads, cos, sin)
    turned, kept = heads.split((layout.num_rotated, layout.head_dim - layout.num_rotated), -1)
    cos, sin = (table[..., : layout.num_rotated] for table in (cos, sin))
    return torch.cat((rotate_halves(turned, cos, sin), kept), -1)


def rotated_queries(heads: Tensor, layout: HeadLayout, rotation: TokenRotation | None) -> Tensor:
    """The same, multiplied by what their positions ask for."""
    turned = rotated(heads, layout, rotation)
    return turned if rotation is None or rotation.query_scales is None else turned * rotation.query_scales


_ACTIVATIONS: dict[Activation, Callable[[Tensor], Tensor]] = {
    "silu": F.silu,
    "gelu": F.gelu,
    "gelu_tanh": partial(F.gelu, approximate="tanh"),
    "gelu_sigmoid": lambda x: x * torch.sigmoid(1.702 * x),
    "relu": F.relu,
    "relu2": lambda x: F.relu(x).square(),
}


@op()
def apply_activation(x: Tensor, activation: Activation) -> Tensor:
    """The activation of each number."""
    return _ACTIVATIONS[activation](x)


apply_activation_invariant = apply_activation.invariant()


@op()
def gate(gate_up: Tensor, activation: Activation) -> Tensor:
    """activation(first half) × second half."""
    gates, ups = gate_up.chunk(2, -1)
    return _ACTIVATIONS[activation](gates).mul_(ups)


gate_invariant = gate.invariant()


@op()
def cap(product: Tensor, limit: float) -> Tensor:
    """limit × tanh(product / limit), in place."""
    return product.div_(limit).tanh_().mul_(limit)


@op()
def embedding(token_ids: Tensor, table: Tensor, first: int, scale: float = 1.0) -> Tensor:
    """scale × the rows of a table that holds the ids from `first` on; ids outside of it give zeros."""
    local = token_ids - first
    is_outside = (local < 0) | (local >= table.shape[0])
    rows = F.embedding(local.masked_fill(is_outside, 0), table).masked_fill_(is_outside[:, None], 0)
    return rows if scale == 1.0 else rows.mul_(scale)


@op()
def log_softmax(logits: Tensor) -> Tensor:
    """Logarithms of the distribution, in float32."""
    return torch.log_softmax(logits.float(), -1)


@op(tolerance=0)
def add(stream: Tensor, update: Tensor, scale: float = 1.0, factor: float = 1.0) -> Tensor:
    """Makes the stream (stream + scale × update) × factor, and gives it."""
    whole = stream.add_(update if scale == 1.0 else update * scale)
    return whole if factor == 1.0 else whole.mul_(factor)


@op(tolerance=0)
def multiply(x: Tensor, y: Tensor, part: int = 0) -> Tensor:
    """x × y, number by number; of a wider y the part of this number."""
    width = x.shape[1]
    return x * y[:, part * width : (part + 1) * width]


@op()
def add_part_norms(total: Tensor, x: Tensor, weight: Tensor, epsilon: float) -> Tensor:
    """Adds the norm of `x` to the total, in place; each part of a row as long as the weight has a norm of its own."""
    normed = rms_norm.reference(x.unflatten(1, (-1, len(weight))), weight, epsilon)
    return total.add_(normed.flatten(1))


add_part_norms_invariant = add_part_norms.invariant()


@op(tolerance=0)
def gather_rows(x: Tensor, indices: Tensor) -> Tensor:
    """The rows of `x` with these indices."""
    return x[indices]


@op(tolerance=0)
def put_rows(stream: Tensor, placed: PlacedRows, part: int = 0) -> Tensor:
    """Replace tokens' rows of the stream by this part of the given rows."""
    stream[placed.tokens] = _part_of(placed, part, stream)
    return stream


@op(tolerance=0)
def add_rows(stream: Tensor, placed: PlacedRows, part: int = 0) -> Tensor:
    """Adds the rows' numbers of this part to those of their tokens, in the stream."""
    stream[placed.tokens] += _part_of(placed, part, stream)
    return stream


def _part_of(placed: PlacedRows, part: int, stream: Tensor) -> Tensor:
    width = stream.shape[1]
    return placed.kept[placed.rows, part * width : (part + 1) * width].to(stream.dtype)


@op()
def add_rms_norm(stream: Tensor, update: Tensor | None, weight: Tensor, epsilon: float, scale: float = 1.0) -> Tensor:
    """Adds scale × the update, if any, to the stream; gives the stream's norm."""
    return rms_norm.reference(stream if update is None else add.reference(stream, update, scale), weight, epsilon)


@op()
def add_layer_norm(
    stream: Tensor, update: Tensor | None, weight: Tensor, bias: Tensor | None, epsilon: float, scale: float = 1.0
) -> Tensor:
    """The same with a norm that takes off the mean."""
    whole = stream if update is None else add.reference(stream, update, scale)
    return layer_norm.reference(whole, weight, bias, epsilon)


@op()
def gate_heads(attended: Tensor, heads: Tensor, layout: HeadLayout) -> Tensor:
    """attended × sigmoid(gate) by number, the gates standing among the projected heads; both are [T, width]."""
    gates = layout.gates(heads).flatten(1).float()
    return (attended.float() / (1 + gates.neg().exp())).to(attended.dtype)
