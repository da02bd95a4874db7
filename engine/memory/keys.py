"""Keys that find blocks and states: chained hashes of all tokens up to a block's end.

A key is a chained cryptographic hash of those tokens and of everything else that the content depends on: equal keys
mean equal content. All groups of layers use the same keys; a state has the key of the block at whose end it is kept. It
is cryptographic because with `cache_salt` the key is all that keeps one tenant from reading another's prefix.

All keys of a chain end with the mark of its adapter, so that what was computed with an adapter can be recognised.
"""

from hashlib import blake2b

import msgspec

from ...protocol.layer_groups import KEY_BYTES
from ..request import Sequence

_MARK_BYTES = 8
_DIGEST_BYTES = KEY_BYTES - _MARK_BYTES
NO_MARK = bytes(_MARK_BYTES)  # without an adapter


def mark_of(adapter: int | str | None) -> bytes:
    """The end of all keys of blocks computed with this adapter."""
    if adapter is None:
        return NO_MARK
    return blake2b(msgspec.msgpack.encode(adapter), digest_size=_MARK_BYTES, person=b"penstock adapter").digest()


def mark_in(key: bytes) -> bytes:
    return key[-_MARK_BYTES:]


def root_key(cache_salt: str | None, adapter: int | str | None, only_request: int | None) -> bytes:
    """The first link: requests that differ in one of these share nothing. `only_request` excludes all others."""
    parts = msgspec.msgpack.encode((cache_salt, adapter, only_request))
    return blake2b(parts, digest_size=_DIGEST_BYTES, person=b"penstock kv root").digest() + mark_of(adapter)


def store_key(cache_salt: str | None, adapter: int | str | None, client: str) -> bytes:
    """The key of the answers that a request may draft from. Clients share none: how many drafts are accepted tells of
    the answers."""
    parts = msgspec.msgpack.encode((cache_salt, adapter, client))
    return blake2b(parts, digest_size=16, person=b"penstock drafts").digest()


def stretched_key(root: bytes, stretch: int) -> bytes:
    """The first link for positions that are rotated for longer requests: they can't share blocks with other lengths."""
    if stretch == 0:
        return root
    content = root + stretch.to_bytes(4)
    return blake2b(content, digest_size=_DIGEST_BYTES, person=b"penstock stretch").digest() + mark_in(root)


def next_key(previous: bytes, content: bytes) -> bytes:
    """The key of the block after the block with key `previous`. `content` is its packed tokens, followed by the
    media rows among them."""
    return blake2b(previous + content, digest_size=_DIGEST_BYTES).digest() + previous[_DIGEST_BYTES:]


def key_of(sequence: Sequence, index: int, block_size: int) -> bytes:
    """The key of a sequence's index-th block, whose tokens are all known."""
    keys, offset = _keys_of_part(sequence, index, block_size)
    position = index - offset
    if position >= len(keys):
        _derive_up_to(sequence, index, block_size)
    return keys[position]


def derived_keys(sequence: Sequence) -> list[bytes]:
    """All of its keys computed so far."""
    return sequence.request.prompt_keys[sequence.stretch] + sequence.output_keys


def _derive_up_to(sequence: Sequence, last: int, block_size: int) -> None:
    index, previous = _newest(sequence, last, block_size)
    media = sequence.request.media
    while index < last:
        index += 1
        start, end = index * block_size, (index + 1) * block_size
        content = sequence.packed_tokens(start, end)
        if media is not None:
            content += media.key_part(start, end)
        previous = next_key(previous, content)
        _keys_of_part(sequence, index, block_size)[0].append(previous)


def _newest(sequence: Sequence, index: int, block_size: int) -> tuple[int, bytes]:
    """The last block up to this one that has a key already, and that key; -1 and the first link if there is none."""
    while index >= 0:
        keys, offset = _keys_of_part(sequence, index, block_size)
        if keys:
            return offset + len(keys) - 1, keys[-1]
        index = offset - 1
    return -1, stretched_key(sequence.request.root, sequence.stretch)


def _keys_of_part(sequence: Sequence, index: int, block_size: int) -> tuple[list[bytes], int]:
    """The list that has, or will have, the key of this block, and the index of the list's first block."""
    request = sequence.request
    num_prompt_blocks = request.num_prompt // block_size
    if index < num_prompt_blocks:
        return request.prompt_keys[sequence.stretch], 0
    return sequence.output_keys, num_prompt_blocks
