"""A router's view of a cache, made from nothing but the published frames of its KV events.

Written from what vLLM, Dynamo and llm-d document of their readers: a frame is the msgpack array `[ts, events, rank]`,
an event is a map with a `type`, missing fields are null, and a block is found by its tokens below its parent. What none
of them would read fails here.
"""

from collections import defaultdict

import msgspec

from penstock.engine.adapters import AdapterTable
from penstock.engine.event_publisher import Batch
from penstock.engine.memory.cache import Cache
from penstock.engine.memory.events import KvEvents, event_hash
from penstock.engine.memory.group_memory import GroupMemory
from penstock.engine.memory.keys import NO_MARK, mark_in, mark_of

Tier = tuple[int | None, str]  # group and medium
STORED = {
    "type", "block_hashes", "parent_block_hash", "token_ids", "block_size", "lora_id", "medium", "lora_name",
    "extra_keys", "group_idx", "kv_cache_spec_kind", "kv_cache_spec_sliding_window",
}  # fmt: skip
REMOVED = {"type", "block_hashes", "medium", "group_idx"}


class Index:
    """The blocks of one publisher."""

    def __init__(self) -> None:
        self.found: defaultdict[Tier, set[int]] = defaultdict(set)
        # Parent, tokens and extra keys by hash, and the other way round.
        self._places: defaultdict[Tier, dict[int, tuple]] = defaultdict(dict)
        self._children: defaultdict[Tier, dict[tuple, int]] = defaultdict(dict)

    def read(self, frame: bytes) -> None:
        ts, events, rank = msgspec.msgpack.decode(frame)
        assert isinstance(ts, float) and isinstance(rank, int)
        for event in events:
            match event["type"]:
                case "BlockStored":
                    self._store(event)
                case "BlockRemoved":
                    self._remove(event)
                case "AllBlocksCleared":
                    for known in (self.found, self._places, self._children):
                        known.clear()
                case unknown:
                    raise AssertionError(f"no reader knows {unknown}")

    def _store(self, event: dict) -> None:
        assert event.keys() <= STORED
        hashes, size, tokens = event["block_hashes"], event["block_size"], event["token_ids"]
        assert all(0 < each < 1 << 63 for each in hashes) and len({*hashes, event["parent_block_hash"]}) > len(hashes)
        tier = (event.get("group_idx"), event["medium"])
        assert not self.found[tier].intersection(hashes), "a block is stored again"
        self.found[tier].update(hashes)
        if not tokens:
            return
        assert len(tokens) == len(hashes) * size
        extra = event.get("extra_keys") or [None] * len(hashes)
        parent = event["parent_block_hash"]
        for index, (found, keys) in enumerate(zip(hashes, extra, strict=True)):
            place = (parent, tuple(tokens[index * size : (index + 1) * size]), repr(keys))
            self._places[tier][found] = place
            self._children[tier][place] = parent = found

    def _remove(self, event: dict) -> None:
        assert event.keys() <= REMOVED
        tier = (event.get("group_idx"), event["medium"])
        for each in event["block_hashes"]:
            self.found[tier].remove(each)
            self._children[tier].pop(self._places[tier].pop(each, None), None)

    def prefix(self, tokens: list[int], size: int, first: list | None = None, others: list | None = None) -> int:
        """How many blocks of a prompt are found; `first` and `others` are the extra keys of its blocks."""
        parent, count = None, 0
        while len(part := tokens[count * size : (count + 1) * size]) == size:
            place = (parent, tuple(part), repr(others if count else first))
            if (parent := self._children[None, "GPU"].get(place)) is None:
                break
            count += 1
        return count


class Router(Index):
    """Follows a cache and compares."""

    def __init__(self, cache: Cache, adapters: AdapterTable, *, has_token_ids: bool = True) -> None:
        super().__init__()
        self._cache = cache
        self._adapters = adapters
        self._events = KvEvents(cache.groups, cache.block_size, has_token_ids=has_token_ids)
        self.frames: list[bytes] = []

    def hear(self) -> None:
        self._events.drop_expired()
        if events := self._events.take():
            self.frames.append(msgspec.msgpack.encode(Batch(0.0, events, 0)))
            self.read(self.frames[-1])

    def check(self) -> None:
        self.hear()
        groups = self._cache.groups
        marks = {mark_of(self._adapters.find(name).key) for name in self._adapters.names()} | {NO_MARK}
        for number, group in enumerate(groups):
            for medium, keys in _findable(group).items():
                tier = (number if len(groups) > 1 else None, medium)
                if medium == "STORAGE":  # keeps what an adapter that is loaded again can use
                    keys = [key for key in keys if mark_in(key) in marks]
                assert self.found[tier] == set(map(event_hash, keys)), f"{tier} as its events tell it"
                assert {mark_in(key) for key in keys} <= marks, "a block is kept that nobody can find"


def _findable(group: GroupMemory) -> dict[str, list[bytes]]:
    pool, below, disk = group.pool, group.second_tier, group.on_disk
    return {
        "GPU": [key for key in pool._found if pool.find(key) is not None],
        "CPU": [key for key in below._cells if below.has(key)],
        "STORAGE": [key for key in disk._ranks if key in disk],
    }
