"""Where in the KV memory a step reads and writes, as row numbers of the memory seen as a matrix."""

import torch
from torch import Tensor


def on_device(indices: Tensor, device: torch.device) -> Tensor:
    """Indices made on the host; a device is not waited for."""
    return indices.to(device, non_blocking=True)


def slot_rows(kv_slots: Tensor, num_heads: int, block_size: int) -> Tensor:
    """[T × heads]: rows of the memory seen as [num_blocks × heads × block_size, head_dim]."""
    blocks, offsets = kv_slots // block_size, kv_slots % block_size
    heads = torch.arange(num_heads, device=kv_slots.device)
    return ((blocks[:, None] * num_heads + heads) * block_size + offsets[:, None]).view(-1)


def block_rows(tables: Tensor, start_blocks: Tensor, num_blocks: int, num_heads: int) -> Tensor:
    """[B × heads × num_blocks]: rows of the memory seen as [num_blocks × heads, block_size × head_dim].

    Row b reads its table's blocks from start_blocks[b] on; beyond the table's end it reads the last one again.
    """
    columns = start_blocks[:, None] + torch.arange(num_blocks, device=tables.device)
    blocks = tables.long().gather(1, columns.clamp_(max=tables.shape[1] - 1))
    heads = torch.arange(num_heads, device=tables.device)
    return (blocks[:, None, :] * num_heads + heads[:, None]).view(-1)


def kept_rows(is_kept: Tensor, stride: int, num_heads: int) -> Tensor:
    """Rows of a gathered [B × heads × stride, head_dim], for every head, where is_kept[b, slot]."""
    row, slot = is_kept.nonzero(as_tuple=True)
    heads = torch.arange(num_heads, device=is_kept.device)
    return ((row[:, None] * num_heads + heads) * stride + slot[:, None]).view(-1)
