"""Keys of prompts' prefixes for the choice of a tree, which stand for the same as those of `engine/memory/keys.py`.

That is all tokens and media up to the end of a block, the adapter and the `cache_salt`. These keys never leave the
process and only steer requests, so Python's own hash is enough: it takes a quarter of the time of a cryptographic one.
A long prompt has fewer keys than blocks.
"""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Sequence

from ...protocol.messages import Prompt
from ...protocol.wire import values

# A prefix is found to a part of its length: keys lie a block apart up to so many blocks, then twice as far, and so on.
_PRECISION = 8
_INT = 4  # bytes of a token


def key_ends(block_size: int, most_tokens: int) -> list[int]:
    """The lengths of the prefixes that have keys, in tokens."""
    ends, end = [], 0
    while (end := end + block_size * max(1, end // (block_size * _PRECISION))) <= most_tokens:
        ends.append(end)
    return ends


def prefix_keys(prompt: Prompt, ends: Sequence[int]) -> list[int]:
    """The keys of the prompt's prefixes with these lengths, as far as it goes."""
    params, packed = prompt.params, prompt.token_ids
    key, start, keys = hash((params.cache_salt, params.lora_name)), 0, []
    media = _media(prompt, ends) if prompt.media else {}
    for end in ends[: bisect_right(ends, len(packed) // _INT)]:
        key = hash((key, packed[_INT * start : _INT * end]))
        if end in media:
            key = hash((key, media[end]))
        keys.append(key)
        start = end
    return keys


def _media(prompt: Prompt, ends: Sequence[int]) -> dict[int, bytes]:
    """The digests of media whose rows begin in a prefix's last part, by its length. Tokens tell how long they are."""
    found: defaultdict[int, bytes] = defaultdict(bytes)
    for medium in prompt.media:
        for start in values(medium.spans)[::2]:
            if (index := bisect_right(ends, start)) < len(ends):
                found[ends[index]] += medium.digest
    return found
