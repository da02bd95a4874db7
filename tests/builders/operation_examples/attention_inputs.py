"""Steps of every kind, made from a seed, on which all versions of attention must agree."""

from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import Tensor

from penstock.kernels.rows import Rows

# (queries, context) of each row, query heads, key heads, head_dim, block size, window, whether heads have sinks
_CASES: tuple[tuple[list[tuple[int, int]], int, int, int, int, int | None, bool], ...] = (
    ([(1, 1)], 4, 4, 16, 16, None, False),
    ([(1, 33), (1, 40), (1, 300), (1, 1)], 6, 2, 24, 32, None, False),
    ([(17, 17), (17, 17), (5, 70), (1, 9), (130, 130)], 7, 1, 8, 16, None, False),
    ([(20, 20), (1, 100), (12, 90), (1, 5)], 4, 2, 16, 32, 11, False),
    ([(17, 17), (20, 300), (1, 9), (1, 300)], 6, 2, 16, 16, None, True),
    ([(20, 20), (1, 100), (12, 90), (1, 5)], 3, 3, 16, 32, 11, True),
)


def paged_rows(shape: list[tuple[int, int]], block_size: int, seed: int) -> tuple[Rows, int]:
    """Rows of the given (queries, context), blocks handed out in random order; and the number of blocks."""
    counts = [-(-context // block_size) for _, context in shape]
    order = torch.randperm(sum(counts), generator=torch.Generator().manual_seed(seed)) + 1
    tables = torch.zeros(len(shape), max(counts), dtype=torch.int32)
    starts, slots, taken = [0], [], 0
    for row, ((queries, context), count) in enumerate(zip(shape, counts, strict=True)):
        tables[row, :count] = order[taken : taken + count]
        taken += count
        positions = torch.arange(context - queries, context)
        slots.append(tables[row].long()[positions // block_size] * block_size + positions % block_size)
        starts.append(starts[-1] + queries)
    contexts = [context for _, context in shape]
    return Rows(starts, contexts, tables, torch.cat(slots)), sum(counts) + 1


def sinks_of(num_heads: int, generator: torch.Generator) -> Tensor:
    """Some that outweigh every key, and some that are next to nothing."""
    return torch.randn(num_heads, generator=generator) * 4


def attention_inputs(seed: int) -> Iterator[tuple[Tensor, Tensor, Tensor, Rows, float, int | None, Tensor | None]]:
    generator = torch.Generator().manual_seed(seed)
    for shape, num_heads, num_kv_heads, head_dim, block_size, window, has_sinks in _CASES:
        rows, num_blocks = paged_rows(shape, block_size, seed)
        memory = torch.randn(2, num_blocks, num_kv_heads, block_size, head_dim, generator=generator)
        query = torch.randn(rows.query_starts[-1], num_heads, head_dim, generator=generator)
        sinks = sinks_of(num_heads, generator) if has_sinks else None
        yield query, memory[0], memory[1], rows, head_dim**-0.5, window, sinks
        for seen_ends in (_whole_contexts(rows), spans_of_three(rows)):
            seeing = replace(rows, seen_ends=seen_ends, plans={})
            yield query, memory[0], memory[1], seeing, head_dim**-0.5, window, sinks


def _whole_contexts(rows: Rows) -> Tensor:
    """Every query sees its row's whole context."""
    return torch.cat([torch.full_like(rows.ends_of(row), n) for row, n in enumerate(rows.context_lengths)])


def spans_of_three(rows: Rows) -> Tensor:
    """Tokens that see the others of a span, cut where their rows end."""
    ends = [(-(-rows.ends_of(row) // 3) * 3).clamp(max=n) for row, n in enumerate(rows.context_lengths)]
    return torch.cat(ends)


def write_inputs(seed: int) -> Iterator[tuple[Tensor, Tensor, Tensor, Tensor, Rows]]:
    generator = torch.Generator().manual_seed(seed)
    for shape, _, num_kv_heads, head_dim, block_size, *_ in _CASES:
        rows, num_blocks = paged_rows(shape, block_size, seed)
        new = torch.randn(2, rows.query_starts[-1], num_kv_heads, head_dim, generator=generator)
        memory = torch.zeros(2, num_blocks, num_kv_heads, block_size, head_dim)
        yield new[0], new[1], memory[0], memory[1], rows
