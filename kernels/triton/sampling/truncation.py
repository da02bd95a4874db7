"""What top_k and top_p leave of a row: the value down to which tokens may come, and of those equal to it the last one.

The value is found by bisection between the largest logit and a value that it is not below. Every pass over the row
(which lies in the second cache by then) tells how much lies above a pivot and which values are next to it, so that the
ends always move to values that occur: as many passes as it takes to tell the candidates apart, about a dozen. Of blocks
without a value above the pivot, which most soon are, a pass reads no more than their chunks' largest values.
One program has a row to itself, and a row's result depends on that row alone.
"""

import triton
import triton.language as tl

# Nothing weighs as little as exp(-64) of the largest and is drawn: exponential times reach from 2^-41 to 18.
_REACH = tl.constexpr(64.0)
_LOWEST = tl.constexpr(-3.4028234663852886e38)
_MOST_CHUNKS = tl.constexpr(128)  # that are compared each with each


@triton.jit
def truncated(
    row, peaks, chunks, largest, top_k, top_p, temperature,
    WIDTH: tl.constexpr, BLOCK: tl.constexpr, CHUNK: tl.constexpr, CHUNKS: tl.constexpr,
):  # fmt: skip
    """(limit, last): tokens above the limit may come, and those equal to it with ids up to `last`.

    `row` points to the logits, the largest of them a finite number, and `peaks` to the largest of each of its chunks;
    with top_k = 0 as many as there are count.
    """
    slope = 1.0 / temperature
    low = tl.maximum(largest - _REACH * temperature, _LOWEST)
    limit = -float("inf")
    equals = 0.0  # how many of those equal to the limit may come
    if top_k > 0:
        floor = tl.maximum(low, _peak_of_rank(peaks, chunks, top_k, CHUNKS))
        count = top_k.to(tl.float32)
        limit, above = _limit(row, peaks, chunks, floor, largest, slope, count, False, WIDTH, BLOCK, CHUNK)
        equals = count - above
    if top_p < 1.0:
        above, _, _ = _above(row, peaks, chunks, limit, largest, slope, True, WIDTH, BLOCK, CHUNK)
        total = above + equals * tl.exp((limit - largest) * slope)
        # Were all tokens below it as likely as this value, they would not hold what top_p leaves out, by a factor of e.
        unlikely = largest + (tl.log((1.0 - top_p) * total / WIDTH) - 1.0) * temperature
        low, needed = tl.maximum(tl.maximum(low, limit), unlikely), top_p * total
        by_share, above = _limit(row, peaks, chunks, low, largest, slope, needed, True, WIDTH, BLOCK, CHUNK)
        share = tl.maximum(tl.ceil((needed - above) / tl.exp((by_share - largest) * slope)), 1.0)
        equals = tl.where(by_share > limit, share, tl.minimum(share, equals))
        limit = by_share
    return limit, _last_of_equals(row, peaks, chunks, limit, equals, WIDTH, BLOCK, CHUNK)


@triton.jit
def _peak_of_rank(peaks, chunks, rank, CHUNKS: tl.constexpr):
    """A value that so many tokens reach, because the largest of so many chunks do; -infinity where none is known."""
    found = -float("inf")
    if CHUNKS <= _MOST_CHUNKS:
        indices = tl.arange(0, CHUNKS)
        of_row = tl.load(peaks + indices, mask=indices < chunks, other=-float("inf"))
        reaching = tl.sum((of_row[None, :] >= of_row[:, None]).to(tl.int32), 1)
        found = tl.max(tl.where(reaching >= rank, of_row, -float("inf")), 0)
    return found


@triton.jit
def _limit(
    row, peaks, chunks, low, largest, slope, needed, BY_WEIGHT: tl.constexpr,
    WIDTH: tl.constexpr, BLOCK: tl.constexpr, CHUNK: tl.constexpr,
):  # fmt: skip
    """The largest value from which on upwards there is as much as needed, and how much there is above it."""
    high, above = largest, 0.0
    while low < high:
        pivot = 0.5 * low + 0.5 * high
        pivot = tl.where((pivot >= low) & (pivot < high), pivot, low)
        held, next_above, next_below = _above(row, peaks, chunks, pivot, largest, slope, BY_WEIGHT, WIDTH, BLOCK, CHUNK)
        is_enough = held >= needed
        above = tl.where(is_enough, above, held)
        # `low` itself need not occur in the row; where nothing lies between, it is the limit.
        high = tl.where(is_enough, high, tl.maximum(next_below, low))
        low = tl.where(is_enough, next_above, low)
    return low, above


@triton.jit
def _above(
    row, peaks, chunks, pivot, largest, slope, BY_WEIGHT: tl.constexpr,
    WIDTH: tl.constexpr, BLOCK: tl.constexpr, CHUNK: tl.constexpr,
):  # fmt: skip
    """What lies above the pivot, counted or weighed; the smallest value above it, and the largest that is not."""
    held = tl.zeros([BLOCK], tl.float32)
    above = tl.full([BLOCK], float("inf"), tl.float32)
    below = tl.full([BLOCK], -float("inf"), tl.float32)
    for start in range(0, WIDTH, BLOCK):
        peak = _peak_of_block(peaks, chunks, start, BLOCK, CHUNK)
        if peak > pivot:
            ids = start + tl.arange(0, BLOCK)
            values = tl.load(row + ids, mask=ids < WIDTH, other=-float("inf"))
            is_above = values > pivot
            if BY_WEIGHT:
                held += tl.where(is_above, tl.exp((values - largest) * slope), 0.0)
            else:
                held += is_above.to(tl.float32)
            above = tl.minimum(above, tl.where(is_above, values, float("inf")))
            below = tl.maximum(below, tl.where(is_above, -float("inf"), values))
        else:
            below = tl.maximum(below, peak)
    return tl.sum(held, 0), tl.min(above, 0), tl.max(below, 0)


@triton.jit
def _last_of_equals(row, peaks, chunks, value, count, WIDTH: tl.constexpr, BLOCK: tl.constexpr, CHUNK: tl.constexpr):
    """The id of the count-th token, in their order, whose logit is this value; of the last one if there are fewer."""
    last = -1
    seen = 0.0
    start = 0
    while (start < WIDTH) & (seen < count):
        if _peak_of_block(peaks, chunks, start, BLOCK, CHUNK) >= value:
            ids = start + tl.arange(0, BLOCK)
            is_equal = (tl.load(row + ids, mask=ids < WIDTH, other=float("nan")) == value).to(tl.int32)
            is_counted = (is_equal > 0) & (seen + tl.cumsum(is_equal, 0) <= count)
            last = tl.maximum(last, tl.max(tl.where(is_counted, ids, -1), 0))
            seen += tl.sum(is_equal, 0)
        start += BLOCK
    return last


@triton.jit
def _peak_of_block(peaks, chunks, start, BLOCK: tl.constexpr, CHUNK: tl.constexpr):
    peak = -float("inf")
    for number in tl.static_range(BLOCK // CHUNK):
        chunk = start // CHUNK + number
        peak = tl.maximum(peak, tl.load(peaks + chunk, mask=chunk < chunks, other=-float("inf")))
    return peak
