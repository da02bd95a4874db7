"""The KV blocks of sequences: what a new one finds computed already, what it is given, and what others may find.

A full block can be found as soon as its computation is planned and all its tokens are known: workers take plans in
order, and each layer writes all rows' keys and values before any row attends. A hit stops one token short, since
the last token must be computed to sample the next. A block that is evicted from the pool is offered to a second tier
under its key; what is found there is loaded into a block of the pool, and found in it from then on.

A key is a chained cryptographic hash of all tokens up to the block's end, and of what else its content is of: equal
keys mean equal keys and values. Cryptographic, because with `cache_salt` the key is all that keeps one tenant from
reading another's prefix.
"""

from bisect import bisect_left
from collections.abc import Iterable
from collections.abc import Sequence as Table
from hashlib import blake2b

import msgspec

from ..protocol.messages import Prompt
from .blocks import BlockPool
from .offload import Moves, SecondTierIndex
from .request import Sequence

_DIGEST_BYTES = 32


def root_key(cache_salt: str | None, adapter: int | None, only_request: int | None) -> bytes:
    """The first link: whoever differs in one of these shares nothing. `only_request` shuts out all other requests."""
    parts = msgspec.msgpack.encode((cache_salt, adapter, only_request))
    return blake2b(parts, digest_size=_DIGEST_BYTES, person=b"penstock kv root").digest()


def stretched_key(root: bytes, stretch: int) -> bytes:
    """The first link where positions are rotated for a longer request: keys of one length can't serve another."""
    if stretch == 0:
        return root
    return blake2b(root + stretch.to_bytes(4), digest_size=_DIGEST_BYTES, person=b"penstock stretch").digest()


def next_key(previous: bytes, packed_tokens: bytes) -> bytes:
    """The key of the block that holds these tokens after the block named `previous`."""
    return blake2b(previous + packed_tokens, digest_size=_DIGEST_BYTES).digest()


# By place in a table: the block that holds what belongs there, or None where only the second tier does.
Found = list[int | None]


class Cache:
    def __init__(
        self,
        num_blocks: int,
        block_size: int,
        *,
        num_cells: int = 0,
        shares_prefixes: bool = True,
        stretches: tuple[int, ...] = (),
    ) -> None:
        self.second_tier = SecondTierIndex(num_cells)
        self.pool = BlockPool(num_blocks, self.second_tier.offer)
        self.block_size = block_size
        self.shares_prefixes = shares_prefixes
        self.stretches = stretches

    @property
    def num_blocks(self) -> int:
        return self.pool.num_blocks

    @property
    def num_free(self) -> int:
        return self.pool.num_free

    def root_of(self, prompt: Prompt, adapter: int | None = None) -> bytes:
        """`adapter` is the key of the one that it uses."""
        # Without prefix caching the samples of one request still share their prompt.
        only_request = None if self.shares_prefixes else prompt.request_id
        return root_key(prompt.params.cache_salt, adapter, only_request)

    def outgrown(self, num_tokens: int) -> str:
        """What is to say of a sequence of so many tokens that the whole pool can't hold any more."""
        return (
            f"The request has grown to {num_tokens:,} tokens and fills the whole KV cache "
            f"({self.num_blocks:,} blocks of {self.block_size}). "
            "Use a smaller max_tokens or raise kv_cache_memory."
        )

    def blocks_for(self, num_tokens: int) -> int:
        return -(-num_tokens // self.block_size)

    def match(self, sequence: Sequence) -> Found:
        """Where the beginning of its known tokens is computed already; nothing is held yet."""
        found: Found = []
        self._stretch(sequence)
        if sequence.wants_prompt_logprobs:  # only computing gives them
            return found
        for index in range((sequence.num_known - 1) // self.block_size):
            key = self._key(sequence, index)
            block = self.pool.find(key)
            if block is None and not self.second_tier.holds(key):
                break
            found.append(block)
        return found

    def blocks_taken(self, num_blocks: int, found: Found) -> int:
        """How many free blocks a table of that length takes that begins with what was found."""
        held = [block for block in found if block is not None]
        return num_blocks - len(held) + sum(map(self.pool.is_free, held))

    def admit(self, sequence: Sequence, found: Found) -> None:
        """Give it a table for all its known tokens, beginning with what was found."""
        held = [block for block in found if block is not None]
        absent = {index: self._key(sequence, index) for index, block in enumerate(found) if block is None}
        # Held and pinned first, so that the allocation cannot evict them.
        self.pool.hold(held)
        self.second_tier.pin(list(absent.values()))
        fresh = iter(self.pool.allocate(self.blocks_for(sequence.num_known) - len(held)))
        sequence.block_ids = [next(fresh) if block is None else block for block in found]
        sequence.block_ids += fresh
        for index, key in absent.items():
            self.second_tier.load(key, sequence.block_ids[index])
            self.pool.name(sequence.block_ids[index], key)
        sequence.num_findable = len(found)
        sequence.num_computed = len(found) * self.block_size
        self._set_horizon(sequence)

    def grow(self, sequence: Sequence) -> int:
        """One block more; which."""
        (block,) = self.pool.allocate(1)
        sequence.block_ids.append(block)
        self._set_horizon(sequence)
        return block

    def fork(self, parent: Sequence, child: Sequence) -> tuple[int, int] | None:
        """The child shares the parent's full blocks and gets one of its own; (source, target) if that is to be a copy
        of what the parent has computed into its last."""
        num_full, rest = divmod(parent.num_computed, self.block_size)
        shared = parent.block_ids[:num_full]
        self.pool.hold(shared)
        child.block_ids = shared + self.pool.allocate(1)
        child.num_findable = min(parent.num_findable, num_full)
        child.output_keys = parent.output_keys[: max(0, num_full - parent.num_prompt // self.block_size)]
        child.num_computed = parent.num_computed
        self._set_horizon(child)
        return (parent.block_ids[num_full], child.block_ids[num_full]) if rest else None

    def publish(self, sequence: Sequence, num_tokens: int) -> None:
        """Let others find the full blocks among its first `num_tokens`, which are known and planned."""
        for index in range(sequence.num_findable, num_tokens // self.block_size):
            self.pool.name(sequence.block_ids[index], self._key(sequence, index))
            sequence.num_findable = index + 1

    def release(self, sequence: Sequence) -> None:
        """Its blocks are free for whoever is planned next; plans in flight still read them undisturbed."""
        self.pool.release(sequence.block_ids)
        sequence.block_ids = []
        sequence.num_findable = 0

    def forget(self, sequence: Sequence) -> None:
        """No one shall find what this sequence has computed: it went wrong."""
        for index in range(len(sequence.request.prompt_keys[sequence.stretch]) + len(sequence.output_keys)):
            key = self._key(sequence, index)
            self.second_tier.forget(key)
            if (block := self.pool.find(key)) is not None:
                self.pool.forget(block)

    def has_outgrown_its_stretch(self, sequence: Sequence) -> bool:
        """Its next token needs positions that are rotated for a greater length, and so do all before it."""
        return bool(self.stretches) and sequence.num_computed >= self.stretches[sequence.stretch]

    def rotation_start(self, sequence: Sequence) -> int:
        """Where its positions begin in the rotary table."""
        return sum(self.stretches[: sequence.stretch])

    def take_moves(self) -> Moves:
        """What the next plan must tell of the second tier."""
        return self.second_tier.take_moves()

    def check(self, tables: Iterable[Table[int]]) -> None:
        """Raise unless both tiers are sound and the tables are all that holds any block."""
        self.pool.check(tables)
        self.second_tier.check()

    def _stretch(self, sequence: Sequence) -> None:
        """Choose the length that its positions are rotated for, by what is known of it: nothing is computed yet."""
        stretch = bisect_left(self.stretches, sequence.num_known) if self.stretches else 0
        if stretch != sequence.stretch:
            sequence.stretch = stretch
            sequence.output_keys = []

    def _set_horizon(self, sequence: Sequence) -> None:
        # The last token of an answer is sampled and never computed.
        sequence.horizon = min(len(sequence.block_ids) * self.block_size, sequence.max_total - 1)
        if self.stretches:
            sequence.horizon = min(sequence.horizon, self.stretches[sequence.stretch])

    def _key(self, sequence: Sequence, index: int) -> bytes:
        """The key of its index-th block; asked for in order, so that the one before is there."""
        request = sequence.request
        keys, offset = request.prompt_keys[sequence.stretch], 0
        num_prompt_blocks = request.num_prompt // self.block_size
        if index >= num_prompt_blocks:
            keys, offset = sequence.output_keys, num_prompt_blocks
        if index - offset == len(keys):
            previous = self._key(sequence, index - 1) if index else stretched_key(request.root, sequence.stretch)
            start = index * self.block_size
            keys.append(next_key(previous, sequence.packed_tokens(start, start + self.block_size)))
        return keys[index - offset]
