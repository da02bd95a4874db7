"""SentencePiece's BPE: of all neighbours that form a piece, those with the highest score are merged first, leftmost
first. Unused pieces take part, and are split again at the end.
"""

from heapq import heapify, heappop, heappush

from .pieces import PieceIndex
from .sentencepiece_model import Algorithm, Kind, SentencePieceModel

_MERGED = (Kind.NORMAL, Kind.USER_DEFINED, Kind.UNUSED)


class PieceMerger:
    def __init__(self, model: SentencePieceModel) -> None:
        # Models of characters split text but have no merges.
        merged = () if model.algorithm == Algorithm.CHAR else _MERGED
        self._scores = {piece.text: piece.score for piece in model.pieces if piece.kind in merged}
        self._unused = frozenset(model.texts(Kind.UNUSED))
        self._user_defined = PieceIndex(model.texts(Kind.USER_DEFINED))

    def pieces(self, text: str) -> list[str]:
        symbols, is_frozen = self._symbols(text)
        parts_of: dict[str, tuple[str, str]] = {}
        following = [*range(1, len(symbols)), -1]
        preceding = list(range(-1, len(symbols) - 1))

        def candidate(left: int, right: int) -> tuple[float, int, int, int] | None:
            if left < 0 or right < 0 or is_frozen[left] or is_frozen[right]:
                return None
            merged = symbols[left] + symbols[right]
            score = self._scores.get(merged)
            if score is None:
                return None
            if merged in self._unused:
                parts_of[merged] = symbols[left], symbols[right]
            return -score, left, right, len(merged)

        waiting = [pair for left in range(len(symbols) - 1) if (pair := candidate(left, left + 1))]
        heapify(waiting)
        while waiting:
            _, left, right, length = heappop(waiting)
            # Either side may have been merged with another meanwhile.
            if not symbols[left] or not symbols[right] or len(symbols[left]) + len(symbols[right]) != length:
                continue
            symbols[left] += symbols[right]
            symbols[right] = ""
            after = following[left] = following[right]
            if after >= 0:
                preceding[after] = left
            for pair in (candidate(preceding[left], left), candidate(left, after)):
                if pair:
                    heappush(waiting, pair)
        return [piece for symbol in symbols if symbol for piece in self._used(symbol, parts_of)]

    def _symbols(self, text: str) -> tuple[list[str], list[bool]]:
        """Split into characters, and user-defined pieces, which are frozen."""
        if not self._user_defined:
            return list(text), [False] * len(text)
        symbols: list[str] = []
        is_frozen: list[bool] = []
        position = 0
        while position < len(text):
            end = self._user_defined.longest_end(text, position)
            is_frozen.append(end > 0)
            symbols.append(text[position : end or position + 1])
            position = end or position + 1
        return symbols, is_frozen

    def _used(self, symbol: str, parts_of: dict[str, tuple[str, str]]) -> list[str]:
        pending, found = [symbol], []
        while pending:
            piece = pending.pop()
            if piece in self._unused and piece in parts_of:
                pending += reversed(parts_of[piece])
            else:
                found.append(piece)
        return found
