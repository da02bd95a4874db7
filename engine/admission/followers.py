"""Waiting sequences that are passed over because a running one is computing a prefix that they share.

If they entered at once, next to streamed answers all of them would compute that prefix in turns. A follower waits until
its leader has computed what they have in common, or has left, for whatever reason. It follows only an older sequence,
so it waits for finitely many. Others may overtake it meanwhile.
"""

from bisect import bisect_left

from ..memory.cache import Match
from ..memory.keys import key_of
from ..request import Sequence


class Followers:
    def __init__(self, block_size: int) -> None:
        self._block_size = block_size
        self.waiting: dict[Sequence, tuple[Sequence, int]] = {}  # with the leader, and how far it has to come

    def follow(self, sequence: Sequence, match: Match, leaders: list[Sequence]) -> bool:
        """Let the sequence wait for one of these, whose prompts aren't computed yet, if it is about to compute the
        next block of its prefix; False if none is."""
        if sequence.computes_every_row or sequence.start_time is not None:
            return False
        for leader in leaders:
            if leader.order[1] < sequence.order[1] and leader.is_running:
                end = self._common(sequence, leader, match.length) * self._block_size
                if leader.num_computed < end:
                    self.waiting[sequence] = leader, end
                    return True
        return False

    def released(self) -> list[Sequence]:
        """Take out those that need not wait any longer."""
        free = [
            sequence
            for sequence, (leader, end) in self.waiting.items()
            if sequence.has_ended or not leader.is_running or leader.num_computed >= end
        ]
        for sequence in free:
            del self.waiting[sequence]
        return [sequence for sequence in free if not sequence.has_ended]

    def _common(self, sequence: Sequence, leader: Sequence, start: int) -> int:
        """The number of blocks that both begin with, if it is more than `start`; otherwise 0."""
        # A sequence finds all but its last token.
        end = min((sequence.num_known - 1) // self._block_size, leader.num_known // self._block_size)

        def differs(index: int) -> bool:
            return key_of(sequence, index, self._block_size) != key_of(leader, index, self._block_size)

        if start >= end or differs(start):
            return 0
        return bisect_left(range(end), True, lo=start, key=differs)  # each key contains those before it
