"""Bounds the time after its last use in which a cached block can be found (the option `prefix_cache_ttl`).

A block is used when a request finds it, when one publishes the same content, and as long as a sequence holds it: its
time begins when the last sequence releases it. Nothing happens when the time is over. The next look-up doesn't find the
block, so this costs one comparison per look-up. Both tiers keep the time of each block's last use, which moves with the
block: being evicted is not a use.
"""

import time
from collections.abc import Callable

from ...records import dataclass

Clock = Callable[[], float]  # seconds since some fixed moment, like `time.monotonic`


@dataclass(frozen=True, slots=True)
class TimeToLive:
    seconds: float
    clock: Clock = time.monotonic

    def has_expired(self, last_use: float) -> bool:
        return self.clock() - last_use >= self.seconds
