"""The native kernels of a recorded step as versions of operations: each call records one program and replays it.

What a layer calls on buffers is called here on tensors, so that the kernels are held against the same references as
all other versions.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from penstock.kernels.cpu.arguments import Step
from penstock.kernels.cpu.kv_memory import HEAD_DIM_STEP, KVMemory
from penstock.kernels.cpu.library import load
from penstock.kernels.cpu.linear import Quantize
from penstock.kernels.cpu.operations import NativeOperations
from penstock.kernels.cpu.program import Buffer, Program
from penstock.kernels.cpu.quantized import pack_parts
from penstock.kernels.cpu.weights import pack
from penstock.kernels.forms import DTYPES
from penstock.kernels.gpu_weights import GpuWeight, unpacked
from penstock.kernels.heads import HeadForm
from penstock.kernels.kv_layout import KV_FORMATS
from penstock.kernels.paged import DeviceRows, PagedKV, Rotation


class OneRank(NamedTuple):
    rank: int = 0
    size: int = 1
    peers: None = None


class Recorder:
    """One call for some rows: what it reads is put into buffers, and what it gives is read from one."""

    def __init__(self, num_rows: int) -> None:
        self.num_rows = num_rows
        self.step = Step(num_tokens=num_rows)
        self.ops = NativeOperations(load(), OneRank())  # type: ignore[arg-type]
        self.program = Program(load(), num_rows, self.step.address_of("num_tokens"))

    def buffer(self, x: Tensor) -> Buffer:
        found = self.program.buffer(x[0].numel())
        found.rows(self.num_rows).copy_(x.reshape(self.num_rows, -1))
        return found

    def given(self, record: Callable[[], Buffer]) -> Tensor:
        with self.ops.recording(self.program, self.step):
            found = record()
        self.program.replay()
        return found.rows(self.num_rows).clone()


def silu_mul(gate_up: Tensor) -> Tensor:
    call = Recorder(len(gate_up))
    x = call.buffer(gate_up)
    return call.given(lambda: call.ops.silu_mul(x))


def add_rms_norm(stream: Tensor, update: Tensor | None, weight: Tensor, epsilon: float) -> Tensor:
    call = Recorder(len(stream))
    changed, added = call.buffer(stream), None if update is None else call.buffer(update)
    found = call.given(lambda: call.ops.add_rms_norm(changed, added, weight, epsilon))
    stream.copy_(changed.rows(len(stream)))
    return found


def embedding(token_ids: Tensor, table: Tensor, first: int) -> Tensor:
    call = Recorder(len(token_ids))
    call.step.token_ids = token_ids.data_ptr()
    weight = pack([table], "fp32")
    return call.given(lambda: call.ops.embedding(call.step.address_of("token_ids"), weight, first))


def linear(x: Tensor, weight: GpuWeight, bias: Tensor | None) -> Tensor:
    call = Recorder(len(x))
    rows = call.buffer(x)
    if weight.kind in DTYPES:
        packed = pack([weight.values], weight.kind)
        return call.given(lambda: call.ops.linear(rows, packed, bias))
    packed = pack_parts([unpacked(weight)], weight.kind, weight.group_size)

    def quantized_product() -> Buffer:
        arguments = Quantize(num_rows=call.program.num_rows, input=rows.address, width=rows.width)
        call.program.call("penstock_quantize", arguments, rows)
        return call.ops.linear(rows, packed, bias)

    return call.given(quantized_product)


def store_heads(heads: Tensor, form: HeadForm, rotation: Rotation, kv: PagedKV, rows: DeviceRows) -> Tensor:
    call = Recorder(len(heads))
    place_rows(call.step, rows)
    cos, sin = (table.float().contiguous() for table in (rotation.cos, rotation.sin))
    call.step.cosines, call.step.sines = cos.data_ptr(), sin.data_ptr()
    call.step.rotations = rotation.positions.data_ptr()
    x, memory = call.buffer(heads), NativeMemory(kv)
    found = call.given(lambda: call.ops.store_heads(x, form, None, memory.told, None))
    memory.give_back()
    return found.view(len(heads), -1, form.head_dim)[:, : form.num_queries].to(heads.dtype)


def attention(query: Tensor, kv: PagedKV, rows: DeviceRows, scale: float, window: int | None) -> Tensor:
    _, num_heads, head_dim = query.shape
    call = Recorder(len(query))
    place_rows(call.step, rows)
    positions = positions_of(rows)
    call.step.positions = positions.data_ptr()
    form = HeadForm(num_heads, kv.num_heads, head_dim, rotates_pairs=False, norms=None, epsilon=0.0)
    x, memory = call.buffer(query), NativeMemory(kv)
    found = call.given(lambda: call.ops.attention(x, form, memory.told, None, window))
    return found.view(query.shape).to(query.dtype)


def place_rows(step: Step, rows: DeviceRows) -> None:
    step.num_rows, step.table_width = rows.block_tables.shape
    for field in ("query_starts", "context_lengths", "block_tables", "kv_slots"):
        setattr(step, field, getattr(rows, field).data_ptr())


def positions_of(rows: DeviceRows) -> Tensor:
    """[T]: a row's tokens are the last ones of its context."""
    queries = rows.query_starts.diff().tolist()
    ends = rows.context_lengths.tolist()
    return torch.cat([torch.arange(end - count, end) for count, end in zip(queries, ends, strict=True)])


class NativeMemory:
    """A copy of a GPU's memory in the layout of the native kernels."""

    def __init__(self, kv: PagedKV) -> None:
        per_word = KV_FORMATS[kv.kind].per_unit
        self.kv = kv
        # [blocks, heads, words of a head, tokens, per word], and [blocks, heads, words of tokens, head_dim, per word]
        keys = kv.keys.permute(0, 2, 3, 1).unflatten(2, (-1, per_word)).transpose(3, 4).contiguous()
        values = kv.values.transpose(1, 2).unflatten(2, (-1, per_word)).transpose(3, 4).contiguous()
        self.parts = [keys, values]
        if kv.kind == "int8":  # keys are 128 too high there
            keys.view(torch.uint8).bitwise_xor_(128)
            self.parts += [scales.transpose(1, 2).contiguous() for scales in (kv.key_scales, kv.value_scales)]
        pointers = [part.data_ptr() for part in self.parts] + [None] * (4 - len(self.parts))
        self.told = KVMemory(*pointers, KV_FORMATS[kv.kind].number, kv.block_size, kv.num_heads, kv.head_dim)

    def give_back(self) -> None:
        """What was stored."""
        keys, values, *scales = self.parts
        if self.kv.kind == "int8":
            keys.view(torch.uint8).bitwise_xor_(128)
        self.kv.keys.copy_(keys.transpose(3, 4).flatten(2, 3).permute(0, 3, 1, 2))
        self.kv.values.copy_(values.transpose(3, 4).flatten(2, 3).transpose(1, 2))
        for held, found in zip((self.kv.key_scales, self.kv.value_scales), scales, strict=False):
            held.copy_(found.transpose(1, 2))


# By the names of the operations whose formula they have.
RECORDED: dict[str, Callable[..., Any]] = {
    "pointwise.silu_mul": silu_mul,
    "pointwise.silu_mul_invariant": silu_mul,
    "pointwise.embedding": embedding,
    "stream.add_rms_norm": add_rms_norm,
    "products.linear_gpu": linear,
    "products.linear_gpu_invariant": linear,
    "products.linear_int8": linear,
    "store_heads.store_heads_paged": store_heads,
    "paged_attention.attention_paged": attention,
    "paged_attention.attention_paged_invariant": attention,
}


def is_recorded(arguments: tuple[Any, ...]) -> bool:
    """Whether a step of this shape is recorded; heads of other sizes stay with torch."""
    return not any(isinstance(each, HeadForm) and each.head_dim % HEAD_DIM_STEP for each in arguments)
