"""Memory that every rank of a group can read and write, as kernels see it."""

from dataclasses import dataclass

from torch import Tensor

ROOMS = 2  # used in turn: who still reads one is never overtaken by who writes the other


@dataclass(frozen=True, eq=False)
class PeerMemory:
    """One rank's view of all ranks' rooms and flags."""

    rank: int
    rooms: Tensor  # int64 [ranks]: addresses of their ROOMS rooms, one behind another
    flags: Tensor  # int64 [ranks]: addresses of their int32 [rows, ranks], in which others say how far they are
    rounds: Tensor  # int32 [rows]: how often a row has been added up, on this rank
    room_bytes: int

    @property
    def size(self) -> int:
        return len(self.rooms)

    def holds(self, x: Tensor) -> bool:
        return 0 < len(x) <= len(self.rounds) and x.nbytes <= self.room_bytes
