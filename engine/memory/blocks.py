"""Tracks which KV blocks are free, in use, or free but still findable.

Blocks are integers; only workers know their content. A block is in exactly one of three states: held by sequences
(reference count > 0), in the free list with its key (findable, evictable), or in the free list without one. `check()`
raises if that ever fails to hold; the property tests call it after every step. Keys are opaque here; `keys.py` makes
them.
"""

from collections.abc import Callable, Iterable, Sequence

from .time_to_live import TimeToLive

OnEvicted = Callable[[bytes, int, float], None]  # a key, its block, and when that was used last


class BlockPool:
    def __init__(
        self,
        num_blocks: int,
        on_evicted: OnEvicted = lambda key, block, last_use: None,
        time_to_live: TimeToLive | None = None,
    ) -> None:
        """`on_evicted` is called with a findable block just before it is reused. Without a time to live, blocks can
        be found until they are reused."""
        self.num_blocks = num_blocks
        self._on_evicted = on_evicted
        self.on_forgotten: Callable[[bytes], None] | None = None  # called with each key that finds no block any more
        self._time_to_live = time_to_live
        self._last_use = [0.0] * num_blocks  # of free blocks with a key; a held block is in use
        self.num_free = num_blocks
        self._references = [0] * num_blocks
        self._keys: list[bytes | None] = [None] * num_blocks
        self._found: dict[bytes, int] = {}
        # The free list, least recently used first, as a ring through the end mark `num_blocks`: end ─► next to be
        # evicted ─► … ─► freed last ─► end
        self._end = num_blocks
        self._next = [*range(1, num_blocks + 1), 0]
        self._previous = [num_blocks, *range(num_blocks)]

    def find(self, key: bytes) -> int | None:
        """The block with this key, held or free."""
        block = self._found.get(key)
        return None if block is None or self._has_expired(block) else block

    def use(self, key: bytes) -> int | None:
        """The block with this key, which counts as used now. If it has expired, it loses its key."""
        block = self._found.get(key)
        if block is None or self._references[block]:
            return block
        if self._has_expired(block):
            self._expire(block)
            return None
        self._last_use[block] = self._now()
        return block

    def is_free(self, block: int) -> bool:
        return self._references[block] == 0

    def allocate(self, count: int) -> list[int]:
        """Take free blocks for new content, each with one reference; their old keys no longer find them."""
        if count > self.num_free:
            raise RuntimeError(f"{count} blocks were asked for, and {self.num_free} of {self.num_blocks} are free.")
        taken = []
        for _ in range(count):
            block = self._next[self._end]
            self._unlink(block)
            if (key := self._keys[block]) is not None:
                if not self._has_expired(block):
                    self._on_evicted(key, block, self._last_use[block])
                self.forget(block)
            self._references[block] = 1
            taken.append(block)
        return taken

    def hold(self, blocks: Iterable[int]) -> None:
        """Add a reference to each of these blocks, which were found by their keys."""
        for block in blocks:
            if self._references[block] == 0:
                self._unlink(block)
            self._references[block] += 1

    def release(self, table: Sequence[int]) -> None:
        """Drop a reference to each block of a table."""
        now = self._now()
        # Evict from the tail: a chain's last block is the least useful without its first.
        for block in reversed(table):
            self._references[block] -= 1
            if self._references[block] == 0:
                self._last_use[block] = now
                # Blocks without a key are reused first.
                before = self._previous[self._end] if self._keys[block] is not None else self._end
                self._link_after(before, block)

    def name(self, block: int, key: bytes) -> bool:
        """Let the key find this block, unless it already finds another one; that one then counts as used. Returns
        whether the key found none before."""
        if self._keys[block] is not None or self.use(key) is not None:
            return False
        self._found[key] = block
        self._keys[block] = key
        return True

    def forget(self, block: int) -> None:
        """Remove the block's key, so that its content can no longer be found."""
        if (key := self._keys[block]) is not None:
            del self._found[key]
            self._keys[block] = None
            if self.on_forgotten is not None:
                self.on_forgotten(key)

    def forget_where(self, is_gone: Callable[[bytes], bool]) -> None:
        """Remove the keys for which this is true, and reuse their blocks first."""
        for key, block in list(self._found.items()):
            if is_gone(key) and self._references[block]:
                self.forget(block)
            elif is_gone(key):
                self._expire(block)

    def drop(self, block: int) -> None:
        """Forget the block's key if nobody holds it, and reuse it first."""
        if self._references[block] == 0:
            self._expire(block)

    def drop_expired(self) -> None:
        """Remove the keys of all blocks whose time is over."""
        for block in self.free_blocks():
            if self._keys[block] is not None and self._has_expired(block):
                self._expire(block)

    def _now(self) -> float:
        return 0.0 if self._time_to_live is None else self._time_to_live.clock()

    def _has_expired(self, block: int) -> bool:
        """Whether a free block can no longer be found because its time is over; a held block is in use."""
        if self._time_to_live is None or self._references[block]:
            return False
        return self._time_to_live.has_expired(self._last_use[block])

    def _expire(self, block: int) -> None:
        """Remove an expired key; a free block without a key is reused first."""
        self.forget(block)
        self._unlink(block)
        self._link_after(self._end, block)

    def _link_after(self, before: int, block: int) -> None:
        after = self._next[before]
        self._next[before] = self._previous[after] = block
        self._previous[block], self._next[block] = before, after
        self.num_free += 1

    def _unlink(self, block: int) -> None:
        before, after = self._previous[block], self._next[block]
        self._next[before], self._previous[after] = after, before
        self.num_free -= 1

    def free_blocks(self) -> list[int]:
        """The free blocks, in the order in which they are reused."""
        blocks: list[int] = []
        block = self._next[self._end]
        while block != self._end and len(blocks) <= self.num_blocks:
            blocks.append(block)
            block = self._next[block]
        return blocks

    def check(self, tables: Iterable[Sequence[int]]) -> None:
        """Raise unless every block is in exactly one state and only these tables hold blocks."""
        free = self.free_blocks()
        expected = [0] * self.num_blocks
        for table in tables:
            if len(set(table)) != len(table):
                raise RuntimeError(f"A table holds a block twice: {list(table)}.")
            for block in table:
                expected[block] += 1
        if expected != self._references:
            wrong = [b for b in range(self.num_blocks) if expected[b] != self._references[b]]
            raise RuntimeError(f"Blocks {wrong} have other reference counts than tables that hold them.")
        if len(free) != self.num_free or sorted(free) != [b for b in range(self.num_blocks) if not expected[b]]:
            raise RuntimeError(f"The free list {free} ({self.num_free} counted) is not the blocks that nobody holds.")
        if self._found != {key: block for block, key in enumerate(self._keys) if key is not None}:
            raise RuntimeError("The keys that are found are not the keys that blocks have.")
