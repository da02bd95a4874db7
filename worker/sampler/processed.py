"""The logits of a row as its token is drawn from them, for `logprobs_mode="processed_…"`.

They are what is left after masks, adjustments, temperature, top_k, top_p and min_p; tokens that can't be drawn have -∞.
The formulas are those of `kernels/reference/sampling/choice.py`, in numpy on the host: only requests that ask for
log-probabilities in these modes pay for them, and on a GPU such a step waits for its token.
"""

import numpy

from ...kernels.arrays import DeviceArray
from ...kernels.sampling import BEST, REALS, WHOLES, Sampling, sorted_by_row
from .adjustments import Mask, adjust, allow
from .parameters import SamplingRows

_TOP_K = WHOLES.index("top_k")


def process(
    ops: Sampling, logits: DeviceArray, rows: SamplingRows, mask: Mask | None, chosen: DeviceArray
) -> DeviceArray:
    """Change copies of the rows' logits, [rows, vocabulary] float32, in place; `chosen` are the tokens drawn."""
    if mask is not None and len(mask.rows):
        allow(ops, logits, rows, mask)
    if rows.wants.any():
        adjust(ops, logits, rows)
    table, device = rows.parameters, rows.parameters.device
    for index, slot in enumerate(rows.slots.tolist()):
        if table.kinds[slot] == BEST:
            continue
        temperature, top_p, min_p = table.reals[slot, : len(REALS)].astype(numpy.float64)
        row = device.host_copy(logits[index])()
        kept = _drawable(row, temperature, top_p, min_p, int(table.wholes[slot, _TOP_K]))
        kept[int(chosen[index])] = True  # the draw's own sums may round the other way at the edge
        logits[index] = device.put(numpy.where(kept, row / temperature, -numpy.inf).astype(numpy.float32))
    return logits


def _drawable(row: numpy.ndarray, temperature: float, top_p: float, min_p: float, top_k: int) -> numpy.ndarray:
    """Which tokens top_k, top_p and min_p keep."""
    kept = numpy.ones(len(row), bool)
    is_short = 0 < top_k < len(row)
    if not is_short and top_p >= 1 and min_p <= 0:
        return kept
    order = sorted_by_row(row[None], top_k if is_short else len(row))[0]
    with numpy.errstate(invalid="ignore"):  # a row without any token, which fails
        weights = numpy.exp((row[order].astype(numpy.float64) - row[order[0]]) / temperature)
    among = weights >= min_p
    if top_p < 1:
        before = numpy.cumsum(weights) - weights
        among &= before < top_p * weights.sum()
    kept[:] = False
    kept[order[among]] = True
    return kept
