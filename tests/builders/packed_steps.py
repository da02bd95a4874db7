"""Requests whose keys and values lie in blocks, and steps of any shape over them, for tests of GPU kernels.

Memory is NaN, or integers with scales that are, wherever nothing is said to be written.
"""

from dataclasses import dataclass, field

import torch
from builders.operation_examples.paged_inputs import memory_of
from torch import Tensor

from penstock.kernels.paged import DeviceRows, PagedKV, PromptRows

_DTYPES = {"fp32": torch.float32, "fp16": torch.float16}  # of queries; those of other formats are bfloat16


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
        """float32 [query heads]: some that outweigh every key, and some that are next to nothing."""
        return torch.randn(self.query_heads, generator=torch.Generator().manual_seed(2)) * 4 if self.has_sinks else None


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
        dtype = _DTYPES.get(self.form.kind, torch.bfloat16)
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
