"""The native kernels of a recorded step as versions of operations: each call records one program and replays it.

What a layer calls on buffers is called here on an operation's arguments, so that the kernels are held against the same
formulas as all other versions. How an argument gets into a program is told from its type, or from that of the method's
parameter; so a new kernel whose method is called as its operation is held without a line here.
"""

import inspect
from collections.abc import Callable
from ctypes import addressof
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple, get_args

import torch
from torch import Tensor

from penstock.kernels import LoraMapping
from penstock.kernels.cpu.calls.experts import NativeRoutes
from penstock.kernels.cpu.kv_memory import HEAD_DIM_STEP, KV_FORMATS
from penstock.kernels.cpu.library import load
from penstock.kernels.cpu.operations import NativeOperations
from penstock.kernels.cpu.program import Buffer, Program
from penstock.kernels.cpu.structs import KV_FORMAT, KVMemory, Linear, Quantize, RotaryTable, Step
from penstock.kernels.cpu.weights.lora import NativeLora
from penstock.kernels.cpu.weights.packed import NativeWeight
from penstock.kernels.experts import ExpertWeights, Routes
from penstock.kernels.operands import DTYPES, HeadLayout, PlacedRows, WeightFormat
from penstock.kernels.paged import DeviceRows, PagedKV, Rotation
from penstock.kernels.states import DeltaHeads, Segments
from penstock.kernels.torch.arrays import array_of, numpy_dtype, tensor_of
from penstock.kernels.torch.packed.gpu_weights import GpuWeight, unpacked
from penstock.kernels.torch.packed.torch_weights import PackedWeight
from penstock.kernels.torch.parts import quantized_part
from penstock.kernels.torch.products import TorchLora

from .operation_examples.table import EXAMPLES
from .quantized_parts import pack, pack_experts, pack_parts

# The methods that have another name than the operation whose formula they have.
_METHODS = {
    "products.linear_gpu": "linear", "products.linear_int8": "linear", "products.linear_int4": "linear",
    "paged_attention.store_heads_paged": "store_heads", "paged_attention.attention_paged": "attention",
}  # fmt: skip
_CHANGED = ("stream", "product", "total")  # what operations write in place, by the parameter's name
_GIVING_HEADS = ("store_heads", "attention")  # by head, where the formula gives [T, heads, head_dim]
_FIELDS = {"indices": "logit_rows"}  # of the step, where a parameter has another name


class OneRank(NamedTuple):
    rank: int = 0
    size: int = 1


_ONE_RANK = OneRank()


class OneCall:
    """A program of one call, with the step and the buffers that it reads."""

    def __init__(self, num_rows: int, capacity: int, ranks: Any = _ONE_RANK) -> None:
        self.num_rows = num_rows
        self.step = Step(num_tokens=num_rows)
        self.ops = NativeOperations(load(), ranks)
        self.program = Program(load(), capacity + 1, self.step.address_of("num_tokens"))
        self.buffers: dict[str, Buffer] = {}  # by the parameter's name
        self.kept: list[Any] = []  # what the step and the arguments point to
        self.memories: list[NativeMemory] = []  # of keys and values, which the call may write to

    def placed(self, parameter: inspect.Parameter, argument: Any) -> Any:
        """An argument as the native method wants it."""
        if place := _PLACED.get(type(argument)):
            return place(self, argument)
        if not isinstance(argument, Tensor):
            return argument
        if _is_field(parameter, argument):
            return self.point(**{_FIELDS.get(parameter.name, parameter.name): argument})
        if parameter.annotation is NativeWeight:
            return pack([argument], "fp32")
        if _is_buffer(parameter, argument):
            return self.buffer(parameter.name, argument)
        return self.ops.vector(array_of(argument))

    def buffer(self, name: str, x: Tensor) -> Buffer:
        found = self.buffers[name] = self.program.buffer(x[0].numel())
        tensor_of(found.rows(len(x))).copy_(x.reshape(len(x), -1))
        found.writer = Quantize(num_rows=self.program.num_rows, input=found.data_ptr(), width=found.width)
        return found

    def point(self, **fields: Any) -> int:
        """Lets fields of the step point to these; the address of the last one."""
        for field, given in fields.items():
            self.kept.append(torch.as_tensor(given).contiguous())
            setattr(self.step, field, self.kept[-1].data_ptr())
        return self.step.address_of(field)

    def given(self, method: str, arguments: list[Any]) -> Tensor | Routes:
        with self.ops.recording(self.program, self.step):
            found = getattr(self.ops, method)(*arguments)
            for buffer in self.buffers.values():
                if isinstance(buffer.writer, Quantize) and buffer.writer.quantized.values:
                    self.program.call_first("penstock_quantize", buffer.writer)
        outputs = found if isinstance(found, NativeRoutes) else [found] * (found is not None)
        behind = [tensor_of(each.rows(self.num_rows + 1))[self.num_rows] for each in outputs]
        for row in behind:
            row.fill_(7)
        self.program.replay()
        assert all((row == 7).all() for row in behind), "a row behind the step's was written"
        for memory in self.memories if method.startswith("store_") else ():
            memory.give_back()
        if found is None:
            return self.memories[0].kv.keys.float()
        if isinstance(found, NativeRoutes):
            chosen, weights = (tensor_of(each.rows(self.num_rows)).clone() for each in found)
            return Routes(chosen.view(torch.int32), weights)
        return tensor_of(found.rows(self.num_rows)).clone()


def _matrix(call: OneCall, weight: PackedWeight) -> NativeWeight:
    return pack([weight.plain()], WeightFormat.of(numpy_dtype(weight.dtype)).kind)


def _gpu_matrix(call: OneCall, weight: GpuWeight) -> NativeWeight:
    is_float = weight.kind in DTYPES
    return pack_parts([weight.values if is_float else quantized_part(unpacked(weight))], weight.kind, weight.group_size)


def _adapters(call: OneCall, lora: TorchLora) -> NativeLora:
    product = call.buffers["product"]
    product.writer = Linear(output=product.data_ptr(), output_stride=product.width)
    native = NativeLora(call.buffers["x"].width, lora.outputs, lora.config)
    parts = {sum(lora.outputs[:part]): part for part in range(len(lora.outputs))}  # by their first output
    for adapter in range(lora.config.max_adapters):
        for first, down, up in lora.parts_of(adapter):
            native.put(adapter, parts[first], array_of(down.plain()), array_of(up.plain()))
    return native


def _adapted(call: OneCall, adapted: LoraMapping) -> None:
    call.step.num_adapted = len(adapted.blocks)
    call.point(adapted=tensor_of(adapted.blocks), adapted_tokens=adapted.tokens)


def _routes(call: OneCall, routes: Routes) -> NativeRoutes:
    found = NativeRoutes(*(call.program.buffer(each.shape[1]) for each in routes))
    tensor_of(found.experts.rows(call.num_rows)).view(torch.int32).copy_(routes.experts)
    tensor_of(found.weights.rows(call.num_rows)).copy_(routes.weights)
    return found


def _rotation(call: OneCall, rotation: Rotation) -> int:
    call.point(rotations=rotation.positions)
    given = (rotation.cos, rotation.sin, rotation.query_scales)
    tables = [None if table is None else table.float().contiguous() for table in given]
    made = RotaryTable(*(None if table is None else table.data_ptr() for table in tables))
    call.kept += [*tables, made]
    return addressof(made)


def _rows(call: OneCall, rows: DeviceRows) -> Step:
    call.step.num_rows, call.step.table_width = rows.block_tables.shape
    # A row's tokens are the last ones of its context.
    ends = zip(rows.context_lengths.tolist(), rows.query_starts.diff().tolist(), strict=True)
    call.point(positions=torch.cat([torch.arange(end - count, end) for end, count in ends]))
    call.point(query_starts=rows.query_starts, context_lengths=rows.context_lengths)
    call.point(block_tables=rows.block_tables, kv_slots=rows.kv_slots)
    if rows.seen_ends is not None:
        call.point(seen_ends=rows.seen_ends)
    return call.step


def _heads(call: OneCall, heads: DeltaHeads) -> DeltaHeads:
    return replace(heads, log_decay=array_of(heads.log_decay), step_bias=array_of(heads.step_bias))


def _segments(call: OneCall, segments: Segments) -> Step:
    call.step.num_rows, call.step.num_segments = len(segments.of_rows) - 1, len(segments.reads)
    call.point(segment_starts=segments.starts, segments_of_rows=segments.of_rows)
    call.point(segment_reads=segments.reads, segment_writes=segments.writes)
    return call.step


def _placed_rows(call: OneCall, placed: PlacedRows) -> None:
    call.step.num_placed, call.step.kept_width = len(placed.tokens), placed.kept.shape[1]
    call.point(placed_tokens=placed.tokens, placed_rows=placed.rows, kept_rows=placed.kept)


class NativeMemory:
    """A copy of a GPU's memory in the layout of the native kernels."""

    def __init__(self, kv: PagedKV) -> None:
        per_word = KV_FORMATS[kv.kind].per_unit
        self.kv = kv
        # [blocks, heads, words of a head, tokens, per word], and [blocks, heads, words of tokens, head_dim, per word]
        keys = kv.keys.permute(0, 2, 3, 1).unflatten(2, (-1, per_word)).transpose(3, 4).contiguous()
        # A copy even of a lone head, whose order is the same.
        values = kv.values.transpose(1, 2).unflatten(2, (-1, per_word)).transpose(3, 4).clone().contiguous()
        self.parts = [keys, values]
        if kv.values is kv.keys:  # latents
            self.parts = [values, values]
        if kv.values is kv.keys and kv.kind == "int8":  # scales of latents and of the keys behind them, together
            self.parts += [torch.stack((kv.value_scales, kv.key_scales)).permute(1, 3, 0, 2).contiguous()] * 2
        elif kv.kind == "int8":  # keys are 128 too high there
            keys.view(torch.uint8).bitwise_xor_(128)
            self.parts += [scales.transpose(1, 2).contiguous() for scales in (kv.key_scales, kv.value_scales)]
        pointers = [part.data_ptr() for part in self.parts] + [None] * (4 - len(self.parts))
        self.told = KVMemory(*pointers, KV_FORMAT[kv.kind], kv.block_size, kv.num_heads, kv.head_dim, kv.head_dim)

    def give_back(self) -> None:
        """Copies the stored numbers back."""
        keys, values, *scales = self.parts
        self.kv.values.copy_(values.transpose(3, 4).flatten(2, 3).transpose(1, 2))
        if keys is values:
            if scales:
                of_latents, of_keys = scales[0].permute(2, 0, 3, 1)
                self.kv.value_scales.copy_(of_latents)
                self.kv.key_scales.copy_(of_keys)
            return
        if self.kv.kind == "int8":
            keys.view(torch.uint8).bitwise_xor_(128)
        self.kv.keys.copy_(keys.transpose(3, 4).flatten(2, 3).permute(0, 3, 1, 2))
        for held, found in zip((self.kv.key_scales, self.kv.value_scales), scales, strict=False):
            held.copy_(found.transpose(1, 2))


def _memory(call: OneCall, kv: PagedKV) -> KVMemory:
    call.memories.append(NativeMemory(kv))
    return call.memories[-1].told


_PLACED: dict[type, Callable[[OneCall, Any], Any]] = {
    PackedWeight: _matrix,
    list: lambda call, weights: [_matrix(call, weight) for weight in weights],
    GpuWeight: _gpu_matrix,
    TorchLora: _adapters,
    LoraMapping: _adapted,
    PlacedRows: _placed_rows,
    Routes: _routes,
    Rotation: _rotation,
    DeviceRows: _rows,
    Segments: _segments,
    DeltaHeads: _heads,
    PagedKV: _memory,
}


def only_rows(name: str, arguments: tuple[Any, ...], rows: slice) -> tuple[Any, ...]:
    """The arguments of an operation on rows, for some of them; copied, since it may write into what it is given."""
    pairs = list(zip(_parameters(_method(name)), arguments, strict=True))
    is_of_rows = _is_field if any(_is_field(*pair) for pair in pairs) else _is_buffer
    return tuple(x[rows].clone() if is_of_rows(parameter, x) else x for parameter, x in pairs)


def _is_field(parameter: inspect.Parameter, argument: Any) -> bool:
    """Whether a field of the step points to it."""
    return int in (parameter.annotation, *get_args(parameter.annotation)) and isinstance(argument, Tensor)


def _is_buffer(parameter: inspect.Parameter, argument: Any) -> bool:
    return isinstance(argument, Tensor) and Buffer in (parameter.annotation, *get_args(parameter.annotation))


def _parameters(method: str) -> list[inspect.Parameter]:
    return list(inspect.signature(getattr(NativeOperations, method)).parameters.values())[1:]


def _method(name: str) -> str:
    formula = name.removesuffix("_invariant")
    return _METHODS.get(formula, formula.partition(".")[2])


def version(method: str, *arguments: Any) -> Tensor | Routes:
    """The native method's result for an operation's arguments."""
    parameters = _parameters(method)
    if method == "attention":
        query, kv, rows, _, window, sinks = arguments
        form = HeadLayout(query.shape[1], kv.num_heads, kv.head_dim, rotates_pairs=False, sinks=sinks)
        arguments = query, form, kv, rows, window
    if method == "experts":
        x, gate_up, down, *biases, routes, first, activation = arguments
        packed = [pack_experts([[own] for own in each], len(each), WeightFormat("fp32")) for each in (gate_up, down)]
        arguments = x, routes, ExpertWeights(*packed, *biases, first, len(gate_up), down.shape[2], activation)
    pairs = list(zip(parameters, arguments, strict=True))
    tensors = [argument for argument in arguments if isinstance(argument, Tensor)]
    [of_rows] = [x for parameter, x in pairs if _is_field(parameter, x)] or tensors[:1]
    call = OneCall(len(of_rows), max(map(len, tensors)))
    found = call.given(method, [call.placed(*pair) for pair in pairs])
    for parameter, argument in pairs:
        if parameter.name in _CHANGED:
            argument.copy_(tensor_of(call.buffers[parameter.name].rows(len(argument))))
    if isinstance(found, Routes):
        return found
    if method in _GIVING_HEADS:
        [layout] = [argument for argument in arguments if isinstance(argument, HeadLayout)]
        found = found.unflatten(1, (-1, layout.head_dim)) if method == "attention" else layout.split(found)[0]
    return found.to(arguments[0].dtype) if arguments[0].is_floating_point() else found


# By the names of the operations whose formula they have; the plain memory of keys and values is torch's alone, and what
# ranks compute together takes several programs (`native_ranks.py`).
RECORDED: dict[str, Callable[..., Tensor]] = {
    name: partial(version, _method(name))
    for name in EXAMPLES
    if hasattr(NativeOperations, _method(name)) and not name.startswith(("attention.", "ranks."))
}


def is_recorded(arguments: tuple[Any, ...]) -> bool:
    """Whether a step of these is recorded: other heads stay with torch, other groups become 8 bits."""
    has_other_heads = any(isinstance(each, HeadLayout) and each.head_dim % HEAD_DIM_STEP for each in arguments)
    has_other_groups = any(isinstance(each, GpuWeight) and each.group_size % 32 for each in arguments)
    return not (has_other_heads or has_other_groups)
