"""A step's inputs in one launch.

Some programs have a block of tokens each, whose rows they find by bisection; the others copy a piece of a block table.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from ..reference.step_inputs import StepInputs, step_inputs

_BLOCK = 512  # tokens, or columns in a block table, of a program
_STEPS = 16  # of a bisection, whatever the step: as many as it takes among the most rows
_MOST_ROWS = (1 << _STEPS) - 1
# Counts that differ from step to step, or from a warm-up to what follows: the kernel is not compiled anew for one.
_COUNTS = ["rows", "max_length", "max_blocks", "num_tokens", "width", "token_programs", "table_programs"]


@triton.jit(do_not_specialize=_COUNTS)
def _prepare(
    slots, starts, query_starts, rows, histories, max_length, tables, max_blocks, block_size, num_tokens, width,
    token_ids, positions, kv_slots, context_lengths, block_tables,
    token_programs, table_programs, STEPS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    program = tl.program_id(0)
    if program < token_programs:
        _prepare_tokens(
            program * BLOCK, slots, starts, query_starts, rows, histories, max_length, tables, max_blocks, block_size,
            num_tokens, token_ids, positions, kv_slots, STEPS, BLOCK,
        )  # fmt: skip
    else:
        row = (program - token_programs) // table_programs
        offset = (program - token_programs) % table_programs * BLOCK
        slot = tl.load(slots + row).to(tl.int64)
        end = tl.load(starts + row) + tl.load(query_starts + row + 1) - tl.load(query_starts + row)
        tl.store(context_lengths + row, tl.where(slot >= 0, end, 0), mask=offset == 0)
        columns = offset + tl.arange(0, BLOCK)
        blocks = tl.load(tables + slot * max_blocks + columns, mask=(columns < width) & (slot >= 0), other=0)
        tl.store(block_tables + row.to(tl.int64) * width + columns, blocks, mask=columns < width)


@triton.jit
def _prepare_tokens(
    first_token, slots, starts, query_starts, rows, histories, max_length, tables, max_blocks, block_size,
    num_tokens, token_ids, positions, kv_slots, STEPS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    token = first_token + tl.arange(0, BLOCK)
    is_token = token < num_tokens
    row = _row_of(token, query_starts, rows, STEPS, BLOCK)
    slot = tl.load(slots + row, mask=row < rows, other=-1).to(tl.int64)
    is_there = is_token & (slot >= 0)
    offset = token - tl.load(query_starts + row, mask=is_there, other=0)
    position = tl.where(is_there, tl.load(starts + row, mask=is_there, other=0) + offset, 0)
    block = tl.load(tables + slot * max_blocks + position // block_size, mask=is_there, other=0).to(tl.int64)
    tl.store(token_ids + token, tl.load(histories + slot * max_length + position, mask=is_there, other=0), is_token)
    tl.store(positions + token, position, mask=is_token)
    tl.store(kv_slots + token, tl.where(is_there, block * block_size + position % block_size, -1), mask=is_token)


@triton.jit
def _row_of(token, query_starts, rows, STEPS: tl.constexpr, BLOCK: tl.constexpr):
    """The first row that ends behind the token; as many as there are rows, if none does."""
    low = tl.zeros([BLOCK], tl.int32)
    high = tl.full([BLOCK], 0, tl.int32) + rows
    for _ in range(STEPS):
        middle = (low + high) // 2
        is_open = low < high
        is_behind = tl.load(query_starts + middle + 1, mask=is_open, other=0) > token
        low = tl.where(is_open & ~is_behind, middle + 1, low)
        high = tl.where(is_open & is_behind, middle, high)
    return low


@step_inputs.implement("triton")
def prepare(
    slots: Tensor,
    starts: Tensor,
    query_starts: Tensor,
    histories: Tensor,
    tables: Tensor,
    block_size: int,
    num_tokens: int,
    width: int,
) -> StepInputs:
    rows, device = len(slots), slots.device
    if rows > _MOST_ROWS:
        raise ValueError(f"A step of {rows:,} rows is more than the {_MOST_ROWS:,} that are told apart.")
    aligned = num_tokens + num_tokens % 2  # to 16 bytes, whatever the step: kernels are compiled for that
    token_ids, positions, kv_slots = torch.empty(3, aligned, dtype=torch.int64, device=device)[:, :num_tokens]
    inputs = StepInputs(
        token_ids,
        positions,
        kv_slots,
        torch.empty(rows, dtype=torch.int32, device=device),
        torch.empty(rows, width, dtype=torch.int32, device=device),
    )
    token_programs, table_programs = triton.cdiv(num_tokens, _BLOCK), triton.cdiv(width, _BLOCK)
    _prepare[token_programs + rows * table_programs,](
        slots, starts, query_starts, rows, histories, histories.stride(0), tables, tables.stride(0), block_size,
        num_tokens, width, *inputs, token_programs, table_programs, STEPS=_STEPS, BLOCK=_BLOCK,
    )  # fmt: skip
    return inputs
