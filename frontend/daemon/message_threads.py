"""Threads that all connections of the daemon share in turns: to measure what came, and to pack what is told.

Knows nothing of what messages say.
"""

import math
from dataclasses import dataclass, field

from ..session.threads import Threads


@dataclass(slots=True)
class MessageThreads:
    """What was sent already, and what was computed, waits as long as it must."""

    measuring: Threads = field(default_factory=lambda: Threads("Messages", 2, patience=math.inf))
    packing: Threads = field(default_factory=lambda: Threads("Answers", 2, patience=math.inf))
