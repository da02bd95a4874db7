"""Operations on logits: mask, penalize, find the best token, order the most likely, sample one, give log-probabilities.

Importing this file registers their native versions too.
"""

from .cpu import sampling as _native_sampling  # noqa: F401  registers
from .reference.sampling.adjust import Histories, apply_mask, penalize_generated, penalize_repetition
from .reference.sampling.choice import BEST, OF_ALL, OF_TOP_K, OF_TOP_P, REALS, WHOLES, Columns, Draws, choose
from .reference.sampling.logprobs import RankedLogprobs, ranked_logprobs
from .reference.sampling.order import Scan, most_likely, scan
from .reference.sampling.race import NO_ROW, NOT_FINITE, NOTHING_LEFT, DeviceDraws, DeviceMask, choose_on_device

__all__ = [
    "BEST",
    "NOTHING_LEFT",
    "NOT_FINITE",
    "NO_ROW",
    "OF_ALL",
    "OF_TOP_K",
    "OF_TOP_P",
    "REALS",
    "WHOLES",
    "Columns",
    "DeviceDraws",
    "DeviceMask",
    "Draws",
    "Histories",
    "RankedLogprobs",
    "Scan",
    "apply_mask",
    "choose",
    "choose_on_device",
    "most_likely",
    "penalize_generated",
    "penalize_repetition",
    "ranked_logprobs",
    "scan",
]
