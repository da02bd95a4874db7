"""How the bytes for keys, values and states are shared out among a model's groups of layers.

Each group gets what one request of the longest length needs of it. What is left is shared in equal parts of bytes.
Groups with full attention count as one, because they hold the same tokens. No window gets more blocks than the longest
group, and no more states are kept than two for each sequence that can run and one for every so many tokens of the
longest group. Short requests and long ones both find at least half of what a division made for them would give. Where
nobody said how long requests may get, the longest one leaves a quarter of the bytes to others.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ....protocol.layer_groups import CHECKPOINT_EVERY, GroupKind, blocks_touched

STATES_A_SEQUENCE = 2  # the one that it writes, and the checkpoint before it


@dataclass(frozen=True)
class GroupSize:
    """What a block of one group takes, or a state."""

    kind: GroupKind
    num_layers: int
    block_bytes: int
    window: int | None = None  # tokens that a query sees, its own included


@dataclass(frozen=True)
class Shares:
    """The groups of one model, the longest first, and what its steps ask of them."""

    groups: Sequence[GroupSize]
    block_size: int
    num_seqs: int  # that are computed at once
    chunk: int  # tokens of a sequence that a step computes at most

    @property
    def is_one_kind(self) -> bool:
        """Whether all groups hold the same tokens."""
        return all(map(self._is_like_first, self.groups))

    def needed(self, length: int) -> list[int]:
        """Blocks of each group that one request of so many tokens needs."""
        return [self._needed(group, length) for group in self.groups]

    def bytes_of(self, num_blocks: Sequence[int]) -> int:
        return sum(count * group.block_bytes for count, group in zip(num_blocks, self.groups, strict=True))

    def needed_bytes(self, length: int) -> int:
        return self.bytes_of(self.needed(length))

    def useful_bytes(self, length: int) -> int:
        """More than this no number of requests of this length can use."""
        first = self.num_seqs * -(-length // self.block_size)
        return self.bytes_of([self._most(group, first) for group in self.groups])

    def longest_beside_others(self, num_bytes: int, wanted: int) -> int:
        """Tokens of the longest request where it may leave room for others: each needs states or windows of its own."""
        if self.is_one_kind:
            return self.longest(num_bytes, wanted)
        return self.longest(num_bytes * 3 // 4, wanted) or self.longest(num_bytes, wanted)

    def bytes_beside_others(self, length: int) -> int:
        """Those of which `longest_beside_others` is at least this length."""
        needed = self.needed_bytes(length)
        return needed if self.is_one_kind else -(-needed * 4 // 3)

    def longest(self, num_bytes: int, wanted: int) -> int:
        """Tokens of the longest request, up to `wanted`, whose needs these bytes hold; 0 if they hold none."""
        return self._longest(wanted, lambda length: self.needed_bytes(length) <= num_bytes)

    def longest_in_first(self, num_blocks: int, wanted: int) -> int:
        """The same where the first group has so many blocks, and the others what they need."""
        return self._longest(wanted, lambda length: self.needed(length)[0] <= num_blocks)

    def of_bytes(self, num_bytes: int, length: int) -> list[int]:
        """The blocks of each group, where the bytes hold at least a request of this length."""
        rest = largest(num_bytes, lambda rest: self.bytes_of(self._with(rest, length)) <= num_bytes)
        return self._with(rest, length)

    def of_first_group(self, num_blocks: int, length: int) -> list[int]:
        """Those where the first group has so many, which hold at least a request of this length."""
        rest = (num_blocks - self.needed(length)[0]) * self._first_bytes
        return self._with(rest, length)

    @property
    def _first_bytes(self) -> int:
        """Of a block in each group that counts as one with the first."""
        return sum(group.block_bytes for group in self.groups if self._is_like_first(group))

    def _is_like_first(self, group: GroupSize) -> bool:
        return group is self.groups[0] or group.kind == "full"

    def _with(self, rest: int, length: int) -> list[int]:
        """What a request of this length needs, and of each part so many bytes more, as far as they are of use."""
        needed = self.needed(length)
        first = needed[0] + rest // self._first_bytes
        return [
            first
            if self._is_like_first(group)
            else max(least, min(least + rest // group.block_bytes, self._most(group, first)))
            for group, least in zip(self.groups, needed, strict=True)
        ]

    def _needed(self, group: GroupSize, length: int) -> int:
        whole = -(-length // self.block_size)
        if group.kind == "state":
            return STATES_A_SEQUENCE
        if group.window is None:
            return whole
        # Tokens before a chunk that its first one sees, and the chunk, wherever their first block begins.
        return min(whole, blocks_touched(group.window - 1 + min(self.chunk, length), self.block_size))

    def _most(self, group: GroupSize, first: int) -> int:
        """Blocks of a group that are of use where the longest group has `first`."""
        if group.kind == "state":
            return STATES_A_SEQUENCE * self.num_seqs + -(-first * self.block_size // CHECKPOINT_EVERY)
        return first

    def _longest(self, wanted: int, holds: Callable[[int], bool]) -> int:
        blocks = largest(-(-wanted // self.block_size), lambda count: holds(count * self.block_size))
        return min(wanted, blocks * self.block_size)


def largest(most: int, holds: Callable[[int], bool]) -> int:
    """The largest number up to `most` that holds, where all smaller ones do; 0 if none does."""
    least = 0
    while least < most:
        middle = (least + most + 1) // 2
        if holds(middle):
            least = middle
        else:
            most = middle - 1
    return least
