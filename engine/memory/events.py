"""The blocks that can be found, as a stream of events for routers outside of the tree (the option `kv_events_config`).

The events have the form of vLLM's, which llm-d, Dynamo, SGLang's gateway and vLLM's router read: a map for each, named
by its key `type`. A router that applies them in order has the set of keys that the engine has. `KvEvents` attaches
itself to all groups of layers; without it nothing here is called. `../event_publisher.py` sends what it gathers.
"""

from collections.abc import Sequence as Columns
from functools import partial
from typing import Any, TypeVar

import msgspec

from ...protocol.wire import values
from ..request import Sequence
from .group_memory import GroupMemory
from .keys import key_of

# Where blocks are. The tree's own KV memory is GPU on a CPU as well: routers take that for the fastest tier.
OWN_MEMORY, CPU_MEMORY, DISK = "GPU", "CPU", "STORAGE"
_KINDS = {"full": "full_attention", "window": "sliding_window", "state": "mamba"}


class BlockStored(msgspec.Struct, tag=True, omit_defaults=True):
    """Consecutive blocks can be found. In a lower tier only their hashes are named."""

    block_hashes: list[int]
    parent_block_hash: int | None
    token_ids: list[int]
    block_size: int
    lora_id: int | None  # an older field for `lora_name`, which readers of vLLM's events expect
    medium: str
    lora_name: str | None
    # What a block's hash depends on besides tokens, for each block: adapter, media, and the salt in a chain's first.
    extra_keys: list[list[Any] | None] | None = None
    # If a model has several kinds of layers.
    group_idx: int | None = None
    kv_cache_spec_kind: str | None = None
    kv_cache_spec_sliding_window: int | None = None


class BlockRemoved(msgspec.Struct, tag=True, omit_defaults=True):
    block_hashes: list[int]
    medium: str
    group_idx: int | None = None


class AllBlocksCleared(msgspec.Struct, tag=True, omit_defaults=True):
    pass


Event = BlockStored | BlockRemoved | AllBlocksCleared
Found = TypeVar("Found", BlockStored, BlockRemoved)


def event_hash(key: bytes) -> int:
    """A key as readers want it: 63 bits, so that it has one value whether they read it signed or not; never 0, which
    some take for the absence of a parent."""
    return int.from_bytes(key[:8], "big") >> 1 or 1


class KvEvents:
    def __init__(self, groups: Columns[GroupMemory[Any]], block_size: int, *, has_token_ids: bool) -> None:
        self._block_size = block_size
        self._has_token_ids = has_token_ids
        # Routers may still know the blocks of an engine that had this address before.
        self._events: list[Event] = [AllBlocksCleared()]
        self._groups: list[GroupMemory[Any]] = []
        target = [group for group in groups if not group.plan.is_drafting]
        for number, group in enumerate(target):
            self._observe(group, number if len(target) > 1 else None)

    def _observe(self, group: GroupMemory[Any], number: int | None) -> None:
        spec = {} if number is None else {"group_idx": number, "kv_cache_spec_kind": _KINDS[group.plan.kind]}
        if number is not None and group.plan.window is not None:
            spec["kv_cache_spec_sliding_window"] = group.plan.window
        group.on_stored = partial(self._stored, spec)
        group.pool.on_forgotten = partial(self._removed, OWN_MEMORY, number)
        for keys, medium in ((group.second_tier, CPU_MEMORY), (group.on_disk, DISK)):
            keys.on_stored = partial(self._stored_below, medium, number)
            keys.on_forgotten = partial(self._removed, medium, number)
        self._groups.append(group)

    @property
    def may_expire(self) -> bool:
        """True if blocks expire after some time (`prefix_cache_ttl`)."""
        return any(group.time_to_live is not None for group in self._groups)

    def drop_expired(self) -> None:
        """Note which blocks are no longer found because their time is over."""
        for group in self._groups:
            group.drop_expired()

    def take(self) -> list[Event]:
        """The events since the last call, in order."""
        events, self._events = self._events, []
        return events

    def _stored(self, spec: dict[str, Any], sequence: Sequence, index: int, key: bytes) -> None:
        """The sequence's index-th block can be found."""
        size, params = self._block_size, sequence.request.prompt.params
        parent = event_hash(key_of(sequence, index - 1, size)) if index else None
        packed = sequence.packed_tokens(index * size, (index + 1) * size) if self._has_token_ids else b""
        # Only a reader that goes by tokens needs them, and a salt is a secret.
        extra = _extra_keys(sequence, index, size) if self._has_token_ids else None
        stored = BlockStored(
            [event_hash(key)], parent, values(packed).tolist(), size, None, OWN_MEMORY, params.lora_name, **spec
        )
        stored.extra_keys = None if extra is None else [extra]
        last = self._last(BlockStored, OWN_MEMORY, stored.group_idx)
        if last is not None and last.block_hashes[-1] == parent:
            _append(last, stored)
        else:
            self._events.append(stored)

    def _stored_below(self, medium: str, group: int | None, key: bytes) -> None:
        """The block with this key can be found in a lower tier."""
        if (last := self._last(BlockStored, medium, group)) is not None:
            last.block_hashes.append(event_hash(key))
        else:
            stored = BlockStored([event_hash(key)], None, [], self._block_size, None, medium, None, group_idx=group)
            self._events.append(stored)

    def _removed(self, medium: str, group: int | None, key: bytes) -> None:
        if (last := self._last(BlockRemoved, medium, group)) is not None:
            last.block_hashes.append(event_hash(key))
        else:
            self._events.append(BlockRemoved([event_hash(key)], medium, group))

    def _last(self, kind: type[Found], medium: str, group: int | None) -> Found | None:
        """The newest event, if one more block of this tier and group can join it."""
        last = self._events[-1] if self._events else None
        fits = isinstance(last, kind) and (last.medium, last.group_idx) == (medium, group)
        return last if fits else None  # type: ignore[return-value]  # the kind was checked


def _append(event: BlockStored, next_block: BlockStored) -> None:
    extra = next_block.extra_keys
    if extra is not None or event.extra_keys is not None:
        so_far = event.extra_keys or [None] * len(event.block_hashes)
        event.extra_keys = [*so_far, *(extra or [None])]
    event.block_hashes += next_block.block_hashes
    event.token_ids += next_block.token_ids


def _extra_keys(sequence: Sequence, index: int, block_size: int) -> list[Any] | None:
    """The further parts of a block's hash, in vLLM's order: its adapter, its media with their offsets, the salt."""
    request = sequence.request
    params, start = request.prompt.params, index * block_size
    keys: list[Any] = [] if params.lora_name is None else [params.lora_name]
    if request.media is not None:
        for span in request.media.between(start, start + block_size):
            keys.append([request.media.media[span.medium].digest.hex(), span.start - start])
    if index == 0 and params.cache_salt is not None:
        keys.append(params.cache_salt)
    return keys or None
