"""How long a cached block can be found after its last use (the option `prefix_cache_ttl`).

A block is used when a request finds it, when one publishes the same content, and as long as a sequence holds it, which
reads it in every step: its time begins when the last one lets go of it. Nothing is done when the time is over. Whoever
looks for the block next doesn't find it, so this costs a comparison for each block that is looked for. Both tiers keep
the time of each block's last use, and it goes with the block from one to the other: being evicted is no use.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass

Clock = Callable[[], float]  # seconds since any moment, as of `time.monotonic`


@dataclass(frozen=True, slots=True)
class TimeToLive:
    seconds: float
    clock: Clock = time.monotonic

    def has_expired(self, last_use: float) -> bool:
        return self.clock() - last_use >= self.seconds
