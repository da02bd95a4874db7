"""The best token, the most likely ones and log-probabilities of each row, without a sort of the whole vocabulary.

`torch.topk` leaves open which of several equal values it takes, and a sort of a whole vocabulary takes milliseconds;
here only the chunks that can hold a winner are looked at.
"""

import math

import torch
from torch import Tensor

from ..reference.sampling.logprobs import of_tokens, ranked_logprobs
from ..reference.sampling.order import in_chunks, most_likely, scan
from ..sampling import BLOCK, RankedLogprobs, Scan, sorted_by_row

_SMALLEST_VOCABULARY = 4096  # below it plain operations are as fast
_MOST_BY_CHUNK = 256  # beyond, the chunks that can hold a winner are most of them


@scan.implement("torch")
def scan_by_blocks(logits: Tensor) -> Scan:
    blocks = in_chunks(logits, BLOCK, -math.inf)
    maxima = blocks.amax(-1)
    largest, block = maxima.max(-1).values, maxima.argmax(-1)
    within = blocks[torch.arange(len(logits), device=logits.device), block].argmax(-1)
    is_finite = torch.isfinite(largest) & torch.isfinite(logits.amin(-1))
    return Scan(largest, block * BLOCK + within, is_finite, maxima)


@most_likely.implement("torch")
def most_likely_in_torch(values: Tensor, count: int) -> tuple[Tensor, Tensor]:
    if _is_quick_by_chunk(values, count):
        ids = _selected_by_chunk(values, count)
    else:
        ids = torch.from_numpy(sorted_by_row(values.numpy(), count))
    return values.gather(-1, ids), ids


@most_likely.implement("cuda")
def most_likely_on_a_gpu(values: Tensor, count: int) -> tuple[Tensor, Tensor]:
    if not _is_quick_by_chunk(values, count):
        return most_likely.reference(values, count)
    ids = _selected_by_chunk(values, count)
    return values.gather(-1, ids), ids


def _is_quick_by_chunk(values: Tensor, count: int) -> bool:
    return count <= _MOST_BY_CHUNK and values.shape[-1] >= _SMALLEST_VOCABULARY


def _selected_by_chunk(values: Tensor, count: int) -> Tensor:
    """The `count` winners lie in the `count` chunks with the largest maxima.

    Each of these chunks holds a value that comes before every value of any other chunk: a larger one, or an equal one
    with a lower id.
    """
    width = values.shape[-1]
    # A balance: fewer chunks to choose from against fewer candidates in those chosen.
    chunk = min(128, max(8, 1 << round(math.log2(width / count) / 2)))
    chunks = in_chunks(values, chunk, -math.inf)
    # Ascending chunks keep candidates in the order of their ids, so that ties stay right below.
    kept = _selected(chunks.amax(-1), count).sort(-1).values
    candidates = chunks.gather(1, kept[:, :, None].expand(-1, -1, chunk)).flatten(1)
    within = _selected(candidates, count)
    return kept.gather(-1, within // chunk) * chunk + within % chunk


def _selected(values: Tensor, count: int) -> Tensor:
    """Indices of the `count` largest: value and index in one unique integer, which leaves no ties to chance."""
    width = values.shape[-1]
    bits = (values + 0.0).view(torch.int32)  # + 0.0: there is one zero only
    ordered = (bits ^ ((bits >> 31) & 0x7FFFFFFF)).to(torch.int64)
    descending = torch.arange(width - 1, -1, -1, device=values.device)
    keys = (ordered << 32) | descending
    return width - 1 - (keys.topk(count, sorted=True).values & 0xFFFFFFFF)


@ranked_logprobs.implement("torch")
def ranked_logprobs_in_torch(logits: Tensor, chosen: Tensor, num_top: int) -> RankedLogprobs:
    top = most_likely(logits, num_top)[1] if num_top else chosen.new_empty(len(chosen), 0)
    return of_tokens(logits, chosen, top)
