"""Compiled rules by which a SentencePiece model replaces characters (NFKC, case, white space).

The rules are a double-array trie over UTF-8 (darts-clone), whose values point into the replacement texts. At each
position the longest rule counts. Results are cached by character.
"""

import struct
from typing import NamedTuple

_MOST_KEPT = 1 << 16


class _Step(NamedTuple):
    node: int  # 0 if there is no longer rule
    replacement: str | None  # of the rule that ends here


class Charsmap:
    """The rules of a model; raises ValueError if they are truncated."""

    def __init__(self, compiled: bytes) -> None:
        if len(compiled) < 4:
            raise ValueError("its rules for characters are cut short")
        [size] = struct.unpack_from("<I", compiled)
        if size % 4 or not 4 <= size < len(compiled) - 4:
            raise ValueError("its rules for characters are cut short")
        self._units = struct.unpack_from(f"<{size // 4}I", compiled, 4)
        self._texts = compiled[4 + size :]
        self._root = _offset(self._units[0])
        self._steps: dict[tuple[int, str], _Step] = {}

    def longest(self, text: str, position: int) -> tuple[str, int] | None:
        """The replacement at a position, and where the replaced text ends; None if no rule begins there."""
        found = None
        node = self._root
        for end in range(position, len(text)):
            node, replacement = self._step(node, text[end])
            if replacement is not None:
                found = replacement, end + 1
            if not node:
                break
        return found

    def _step(self, node: int, character: str) -> _Step:
        step = self._steps.get((node, character))
        if step is None:
            if len(self._steps) >= _MOST_KEPT:
                self._steps.clear()
            step = self._steps[node, character] = self._walked(node, character)
        return step

    def _walked(self, node: int, character: str) -> _Step:
        replacement = None
        for byte in character.encode():
            replacement = None
            node ^= byte
            if node >= len(self._units) or self._units[node] & 0x800000FF != byte:
                return _Step(0, None)
            unit = self._units[node]
            node ^= _offset(unit)
            if unit >> 8 & 1 and node < len(self._units):
                replacement = self._text(self._units[node] & 0x7FFFFFFF)
        return _Step(node, replacement)

    def _text(self, start: int) -> str:
        end = self._texts.find(b"\0", start)
        return self._texts[start : end if end >= 0 else None].decode("utf-8", "replace")


def _offset(unit: int) -> int:
    return (unit >> 10) << ((unit & (1 << 9)) >> 6)
