"""Which replica a request goes to: the one that knows most of its prompt, unless it has far more to do than others.

A prompt's prefixes are known by keys: each is a hash of one more piece of the conversation as the request writes it,
chained to those before it, so equal keys mean equal beginnings. Replicas tell Serve the keys of what they have
answered, and a router remembers where it has just sent some.
"""

import hashlib
import random
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

import msgspec
from ray.serve.request_router import FIFOMixin, PendingRequest, ReplicaID, RequestRouter, RunningReplica

_PIECE = 256  # bytes of a key's part of the text, about two KV blocks
_MOST_KEYS = 256  # of a request: what lies behind 64 KiB is with whoever has those
_MOST_KNOWN = 1 << 14  # of a replica: a megabyte of keys in all that know of it
_MOST_REPORTED = 1 << 11
# How many more requests than the idlest the replica with the longest prefix may have.
_MOST_AHEAD = 8
# What stands before a prompt's text and decides about its blocks, too.
_SALTS = ("model", "cache_salt", "tools")
_TEXTS = ("system", "instructions", "messages", "prompt", "input")


# Parts of a body are hashed as they are written: decoding many megabytes would hold up all other requests.
_Fields = msgspec.defstruct("_Fields", [(name, msgspec.Raw, msgspec.Raw()) for name in (*_SALTS, *_TEXTS)])


def text_keys(body: bytes, salt: str = "") -> list[int]:
    """The keys of a request's prefixes, the shortest first; none if it has no prompt of that length."""
    try:
        fields = msgspec.json.decode(body, type=_Fields)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return []
    before, text = (b"\0".join(_given(fields, names)) for names in (_SALTS, _TEXTS))
    keys, chained = [], hashlib.blake2b(salt.encode() + b"\0" + before, digest_size=8)
    for end in range(_PIECE, min(len(text), _PIECE * _MOST_KEYS) + 1, _PIECE):
        chained.update(text[end - _PIECE : end])
        keys.append(int.from_bytes(chained.digest(), "little", signed=True))
    return keys


def _given(fields: Any, names: Sequence[str]) -> list[bytes]:
    found = (bytes(getattr(fields, name)) for name in names)
    return [b"" if value == b"null" else value for value in found]


class KnownPrefixes:
    """The keys of the prompts that a replica has answered last."""

    def __init__(self) -> None:
        self._keys: OrderedDict[int, None] = OrderedDict()

    def add(self, keys: Sequence[int]) -> None:
        """The beginning of a prompt is the last to go: without it, what follows is never found."""
        for key in reversed(keys):
            self._keys[key] = None
            self._keys.move_to_end(key)
        while len(self._keys) > _MOST_KNOWN:
            self._keys.popitem(last=False)

    def newest(self) -> list[int]:
        """Few enough to be reported every second, oldest first."""
        return list(self._keys)[-_MOST_REPORTED:]

    def length(self, keys: list[int]) -> int:
        """How many of these keys, one prefix after another, it knows."""
        for count, key in enumerate(keys):
            if key not in self._keys:
                return count
        return len(keys)


class PrefixRouter(FIFOMixin, RequestRouter):  # type: ignore[misc]
    """Serve's interface: ranks replicas for one request. Without a known prefix, the idler one of two."""

    def initialize_state(self, **options: Any) -> None:
        self._known: dict[ReplicaID, KnownPrefixes] = {}

    def update_replicas(self, replicas: list[RunningReplica]) -> None:
        super().update_replicas(replicas)
        self._known = {replica.replica_id: self._known.get(replica.replica_id, KnownPrefixes()) for replica in replicas}
        for replica in replicas:
            # Of what it has reported, the newest come last.
            self._known[replica.replica_id].add(replica.routing_stats.get("prefixes", ())[::-1])

    async def choose_replicas(
        self, candidate_replicas: list[RunningReplica], pending_request: PendingRequest | None = None
    ) -> list[list[RunningReplica]]:
        if not candidate_replicas:
            return []
        drawn = random.sample(candidate_replicas, min(2, len(candidate_replicas)))
        keys = _keys_of(pending_request)
        if not keys:
            return [drawn]
        lengths = [self._known_of(replica).length(keys) for replica in candidate_replicas]
        longest = max(lengths)
        best = [replica for replica, length in zip(candidate_replicas, lengths, strict=True) if length == longest]
        best.sort(key=self._load)
        is_busy = self._load(best[0]) > min(map(self._load, candidate_replicas)) + _MOST_AHEAD
        return [drawn] if not longest or is_busy else [best[:1], drawn]

    def on_request_routed(self, pending_request: PendingRequest, replica_id: ReplicaID, result: Any) -> None:
        """Remember at once where a prefix is being computed, for those that come next to it."""
        super().on_request_routed(pending_request, replica_id, result)
        if replica_id in self._known:
            self._known[replica_id].add(_keys_of(pending_request))

    def _known_of(self, replica: RunningReplica) -> KnownPrefixes:
        return self._known.setdefault(replica.replica_id, KnownPrefixes())

    def _load(self, replica: RunningReplica) -> int:
        return self.replica_queue_len_cache.get(replica.replica_id) or 0


def _keys_of(pending: PendingRequest | None) -> list[int]:
    """The keys that a door has added to its request; none of requests that come some other way."""
    request = pending.args[0] if pending is not None and pending.args else None
    return getattr(request, "keys", [])
