"""How each row of a step wants its token chosen, in columns that a device holds and no host looks into.

So the same launches serve whatever rows come: a captured step is replayed with other numbers in the same tensors.
Knows nothing of logits, slots or requests.
"""

from dataclasses import dataclass
from typing import NamedTuple

from torch import Tensor


@dataclass(frozen=True, eq=False)
class DeviceDraws:
    """The columns of `reference.choice.Draws`; one value for each row of logits."""

    kinds: Tensor  # int32 [rows]: BEST, OF_TOP_K, OF_TOP_P or OF_ALL
    reals: Tensor  # float32 [3, rows]: temperature, top_p, min_p
    wholes: Tensor  # int64 [3, rows]: top_k, seed, sample
    positions: Tensor  # int64 [rows]: of the token to choose


class Chosen(NamedTuple):
    token_ids: Tensor  # int64 [rows]; 0 where a row has a fault
    faults: Tensor  # int64 [rows]: NOT_FINITE, NOTHING_LEFT, or 0


NOT_FINITE = 1  # a logit is NaN or +infinity
NOTHING_LEFT = 2  # every logit is -infinity
