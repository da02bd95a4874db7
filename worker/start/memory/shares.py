"""Divides the bytes for keys, values and states among a model's groups of layers.

Each group gets what one request of the longest length needs. The rest is divided into equal numbers of bytes. Groups
with full attention count as one, because they hold the same tokens. No window gets more blocks than the longest group,
and the number of states is at most two for each running sequence plus one for every so many tokens of the longest
group. So short and long requests both get at least half of what a division made for them would give. If no longest
length is configured, the longest request leaves a quarter of the bytes to others.
"""

from collections.abc import Callable, Sequence

from ....protocol.layer_groups import CHECKPOINT_EVERY, GroupKind, blocks_touched
from ....records import dataclass

STATES_A_SEQUENCE = 2  # the one that it writes, and the checkpoint before it


@dataclass(frozen=True)
class GroupSize:
    """The size of a block or state of one group."""

    kind: GroupKind
    num_layers: int
    block_bytes: int
    window: int | None = None  # tokens that a query sees, including its own
    is_drafting: bool = False  # of the model that drafts


@dataclass(frozen=True)
class Shares:
    """The groups of one model, the longest first, and the limits of its steps."""

    groups: Sequence[GroupSize]
    block_size: int
    num_seqs: int  # sequences that run at once
    chunk: int  # most tokens of one sequence in a step

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
        """The most bytes that any number of requests of this length can use."""
        first = self.num_seqs * -(-length // self.block_size)
        return self.bytes_of([self._most(group, first) for group in self.groups])

    def longest_beside_others(self, num_bytes: int, wanted: int) -> int:
        """Tokens of the longest request that leaves room for others, each of which needs its own states or windows."""
        if self.is_one_kind:
            return self.longest(num_bytes, wanted)
        return self.longest(num_bytes * 3 // 4, wanted) or self.longest(num_bytes, wanted)

    def bytes_beside_others(self, length: int) -> int:
        """The bytes for which `longest_beside_others` is at least this length."""
        needed = self.needed_bytes(length)
        return needed if self.is_one_kind else -(-needed * 4 // 3)

    def longest(self, num_bytes: int, wanted: int) -> int:
        """Tokens of the longest request, up to `wanted`, that fits into these bytes; 0 if none does."""
        return self._longest(wanted, lambda length: self.needed_bytes(length) <= num_bytes)

    def longest_in_first(self, num_blocks: int, wanted: int) -> int:
        """The longest request if the first group has so many blocks and the others as many as they need."""
        return self._longest(wanted, lambda length: self.needed(length)[0] <= num_blocks)

    def of_bytes(self, num_bytes: int, length: int) -> list[int]:
        """The blocks of each group, for bytes that hold at least one request of this length."""
        rest = largest(num_bytes, lambda rest: self.bytes_of(self._with(rest, length)) <= num_bytes)
        return self._with(rest, length)

    def of_first_group(self, num_blocks: int, length: int) -> list[int]:
        """The blocks of each group if the first has so many, enough for at least one request of this length."""
        rest = (num_blocks - self.needed(length)[0]) * self._first_bytes
        return self._with(rest, length)

    @property
    def _first_bytes(self) -> int:
        """Bytes of a block in all groups that count as one with the first."""
        return sum(group.block_bytes for group in self.groups if self._is_like_first(group))

    def _is_like_first(self, group: GroupSize) -> bool:
        return group is self.groups[0] or group.kind == "full"

    def _with(self, rest: int, length: int) -> list[int]:
        """The needs of a request of this length, plus so many bytes for each part, as far as they are useful."""
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
        # The chunk and the tokens before it that its first token sees, whatever their offset in the first block.
        return min(whole, blocks_touched(group.window - 1 + min(self.chunk, length), self.block_size))

    def _most(self, group: GroupSize, first: int) -> int:
        """The most useful blocks of a group if the longest group has `first`."""
        if group.kind == "state":
            return STATES_A_SEQUENCE * self.num_seqs + -(-first * self.block_size // CHECKPOINT_EVERY)
        return first

    def _longest(self, wanted: int, holds: Callable[[int], bool]) -> int:
        blocks = largest(-(-wanted // self.block_size), lambda count: holds(count * self.block_size))
        return min(wanted, blocks * self.block_size)


def largest(most: int, holds: Callable[[int], bool]) -> int:
    """The largest number up to `most` that fits, given that all smaller ones do; 0 if none fits."""
    least = 0
    while least < most:
        middle = (least + most + 1) // 2
        if holds(middle):
            least = middle
        else:
            most = middle - 1
    return least
