"""Attention's native kernels on one layer's memory, for requests that a test makes up, and their formula in float64."""

from ctypes import addressof
from dataclasses import dataclass, field

import numpy
import torch
from builders.quantized_parts import draws
from torch import Tensor

from penstock.kernels.cpu.calls.attention import PlanMemory, num_part_floats
from penstock.kernels.cpu.library import Library
from penstock.kernels.cpu.structs import ROTATION, Attention, Quantized, Step, StoreHeads
from penstock.kernels.reference.attention import softmax_with
from penstock.kernels.torch.arrays import tensor_of
from penstock.worker.kv.kv_cache import KVShape, NativeKVCache


@dataclass(frozen=True)
class Shape:
    kind: str = "fp32"
    query_heads: int = 4
    heads: int = 2
    head_dim: int = 32
    block_size: int = 16
    window: int | None = None
    has_sinks: bool = False
    softcap: float | None = None
    is_gated: bool = False

    @property
    def queries(self) -> slice:
        """The queries' places among the projected heads; behind each query may stand a gate."""
        return slice(0, self.query_heads * (1 + self.is_gated), 1 + self.is_gated)

    @property
    def query_step(self) -> int:
        return self.head_dim * (1 + self.is_gated)

    @property
    def sinks(self) -> Tensor | None:
        """Some that outweigh every key, and some that are next to nothing."""
        return draws(self.query_heads, seed=9) * 4 if self.has_sinks else None


@dataclass
class Row:
    """One request's share of a step: its blocks, its first token's position, and its tokens' projected heads."""

    table: list[int]
    start: int
    heads: Tensor  # [tokens, query heads and their gates + 2 × key heads, head_dim]

    @property
    def end(self) -> int:
        return self.start + len(self.heads)


@dataclass
class Machine:
    """One layer's memory, full of NaN to begin with, and the two kernels that work on it."""

    library: Library
    shape: Shape
    num_blocks: int
    max_parts: int = 64
    kv: NativeKVCache = field(init=False)

    def __post_init__(self) -> None:
        shape = KVShape(1, self.shape.heads, self.shape.head_dim)
        self.kv = NativeKVCache.allocate(shape, self.num_blocks, self.shape.block_size, self.shape.kind)
        for part in self.kv.parts:
            part.view(numpy.uint8).fill(0xFF)

    def step(self, rows: list[Row], quantized: Quantized | None = None) -> Tensor:
        """Stores and attends; [tokens, query heads × head_dim]."""
        shape, heads = self.shape, torch.cat([row.heads for row in rows]).contiguous()
        step, kept = self._step(rows)
        self.library.call(
            "penstock_store_heads",
            StoreHeads(addressof(step), heads.data_ptr(), shape.query_heads, shape.query_step, 2, None, None, 0, 0, 0,
                       0, 1e-6, None, ROTATION["none"], shape.head_dim, self.kv.of_layer(0)),
        )  # fmt: skip
        plan = PlanMemory.allocate(
            addressof(step), len(heads), len(rows), shape.block_size, shape.heads, shape.query_heads, shape.window,
            self.max_parts,
        )  # fmt: skip
        self.library.call("penstock_plan_attention", plan.arguments)
        parts = torch.full((num_part_floats(shape.query_heads, shape.head_dim, self.max_parts) + 1,), torch.nan)
        sinks = shape.sinks
        output = torch.full((len(heads), shape.query_heads * shape.head_dim), torch.nan)
        arguments = Attention(
            plan.address, self.kv.of_layer(0), heads.data_ptr(), heads[0].numel(), shape.query_step,
            shape.head_dim**-0.5, shape.softcap or 0, None if sinks is None else sinks.data_ptr(), parts.data_ptr(),
            output.data_ptr(), quantized or Quantized(),
        )  # fmt: skip
        self.library.call("penstock_attention", arguments)
        self.plan, self.kept = plan, kept
        return output

    def _step(self, rows: list[Row]) -> tuple[Step, list[Tensor]]:
        size = self.shape.block_size
        tables = torch.zeros(len(rows), max(len(row.table) for row in rows), dtype=torch.int32)
        starts, positions, slots = [0], [], []
        for i, row in enumerate(rows):
            tables[i, : len(row.table)] = torch.tensor(row.table)
            starts.append(starts[-1] + len(row.heads))
            positions += range(row.start, row.end)
            slots += [row.table[position // size] * size + position % size for position in range(row.start, row.end)]
        kept = [
            torch.tensor(positions), torch.tensor(slots),
            torch.tensor(starts, dtype=torch.int32), torch.tensor([row.end for row in rows], dtype=torch.int32),
            tables,
        ]  # fmt: skip
        names = ("positions", "kv_slots", "query_starts", "context_lengths", "block_tables")
        step = Step(num_tokens=starts[-1], num_rows=len(rows), table_width=tables.shape[1])
        for name, tensor in zip(names, kept, strict=True):
            setattr(step, name, tensor.data_ptr())
        return step, kept

    def expected(self, row: Row) -> Tensor:
        """The formula in float64, on what the memory holds for this row."""
        shape = self.shape
        keys, values = (
            tensor_of(stored).transpose(1, 2).flatten(0, 1)[: row.end].double()
            for stored in self.kv.stored(0, numpy.array(row.table))
        )
        shared = shape.query_heads // shape.heads
        query = row.heads[:, shape.queries].double()
        scores = torch.einsum("thd,khd->htk", query, keys.repeat_interleave(shared, 1)) * shape.head_dim**-0.5
        if shape.softcap:
            scores = (scores / shape.softcap).tanh() * shape.softcap
        own, seen = torch.arange(row.start, row.end)[:, None], torch.arange(row.end)[None]
        hidden = (seen > own) | (seen <= own - (shape.window or row.end + 1))
        weights = softmax_with(shape.sinks, scores.masked_fill_(hidden, -torch.inf))
        return torch.einsum("htk,khd->thd", weights, values.repeat_interleave(shared, 1)).flatten(1)


def heads_of(shape: Shape, tokens: int, seed: int) -> Tensor:
    return draws(tokens, shape.queries.stop + 2 * shape.heads, shape.head_dim, seed=seed) * 1.5


def handed_out(contexts: list[int], block_size: int, seed: int = 0) -> tuple[list[list[int]], int]:
    """Block tables in random order, and how many blocks there are; block 0 belongs to nobody."""
    counts = [-(-context // block_size) for context in contexts]
    order = (torch.randperm(sum(counts), generator=torch.Generator().manual_seed(seed)) + 1).tolist()
    return [[order.pop() for _ in range(count)] for count in counts], sum(counts) + 1


def pieces_of(heads: Tensor, table: list[int], cuts: list[int]) -> list[Row]:
    """A request's tokens as one row after another, cut at these positions."""
    borders = [0, *sorted({cut for cut in cuts if 0 < cut < len(heads)}), len(heads)]
    return [Row(table, a, heads[a:b]) for a, b in zip(borders, borders[1:], strict=False)]


def assert_near(found: Tensor, expected: Tensor, tolerance: float) -> None:
    error = (found.double() - expected).norm() / expected.norm()
    assert error <= tolerance, f"off by {error:.2e} of the output's norm, {tolerance:.0e} allowed"
