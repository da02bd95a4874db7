"""Examples for kernels/reference/latent_attention.py, made from a seed."""

from collections.abc import Iterator, Sequence

import torch
from builders.operation_examples.attention import paged_step
from torch import Tensor

from penstock.kernels.operands import LatentLayout
from penstock.kernels.paged import DeviceRows, PagedKV, Rotation
from penstock.kernels.torch.packed.torch_weights import PackedWeight, pack

KINDS = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
IN_BYTES = "int8"  # only native kernels have it
Stored = tuple[Tensor, LatentLayout, Rotation, PagedKV, DeviceRows]  # what is stored, how, where
# Heads, rank, nope_dim, rope_dim, value_dim, block size: a rest of a vector, a lone head, a prime number of them.
_CASES = ((6, 48, 24, 16, 20, 16), (1, 64, 8, 32, 40, 32), (17, 32, 32, 16, 12, 16))


def layouts(seed: int) -> Iterator[tuple[LatentLayout, int, torch.Generator]]:
    """With a block size and a generator each."""
    for number, (heads, rank, nope_dim, rope_dim, value_dim, block_size) in enumerate(_CASES):
        generator = torch.Generator().manual_seed(seed + 10 * number)
        norm = torch.rand(rank, generator=generator) + 0.5
        scale = (nope_dim + rope_dim) ** -0.5
        layout = LatentLayout(heads, rank, nope_dim, rope_dim, value_dim, number != 1, scale, norm, 1e-6)
        yield layout, block_size, generator


def latent_memory(num_blocks: int, block_size: int, width: int, kind: str, generator: torch.Generator) -> PagedKV:
    latents = torch.randn(num_blocks, block_size, 1, width, generator=generator)
    if kind == IN_BYTES:
        scales = [(torch.rand(num_blocks, block_size, 1, generator=generator) + 0.5) / 64 for _ in range(2)]
        latents = (latents * 40).round().clamp(-127, 127).to(torch.int8)
        return PagedKV(latents, latents, *(each.half() for each in scales))
    latents = latents.to(KINDS[kind])
    return PagedKV(latents, latents)


def plain_latents(kv: PagedKV, rank: int) -> PagedKV:
    """The numbers that latents in bytes stand for: behind the latent is a key with a scale of its own."""
    if kv.key_scales is None or kv.value_scales is None:
        return kv
    latent, key = kv.keys.float().split((rank, kv.keys.shape[-1] - rank), -1)
    numbers = torch.cat((latent * kv.value_scales[..., None], key * kv.key_scales[..., None]), -1)
    return PagedKV(numbers, numbers)


def store_inputs(seed: int, kinds: Sequence[str] = tuple(KINDS)) -> Iterator[Stored]:
    """A kind for each layout."""
    shape = [(3, 3), (1, 18), (12, 21)]
    for (layout, block_size, generator), kind in zip(layouts(seed), kinds, strict=True):
        rows, num_blocks = paged_step(shape, block_size, seed)
        x = torch.randn(16, layout.width, generator=generator)
        rotation = _rotation(layout, 32, generator)._replace(positions=_positions(shape))
        # Drawn last, because kinds draw differently.
        yield x, layout, rotation, latent_memory(num_blocks, block_size, layout.width, kind, generator), rows


def stored_with_large_keys(kind: str, seed: int) -> Iterator[Stored]:
    """Keys a hundred times as large as what was normed."""
    for x, layout, *others in store_inputs(seed, [kind] * len(_CASES)):
        x[:, layout.rank :] *= 100
        yield x, layout, *others


def query_inputs(seed: int) -> Iterator[tuple[Tensor, list[PackedWeight], LatentLayout, Rotation]]:
    for layout, _, generator in layouts(seed):
        query = torch.randn(67, layout.num_heads * layout.query_dim, generator=generator)
        weights = _weights(layout.num_heads, layout.rank, layout.nope_dim, generator)
        yield query, weights, layout, _rotation(layout, 67, generator)


def attention_inputs(seed: int) -> Iterator[tuple[Tensor, LatentLayout, PagedKV, DeviceRows]]:
    shapes = [[(1, 33), (1, 40), (1, 600), (1, 1)], [(17, 17), (5, 70), (1, 9)], [(130, 130), (1, 257)]]
    for number, kind in enumerate(KINDS):
        for shape, (layout, block_size, generator) in zip(shapes, layouts(seed + number), strict=True):
            rows, num_blocks = paged_step(shape, block_size, seed)
            query = torch.randn(len(rows.kv_slots), layout.num_heads * layout.width, generator=generator)
            yield query, layout, latent_memory(num_blocks, block_size, layout.width, kind, generator), rows


def value_inputs(seed: int) -> Iterator[tuple[Tensor, list[PackedWeight], LatentLayout]]:
    for layout, _, generator in layouts(seed):
        attended = torch.randn(67, layout.num_heads * layout.rank, generator=generator)
        yield attended, _weights(layout.num_heads, layout.value_dim, layout.rank, generator), layout


def _weights(count: int, outputs: int, inputs: int, generator: torch.Generator) -> list[PackedWeight]:
    return [pack(torch.randn(outputs, inputs, generator=generator)) for _ in range(count)]


def _rotation(layout: LatentLayout, count: int, generator: torch.Generator) -> Rotation:
    angles = torch.rand(count, layout.rope_dim, generator=generator) * 6
    return Rotation(angles.cos(), angles.sin(), torch.randperm(count, generator=generator))


def _positions(shape: list[tuple[int, int]]) -> Tensor:
    return torch.cat([torch.arange(context - queries, context) for queries, context in shape])
