"""The key of a KV block: a chained cryptographic hash of all tokens up to its end, and of what else its content is of.

Equal keys mean equal keys and values, so a block may be used by whoever finds it. Cryptographic, because with
`cache_salt` the key is all that keeps one tenant from reading another's prefix.
"""

from hashlib import blake2b

import msgspec

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
