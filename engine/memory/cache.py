"""The KV blocks of sequences: finds computed prefixes, allocates block tables, and publishes blocks for others to find.

A full block can be found as soon as its computation is planned and all its tokens are known: workers take plans in
order, and each layer writes all rows' keys and values before any row attends. A hit stops one token short, since
the last token must be computed to sample the next. A block that is evicted from the pool is offered to a second tier
under its key; a hit there is loaded into a block of the pool, where later requests find it.

A key is a chained cryptographic hash of all tokens up to the block's end and of everything else that the content
depends on: equal keys mean equal keys and values. It is cryptographic because with `cache_salt` the key is all that
keeps one tenant from reading another's prefix.
"""

from bisect import bisect_left
from collections.abc import Iterable
from collections.abc import Sequence as Table
from hashlib import blake2b

import msgspec

from ...protocol.messages import Prompt
from ..request import Sequence
from .blocks import BlockPool
from .offload import NO_MOVES, Moves, SecondTierIndex
from .time_to_live import FOREVER, TimeToLive

_DIGEST_BYTES = 32


def root_key(cache_salt: str | None, adapter: int | None, only_request: int | None) -> bytes:
    """The first link: requests that differ in one of these share nothing. `only_request` excludes all others."""
    parts = msgspec.msgpack.encode((cache_salt, adapter, only_request))
    return blake2b(parts, digest_size=_DIGEST_BYTES, person=b"penstock kv root").digest()


def stretched_key(root: bytes, stretch: int) -> bytes:
    """The first link for positions that are rotated for longer requests: blocks of one length can't serve another."""
    if stretch == 0:
        return root
    return blake2b(root + stretch.to_bytes(4), digest_size=_DIGEST_BYTES, person=b"penstock stretch").digest()


def next_key(previous: bytes, packed_tokens: bytes) -> bytes:
    """The key of the block that holds these tokens after the block named `previous`."""
    return blake2b(previous + packed_tokens, digest_size=_DIGEST_BYTES).digest()


# For each index of a block table: the block with that content, or None if only the second tier has it.
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
        time_to_live: TimeToLive = FOREVER,
    ) -> None:
        self.second_tier = SecondTierIndex(num_cells, time_to_live)
        self.pool = BlockPool(num_blocks, self.second_tier.offer, time_to_live)
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
        """The first link for a prompt; `adapter` is the key of the LoRA adapter that it uses."""
        # Without prefix caching the samples of one request still share their prompt.
        only_request = None if self.shares_prefixes else prompt.request_id
        return root_key(prompt.params.cache_salt, adapter, only_request)

    def outgrown(self, num_tokens: int) -> str:
        """The error message for a sequence that has outgrown the whole pool."""
        return (
            f"The request has grown to {num_tokens:,} tokens and fills the whole KV cache "
            f"({self.num_blocks:,} blocks of {self.block_size}). "
            "Use a smaller max_tokens or raise kv_cache_memory."
        )

    def blocks_for(self, num_tokens: int) -> int:
        return -(-num_tokens // self.block_size)

    def match(self, sequence: Sequence) -> Found:
        """Find the blocks of its longest computed prefix; takes no reference yet."""
        found: Found = []
        self._stretch(sequence)
        if sequence.wants_prompt_logprobs:  # these come only from computing the prompt
            return found
        for index in range((sequence.num_known - 1) // self.block_size):
            key = self._key(sequence, index)
            block = self.pool.use(key)
            if block is None and not (self.second_tier.num_cells and self.second_tier.use(key)):
                break
            found.append(block)
        return found

    def blocks_taken(self, num_blocks: int, found: Found) -> int:
        """How many free blocks a table of `num_blocks` takes if it begins with the found ones."""
        held = [block for block in found if block is not None]
        return num_blocks - len(held) + sum(map(self.pool.is_free, held))

    def admit(self, sequence: Sequence, found: Found) -> None:
        """Allocate a table for all its known tokens, beginning with the found blocks."""
        held = [block for block in found if block is not None]
        absent = {index: self._key(sequence, index) for index, block in enumerate(found) if block is None}
        # Hold and pin the hits first, so that the allocation cannot evict them.
        self.pool.hold(held)
        if absent:
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
        """Append a block to its table; returns the block."""
        (block,) = self.pool.allocate(1)
        sequence.block_ids.append(block)
        self._set_horizon(sequence)
        return block

    def fork(self, parent: Sequence, child: Sequence) -> tuple[int, int] | None:
        """Let the child share the parent's full blocks and give it a block of its own. Returns (source, target) if the
        workers must copy the parent's partly filled last block into it."""
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
        """Free its blocks at once: plans in flight still read them before a later plan can overwrite them."""
        self.pool.release(sequence.block_ids)
        sequence.block_ids = []
        sequence.num_findable = 0

    def forget(self, sequence: Sequence) -> None:
        """Remove the keys of everything that this sequence has computed, because it failed."""
        for index in range(len(sequence.request.prompt_keys[sequence.stretch]) + len(sequence.output_keys)):
            key = self._key(sequence, index)
            self.second_tier.forget(key)
            if (block := self.pool.find(key)) is not None:
                self.pool.forget(block)

    def has_outgrown_its_stretch(self, sequence: Sequence) -> bool:
        """Whether its next token, and with it all earlier ones, need positions rotated for a greater length."""
        return bool(self.stretches) and sequence.num_computed >= self.stretches[sequence.stretch]

    def rotation_start(self, sequence: Sequence) -> int:
        """Where its positions begin in the rotary table."""
        return sum(self.stretches[: sequence.stretch])

    def take_moves(self) -> Moves:
        """The moves between pool and second tier for the next plan."""
        return self.second_tier.take_moves() if self.second_tier.num_cells else NO_MOVES

    def check(self, tables: Iterable[Table[int]]) -> None:
        """Raise unless both tiers are consistent and only these tables hold blocks."""
        self.pool.check(tables)
        self.second_tier.check()

    def _stretch(self, sequence: Sequence) -> None:
        """Choose the length that its positions are rotated for by its known tokens, before any is computed."""
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
        """The key of its index-th block; keys are asked for in order, so the previous one is always there."""
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
