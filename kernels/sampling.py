"""Operations on logits: mask, penalize, find the best token, order the most likely, sample one, give log-probabilities.

Importing this file registers their native versions too.
"""

from .cpu import adjust as _native_adjust  # noqa: F401  registers
from .cpu import sampling as _native_sampling  # noqa: F401  registers
from .reference.adjust import Histories, apply_mask, penalize_generated, penalize_repetition
from .reference.choice import BEST, OF_ALL, OF_TOP_K, OF_TOP_P, Draws, choose
from .reference.logprobs import RankedLogprobs, ranked_logprobs
from .reference.order import Scan, most_likely, scan
from .reference.race import choose_on_device
from .sampling_columns import NO_ROW, NOT_FINITE, NOTHING_LEFT, DeviceDraws, DeviceMask

__all__ = [
    "BEST",
    "NOTHING_LEFT",
    "NOT_FINITE",
    "NO_ROW",
    "OF_ALL",
    "OF_TOP_K",
    "OF_TOP_P",
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
