"""Arguments of the GPU's operations in the sizes of an 8B model, on any device; or small ones, to try them interpreted.

Families are functions that give `Case`s. Kernels' files are imported inside of them only. Knows no kernel.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import product as combinations
from typing import Any

import torch
from builders.filled_memory import filled_memory, steps_rows
from builders.gpu_products import random_part
from torch import Tensor


@dataclass(frozen=True)
class Case:
    operation: str
    what: str
    arguments: tuple[Any, ...]
    changed: tuple[int, ...] = ()  # places of the arguments that are changed
    may_differ: float = 0.0  # share of whole numbers in the result that may be others, where a tie is close


@dataclass(frozen=True)
class Sizes:
    device: str
    is_small: bool

    def sized(self, full: Any, small: Any) -> Any:
        return small if self.is_small else full

    def random(self, *shape: int, dtype: torch.dtype = torch.bfloat16) -> Tensor:
        return torch.randn(shape, device=self.device).to(dtype)


def products(sizes: Sizes) -> Iterator[Case]:
    from penstock.kernels import WeightFormat
    from penstock.kernels.torch.packed.gpu_weights import pack

    forms = (
        ("bf16", 0, ("linear_gpu", "linear_gpu_invariant")),
        ("int8", 0, ("linear_int8", "linear_wint8", "linear_wint8_invariant")),
        ("int4", 64, ("linear_wint4", "linear_wint4_invariant")),
        ("int4", 128, ()),
    )
    shapes = sizes.sized([(6144, 4096), (4096, 12288), (1000, 1024)], [(40, 96)])
    for (kind, group_size, operations), (outputs, inputs) in combinations(forms, shapes):
        made = [sizes.random(outputs, inputs) * 0.02]
        weight = pack(made, WeightFormat(kind, group_size), torch.device(sizes.device))
        for rows in sizes.sized((1, 3, 16, 70, 256, 2048), (1, 17)):
            x, bias = sizes.random(rows, inputs), sizes.random(outputs) if rows % 2 else None
            for operation in operations:
                yield Case(operation, f"{rows} × {inputs} → {outputs}", (x, weight, bias))
        if kind != "bf16":
            x = sizes.random(sizes.sized(1100, 5), inputs)
            yield Case("linear_dequantized", f"{kind} {group_size}, {inputs} → {outputs}", (x, weight, None))


def blocks(sizes: Sizes) -> Iterator[Case]:
    """Products with a GGUF file's blocks of every kind: few rows, many, and very many, which meet floats."""
    from penstock.kernels.stored.block_kinds import KINDS
    from penstock.kernels.torch.packed.gpu_blocks import pack_blocks

    shapes = sizes.sized([(6144, 4096), (1000, 1024)], [(40, 256)])
    for kind, type in {kind: type for type, kind in KINDS.items()}.items():
        for outputs, inputs in shapes:
            weight = pack_blocks([random_part(type, outputs, inputs)], torch.device(sizes.device))
            for rows in sizes.sized((1, 16, 70, 2048), (1, 17)):
                what = f"{kind}, {rows} × {inputs} → {outputs}"
                x, bias = sizes.random(rows, inputs), sizes.random(outputs) if rows % 2 else None
                yield Case("linear_blocks", what, (x, weight, bias))
                if rows <= sizes.sized(16, 17):
                    yield Case("linear_blocks_invariant", what, (x, weight, bias))
                    stream = sizes.random(rows, outputs)
                    yield Case("linear_few_rows", f"{what}, added", (x, weight, bias, None, stream, False))


def few_rows(sizes: Sizes) -> Iterator[Case]:
    """A layer's products, each with what stands around it."""
    from penstock.kernels import WeightFormat
    from penstock.kernels.operands import Norm
    from penstock.kernels.torch.packed.gpu_weights import pack

    shapes = sizes.sized(
        {"normed": (6144, 4096), "added": (4096, 12288), "normed, gated": (24576, 4096), "alone": (151_936, 1024)},
        {"normed": (40, 96), "added": (33, 96), "normed, gated": (80, 96)},
    )
    forms = [WeightFormat("bf16"), WeightFormat("int8"), WeightFormat("int4", 64), WeightFormat("int4", 128)]
    for form in forms[: sizes.sized(None, 3)]:
        for around, (outputs, inputs) in shapes.items():
            made = [sizes.random(outputs, inputs) * 0.02]
            weight = pack(made, form, torch.device(sizes.device))
            norm = Norm(sizes.random(inputs) + 1, 1e-6) if "normed" in around else None
            for rows in sizes.sized((1, 3, 8, 16, 17, 33, 64), (1, 17)):
                x, bias = sizes.random(rows, inputs), sizes.random(outputs) if rows % 2 else None
                stream = sizes.random(rows, outputs) if around == "added" else None
                arguments = (x, weight, bias, norm, stream, "gated" in around)
                yield Case("linear_few_rows", f"{form.kind}, {rows} × {inputs} → {outputs}, {around}", arguments)


def experts(sizes: Sizes) -> Iterator[Case]:
    """Qwen3-30B-A3B's: their choice, and what they compute in every format."""
    from penstock.kernels import WeightFormat
    from penstock.kernels.experts import ExpertWeights, GatedActivation, Routing
    from penstock.kernels.reference.experts import route
    from penstock.kernels.torch.packed.gpu_experts import pack_experts

    count, top_k, hidden, width = sizes.sized((128, 8, 2048, 768), (6, 2, 96, 40))
    forms = [WeightFormat("bf16"), WeightFormat("int8"), WeightFormat("int4", 64)]
    for form in forms:
        gate_up, down = (
            pack_experts(([sizes.random(*shape) * 0.02] for _ in range(count)), count, form, torch.device(sizes.device))
            for shape in ((2 * width, hidden), (hidden, width))
        )
        weights = ExpertWeights(gate_up, down, None, None, 0, count, width, GatedActivation())
        for tokens in sizes.sized((1, 16, 300, 2048), (1, 17)):
            logits, routing = sizes.random(tokens, count, dtype=torch.float32), Routing(count, top_k)
            yield Case("route", f"{tokens} tokens", (logits, None, routing))
            chosen = route.reference(logits, None, routing)
            for operation in ("experts_gpu", "experts_gpu_invariant"):
                yield Case(operation, f"{form.kind}, {tokens} tokens", (sizes.random(tokens, hidden), chosen, weights))
    for rows in sizes.sized((1, 256), (1, 5)):
        arguments = (sizes.random(rows, hidden), sizes.random(rows, hidden), sizes.random(rows, 1, dtype=torch.float32))
        yield Case("add_gated", f"{rows} rows", arguments, changed=(0,))


def attention(sizes: Sizes) -> Iterator[Case]:
    num_heads, num_kv_heads, head_dim = sizes.sized((32, 8, 128), (4, 2, 32))
    # Contexts of the rows, queries of each, window.
    steps = sizes.sized(
        [([4096] * 16, 1, None), ([1, 33, 700, 8192], 1, None), ([1500, 300, 2048], 300, None), ([3000] * 4, 5, 1024)],
        [([40, 64], 1, None), ([33, 40], 9, 16)],
    )
    for operation in ("attention_paged", "attention_paged_invariant"):
        for kind in ("bf16", "fp16", "int8"):
            for contexts, queries, window in steps:
                tokens = sum(-(-context // 32) * 32 for context in contexts)
                kv = filled_memory(tokens, num_kv_heads, head_dim, kind, sizes.device).of_layer(0)
                rows = steps_rows(contexts, queries, sizes.device)
                dtype = torch.float16 if kind == "fp16" else torch.bfloat16
                query = sizes.random(len(rows.kv_slots), num_heads, head_dim, dtype=dtype)
                what = f"{kind}, {queries} of {contexts[:4]}, window {window}"
                yield Case(operation, what, (query, kv, rows, head_dim**-0.5, window))
                if queries > 5:
                    lasts = torch.tensor(contexts, device=sizes.device).repeat_interleave(queries)
                    pictures = replace(rows, seen_ends=lasts)
                    yield Case(operation, f"{what}, of a picture", (query, kv, pictures, head_dim**-0.5, window))


def heads(sizes: Sizes) -> Iterator[Case]:
    from penstock.kernels import HeadLayout
    from penstock.kernels.paged import Rotation

    queries, keys, length = sizes.sized((32, 8, 128), (4, 2, 32))
    for kind in ("bf16", "fp16", "int8"):
        for contexts, count in sizes.sized([([512] * 16, 1), ([600, 300, 257], 257)], [([40, 33], 1), ([40], 7)]):
            norms = (sizes.random(length) + 1, sizes.random(length) + 1)
            form = HeadLayout(queries, keys, length, rotates_pairs=False, norms=norms, epsilon=1e-6)
            rows = steps_rows(contexts, count, sizes.device)
            angles = torch.rand(max(contexts), length, device=sizes.device) * 6
            of_rows = [torch.arange(context - count, context, device=sizes.device) for context in contexts]
            rotation = Rotation(angles.cos(), angles.sin(), torch.cat(of_rows))
            tokens = sum(-(-context // 32) * 32 for context in contexts)
            kv = filled_memory(tokens, keys, length, kind, sizes.device).of_layer(0)
            projected = sizes.random(count * len(contexts), (queries + 2 * keys) * length)
            what = f"{kind}, {count} of {contexts[:4]}"
            yield Case("store_heads_paged", what, (projected, form, rotation, kv, rows), changed=(3,))


def rows(sizes: Sizes) -> Iterator[Case]:
    width, inner, vocabulary = sizes.sized((4096, 12288, 151_936), (96, 64, 200))
    for count in sizes.sized((1, 5, 256, 4096), (1, 5)):
        stream, update = sizes.random(count, width), sizes.random(count, width)
        weight = sizes.random(width) + 1
        yield Case("add_rms_norm", f"{count} rows", (stream, update, weight, 1e-6, 0.7), changed=(0,))
        yield Case("add_layer_norm", f"{count} rows", (stream, update, weight, weight / 2, 1e-6), changed=(0,))
        for activation in ("silu", "gelu_tanh"):
            yield Case("gate", f"{count} rows, {activation}", (sizes.random(count, 2 * inner), activation))
        yield Case("apply_activation", f"{count} rows, relu2", (sizes.random(count, inner), "relu2"))
        ids = torch.randint(0, vocabulary, (count,), device=sizes.device)
        yield Case("embedding", f"{count} rows", (ids, sizes.random(vocabulary, width), vocabulary // 3))
        yield Case("quantize_rows", f"{count} rows", (sizes.random(count, width),), may_differ=1e-4)


def logits(sizes: Sizes) -> Iterator[Case]:
    from penstock.kernels.reference.sampling.race import DeviceMask
    from penstock.kernels.sampling import DeviceDraws

    for count in (1, 7, sizes.sized(256, 9)):
        width = sizes.sized(151_936, 515)
        scores = 3 * sizes.random(count, width, dtype=torch.float32)
        numbers = torch.arange(count, device=sizes.device)
        reals = torch.rand(3, count, device=sizes.device) * torch.tensor([[1.5], [0.99], [0.02]], device=sizes.device)
        histories = torch.zeros(count, count, dtype=torch.int32, device=sizes.device)
        wholes = torch.stack((numbers + 1, numbers, numbers))
        draws = DeviceDraws(numbers % 4, reals + 1e-3, wholes, histories, numbers, numbers)
        yield Case("choose_on_device", f"{count} rows", (scores, draws), may_differ=0.01)
        words = -(-width // 32)
        bits = torch.randint(-(2**31), 2**31, (count, words), device=sizes.device).int()
        mask = DeviceMask((numbers - 2).clamp(min=-1).int(), bits)
        yield Case("choose_on_device", f"{count} rows, masked", (scores, draws, mask), changed=(0,), may_differ=0.01)
        chosen = torch.randint(0, width, (count,), device=sizes.device)
        yield Case("ranked_logprobs", f"{count} rows", (scores, chosen, 5), may_differ=1e-3)
        yield Case("apply_mask", f"{count} rows", (scores, numbers, bits), changed=(0,))


def states(sizes: Sizes) -> Iterator[Case]:
    """Qwen3-Next's layers: prompts beside answers, and answers alone."""
    from penstock.kernels.states import DeltaHeads, LayerStates, Segments

    key_heads, value_heads, length = sizes.sized((16, 32, 128), (1, 2, 16))
    log_decay = torch.rand(value_heads, device=sizes.device) + 0.5
    heads = DeltaHeads(key_heads, value_heads, length, length, log_decay, torch.rand(value_heads, device=sizes.device))
    steps = sizes.sized(([1000, 1, 300], [1] * 64), ([70, 1, 20], [1, 1]))
    for operation, counts in combinations(("delta_net", "delta_net_invariant"), steps):
        tokens, numbers = sum(counts), torch.arange(len(counts) + 1, dtype=torch.int32, device=sizes.device)
        starts = torch.tensor([0, *counts], dtype=torch.int32).cumsum(0).int().to(sizes.device)
        segments = Segments(starts, numbers[:-1], numbers[:-1], numbers, max(counts))
        recurrent = sizes.random(len(counts), value_heads, length, length, dtype=torch.float32) / 8
        kept = LayerStates(sizes.random(len(counts), 3, heads.width, dtype=torch.float32), recurrent)
        b, a = sizes.random(tokens, value_heads), sizes.random(tokens, value_heads)
        x = sizes.random(tokens, heads.width)
        what = f"{tokens} tokens of {len(counts)} rows"
        yield Case(operation, what, (x, b, a, heads, kept, segments), changed=(4,))
        if operation == "delta_net":
            weight = sizes.random(heads.width, 4)
            yield Case("causal_convolution", what, (x, weight, None, "silu", kept, segments), changed=(4,))
            read, gate = (sizes.random(tokens, value_heads * length) for _ in range(2))
            yield Case("gated_norm", what, (read, gate, sizes.random(length) + 1, 1e-6, value_heads))


FAMILIES: dict[str, Callable[[Sizes], Iterator[Case]]] = {
    family.__name__: family for family in (products, few_rows, blocks, experts, attention, heads, rows, logits, states)
}
