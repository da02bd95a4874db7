"""From the rows of a step to the `Batch` that a forward pass reads.

All rows at once: counts come from the host, tokens and block ids are gathered on the device from the slot table.
Knows nothing of plans, parameters or models.
"""

from collections.abc import Callable

import numpy

from ...kernels import Adapted
from ..device import on_device
from ..kv.kv_cache import AnyKVCache
from .batch import Batch
from .slots import SlotTable, StepRows

MakeBatch = Callable[[SlotTable, StepRows, AnyKVCache], Batch]


def step_batch(table: SlotTable, rows: StepRows, kv: AnyKVCache) -> Batch:
    query_starts = numpy.concatenate(([0], numpy.cumsum(rows.num_tokens)))
    row_of_token = numpy.repeat(numpy.arange(len(rows)), rows.num_tokens)
    positions = numpy.arange(query_starts[-1]) - query_starts[row_of_token] + rows.starts[row_of_token]

    slots = on_device(rows.slots[row_of_token], table.device)
    device_positions = on_device(positions, table.device)
    blocks = table.tables[slots, on_device(positions // table.block_size, table.device)]
    rotation_starts = table.rotation_starts[rows.slots]
    max_blocks = -(-int(rows.ends.max()) // table.block_size)
    return Batch(
        token_ids=table.histories[slots, device_positions].long(),
        positions=device_positions,
        query_starts=query_starts.tolist(),
        context_lengths=rows.ends.tolist(),
        block_tables=table.tables[on_device(rows.slots, table.device), :max_blocks],
        kv_slots=blocks.long() * table.block_size + on_device(positions % table.block_size, table.device),
        logit_rows=on_device(query_starts[1:][rows.wants_logits] - 1, table.device),
        kv=kv,
        rotation_starts=rotation_starts.tolist() if rotation_starts.any() else None,
        adapted=Adapted.of(table.adapters[rows.slots], rows.num_tokens, table.device),
    )
