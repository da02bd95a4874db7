"""Examples for kernels/reference/attention.py and paged_attention.py, made from a seed; and steps over such memory.

Memory is NaN, or integers with scales that are, wherever nothing is said to be written.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import product

import torch
from torch import Tensor

from penstock.kernels.operands import HeadLayout
from penstock.kernels.paged import KV_DTYPES, DeviceRows, PagedKV, PromptRows, Rotation
from penstock.kernels.reference.attention import ends_of
from penstock.kernels.reference.paged_attention import in_8_bits
from penstock.kernels.rows import HostRows
from penstock.kernels.torch.arrays import torch_dtype

QUERY_DTYPES = {"fp32": torch.float32, "fp16": torch.float16}  # of queries; those of other formats are bfloat16
# (queries, context) of each row, query heads, key heads, head_dim, block size, window, whether heads have sinks
_PLAIN_CASES: tuple[tuple[list[tuple[int, int]], int, int, int, int, int | None, bool], ...] = (
    ([(1, 1)], 4, 4, 16, 16, None, False),
    ([(1, 33), (1, 40), (1, 300), (1, 1)], 6, 2, 24, 32, None, False),
    ([(17, 17), (17, 17), (5, 70), (1, 9), (130, 130)], 7, 1, 8, 16, None, False),
    ([(20, 20), (1, 100), (12, 90), (1, 5)], 4, 2, 16, 32, 11, False),
    ([(17, 17), (20, 300), (1, 9), (1, 300)], 6, 2, 16, 16, None, True),
    ([(20, 20), (1, 100), (12, 90), (1, 5)], 3, 3, 16, 32, 11, True),
)


def paged_rows(shape: list[tuple[int, int]], block_size: int, seed: int) -> tuple[HostRows, int]:
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
    return HostRows(starts, contexts, tables, torch.cat(slots)), sum(counts) + 1


def sinks_of(num_heads: int, generator: torch.Generator) -> Tensor:
    """Some that outweigh every key, and some that are next to nothing."""
    return torch.randn(num_heads, generator=generator) * 4


def attention_inputs(seed: int) -> Iterator[tuple[Tensor, Tensor, Tensor, HostRows, float, int | None, Tensor | None]]:
    generator = torch.Generator().manual_seed(seed)
    for shape, num_heads, num_kv_heads, head_dim, block_size, window, has_sinks in _PLAIN_CASES:
        rows, num_blocks = paged_rows(shape, block_size, seed)
        memory = torch.randn(2, num_blocks, num_kv_heads, block_size, head_dim, generator=generator)
        query = torch.randn(rows.query_starts[-1], num_heads, head_dim, generator=generator)
        sinks = sinks_of(num_heads, generator) if has_sinks else None
        yield query, memory[0], memory[1], rows, head_dim**-0.5, window, sinks
        for seen_ends in (_whole_contexts(rows), spans_of_three(rows)):
            seeing = replace(rows, seen_ends=seen_ends, plans={})
            yield query, memory[0], memory[1], seeing, head_dim**-0.5, window, sinks


def _whole_contexts(rows: HostRows) -> Tensor:
    """Every query sees its row's whole context."""
    return torch.cat([torch.full_like(ends_of(rows, row), n) for row, n in enumerate(rows.context_lengths)])


def spans_of_three(rows: HostRows) -> Tensor:
    """Tokens that see the others of a span, cut where their rows end."""
    ends = [(-(-ends_of(rows, row) // 3) * 3).clamp(max=n) for row, n in enumerate(rows.context_lengths)]
    return torch.cat(ends)


def write_inputs(seed: int) -> Iterator[tuple[Tensor, Tensor, Tensor, Tensor, HostRows]]:
    generator = torch.Generator().manual_seed(seed)
    for shape, _, num_kv_heads, head_dim, block_size, *_ in _PLAIN_CASES:
        rows, num_blocks = paged_rows(shape, block_size, seed)
        new = torch.randn(2, rows.query_starts[-1], num_kv_heads, head_dim, generator=generator)
        memory = torch.zeros(2, num_blocks, num_kv_heads, block_size, head_dim)
        yield new[0], new[1], memory[0], memory[1], rows


def paged_step(
    shape: list[tuple[int, int]], block_size: int, seed: int, has_spans: bool = False
) -> tuple[DeviceRows, int]:
    """Rows of the given (queries, context), blocks handed out in random order; and the number of blocks."""
    rows, num_blocks = paged_rows(shape, block_size, seed)
    starts, contexts = (torch.tensor(counts, dtype=torch.int32) for counts in (rows.query_starts, rows.context_lengths))
    most = max(queries for queries, _ in shape), max(context for _, context in shape)
    ends = spans_of_three(rows) if has_spans else None
    return DeviceRows(starts, contexts, rows.block_tables, rows.kv_slots, *most, seen_ends=ends), num_blocks


def empty_memory(kind: str, num_blocks: int, num_heads: int, block_size: int, head_dim: int) -> PagedKV:
    """All NaN, or integers with scales that are."""
    heads = (num_blocks, block_size, num_heads)
    if kind != "int8":
        return PagedKV(*torch.full((2, *heads, head_dim), torch.nan, dtype=torch_dtype(KV_DTYPES[kind])))
    numbers = torch.full((2, *heads, head_dim), -1, dtype=torch.int8)
    return PagedKV(*numbers, *torch.full((2, *heads), torch.nan, dtype=torch.float16))


def memory_of(keys: Tensor, values: Tensor, kind: str) -> PagedKV:
    """From float32 [blocks, block_size, heads, head_dim] each."""
    if kind != "int8":
        return PagedKV(*(each.to(torch_dtype(KV_DTYPES[kind])) for each in (keys, values)))
    (keys, key_scales), (values, value_scales) = in_8_bits(keys), in_8_bits(values)
    return PagedKV(keys, values, key_scales, value_scales)


# (queries, context) of each row, query heads, key heads, head_dim, block size, window
_PAGED_CASES: tuple[tuple[list[tuple[int, int]], int, int, int, int, int | None], ...] = (
    ([(1, 33), (1, 40), (1, 300), (1, 1)], 7, 1, 48, 32, None),
    ([(17, 17), (5, 70), (1, 9)], 4, 2, 32, 16, 11),
)


def paged_inputs(seed: int) -> Iterator[tuple[Tensor, PagedKV, DeviceRows, float, int | None, Tensor | None]]:
    generator = torch.Generator().manual_seed(seed)
    for number, (kind, has_sinks, has_spans) in enumerate(product(KV_DTYPES, (False, True), (False, True))):
        shape, num_heads, num_kv_heads, head_dim, block_size, window = _PAGED_CASES[
            (number // 4 + seed) % len(_PAGED_CASES)
        ]
        rows, num_blocks = paged_step(shape, block_size, seed, has_spans)
        keys, values = torch.randn(2, num_blocks, block_size, num_kv_heads, head_dim, generator=generator)
        query = torch.randn(len(rows.kv_slots), num_heads, head_dim, generator=generator)
        sinks = sinks_of(num_heads, generator) if has_sinks else None
        yield (
            query.to(QUERY_DTYPES.get(kind, torch.bfloat16)),
            memory_of(keys, values, kind),
            rows,
            head_dim**-0.5,
            window,
            sinks,
        )


def store_inputs(seed: int) -> Iterator[tuple[Tensor, HeadLayout, Rotation | None, PagedKV, DeviceRows]]:
    generator = torch.Generator().manual_seed(seed)
    shape = [(3, 3), (1, 18), (12, 21)]
    for number, kind in enumerate(KV_DTYPES):
        dtype = (torch.float32, torch.float16, torch.bfloat16)[(number + seed) % 3]
        head_dim, block_size = (24, 16) if number % 2 else (48, 32)
        rows, num_blocks = paged_step(shape, block_size, seed)
        norms = tuple(torch.rand(2, head_dim, generator=generator) + 0.5) if number % 2 else None
        part = 16 if number % 4 == 3 else head_dim
        is_gated = number % 3 == seed % 3
        form = HeadLayout(4, 2, head_dim, number < 3, norms, 1e-6, None, part, is_gated)  # type: ignore[arg-type]
        heads = torch.randn(16, form.num_projected * head_dim, generator=generator).to(dtype)
        angles = torch.rand(32, head_dim, generator=generator) * 6
        cos, sin = angles.cos(), angles.sin()
        cos[:, part:], sin[:, part:] = 1, 0
        positions = torch.cat([torch.arange(context - queries, context) for queries, context in shape])
        kv = empty_memory(kind, num_blocks, 2, block_size, head_dim)
        scales = torch.rand(32, generator=generator) + 1 if kind in ("fp32", "int8") else None
        yield heads, form, Rotation(cos, sin, positions, scales), kv, rows
        if kind == "bf16":
            yield heads, form, None, empty_memory(kind, num_blocks, 2, block_size, head_dim), rows


@dataclass(frozen=True)
class Form:
    kind: str = "bf16"
    query_heads: int = 4
    heads: int = 2
    head_dim: int = 64
    block_size: int = 16
    window: int | None = None
    has_sinks: bool = False

    @property
    def sinks(self) -> Tensor | None:
        return sinks_of(self.query_heads, torch.Generator().manual_seed(2)) if self.has_sinks else None


@dataclass
class Requests:
    """Requests of given lengths with all their queries, keys and values; spans are (request, first, end)."""

    form: Form
    lengths: list[int]
    tables: list[list[int]] = field(init=False)
    queries: list[Tensor] = field(init=False)

    def __post_init__(self) -> None:
        generator = torch.Generator().manual_seed(sum(self.lengths))
        counts = [-(-length // self.form.block_size) for length in self.lengths]
        order = (torch.randperm(sum(counts), generator=generator) + 1).tolist()
        self.tables = [[order.pop() for _ in range(count)] for count in counts]
        dtype = QUERY_DTYPES.get(self.form.kind, torch.bfloat16)
        shape = self.form.query_heads, self.form.head_dim
        self.queries = [torch.randn(length, *shape, generator=generator).to(dtype) for length in self.lengths]

    def slots(self, request: int, first: int, end: int) -> list[int]:
        size = self.form.block_size
        return [self.tables[request][position // size] * size + position % size for position in range(first, end)]

    def memory(self, written: list[int] | None = None) -> PagedKV:
        """With so many tokens of each request, or all. What a token's key and value are depends on its slot."""
        size = self.form.block_size
        shape = (1 + sum(map(len, self.tables)), size, self.form.heads, self.form.head_dim)
        plain = torch.randn(2, *shape, generator=torch.Generator().manual_seed(1)) * 1.5
        is_written = torch.zeros(shape[0] * size, dtype=torch.bool)
        for request, count in enumerate(written or self.lengths):
            is_written[self.slots(request, 0, count)] = True
        keys, values = plain.where(is_written.view(-1, size, 1, 1), torch.nan)
        return memory_of(keys, values, self.form.kind)

    def step(self, spans: list[tuple[int, int, int]], spare_rows: int = 0, spare_tokens: int = 0):
        """The queries and rows of a step; room to spare is of rows without a context and tokens without a slot."""
        starts, contexts = [0], [end for _, _, end in spans] + [0] * spare_rows
        tables = torch.zeros(len(contexts), max(map(len, self.tables)), dtype=torch.int32)
        for row, (request, first, end) in enumerate(spans):
            tables[row, : len(self.tables[request])] = torch.tensor(self.tables[request])
            starts.append(starts[-1] + end - first)
        slots = [slot for span in spans for slot in self.slots(*span)] + [-1] * spare_tokens
        query = torch.cat([self.queries[request][first:end] for request, first, end in spans])
        query = torch.cat((query, query.new_full((spare_tokens, *query.shape[1:]), torch.nan)))
        starts += [starts[-1]] * spare_rows
        lists = (torch.tensor(numbers, dtype=torch.int32) for numbers in (starts, contexts))
        most = max(end - first for _, first, end in spans), max(contexts)
        firsts = [row for row, (_, first, end) in enumerate(spans) if end - first > 1]
        prompts = PromptRows(min(firsts, default=len(contexts)), len(firsts))
        return query, DeviceRows(*lists, tables, torch.tensor(slots), *most, prompts=prompts)
