"""Pooled prompts: sequences that get vectors instead of tokens, and end once their prompt is computed.

They are planned like all others: for the scheduler one is a sequence whose only token is in flight.
"""

from ...protocol.messages import SequenceEnded
from ...protocol.pooling.form import Vectors
from ..request import Sequence
from .strategy import PlainDecoding


class PooledDecoding(PlainDecoding):
    def take_in(self, sequence: Sequence, vectors: Vectors) -> None:
        """End a sequence with its vectors, unless it has ended while they were computed."""
        if sequence.has_ended:
            return
        vectors.owner = sequence.id
        self._publisher.vectors.append(vectors)
        self.end(sequence, SequenceEnded(sequence.id, "stop"))
