"""SentencePiece's unigram model: of all ways to split a text into pieces, it chooses the one with the highest sum of
scores.

Sums are float32, as in SentencePiece 0.2.2 and later, so that the same one of nearly equal splits wins; of equal ones,
the first. (Earlier versions compared sums before rounding, and choose differently between these.)
"""

from array import array

from .pieces import PieceIndex
from .sentencepiece_model import Kind, SentencePieceModel

_UNKNOWN_PENALTY = 10.0
# A user-defined piece is worth this for each byte but one, so that it wins over any split of it.
_USER_DEFINED_BONUS = 0.1
# Below this, sums restart from zero, before they are too coarse to distinguish splits.
_LOWEST_SUM = -100_000.0


class PieceLattice:
    def __init__(self, model: SentencePieceModel) -> None:
        normal = [piece.score for piece in model.pieces if piece.kind == Kind.NORMAL]
        self._unknown_score = _rounded(min(normal, default=0.0) - _UNKNOWN_PENALTY)
        self._scores = {
            piece.text: piece.score if piece.kind == Kind.NORMAL else _user_defined_score(piece.text)
            for piece in model.pieces
            if piece.kind in (Kind.NORMAL, Kind.USER_DEFINED)
        }
        self._index = PieceIndex(self._scores)
        self._longest = max(map(len, self._scores), default=1)

    def pieces(self, text: str) -> list[str]:
        size = len(text)
        sums = array("f", bytes(4 * (size + 1)))  # of the best split up to each position; stored in float32
        starts = [-1] * (size + 1)  # where the last piece of that split begins
        for start in range(size):
            if sums[start] < _LOWEST_SUM:
                _raise(sums, starts, start, start + self._longest)
            so_far = sums[start]
            has_character = False
            for end in self._index.ends(text, start):
                has_character = has_character or end == start + 1
                total = _rounded(self._scores[text[start:end]] + so_far)
                if starts[end] < 0 or total > sums[end]:
                    sums[end], starts[end] = total, start
            if not has_character:
                total = _rounded(self._unknown_score + so_far)
                if starts[start + 1] < 0 or total > sums[start + 1]:
                    sums[start + 1], starts[start + 1] = total, start
        return _way(text, starts)


def _raise(sums: "array[float]", starts: list[int], first: int, last: int) -> None:
    """Subtract the sum of the first position from those of all positions reached so far."""
    lowest = sums[first]
    for position in range(first, min(last, len(sums) - 1) + 1):
        if position == first or starts[position] >= 0:
            sums[position] -= lowest


def _way(text: str, starts: list[int]) -> list[str]:
    found: list[str] = []
    end = len(text)
    while end:
        found.append(text[starts[end] : end])
        end = starts[end]
    return found[::-1]


def _user_defined_score(piece: str) -> float:
    return _rounded(len(piece.encode()) * _USER_DEFINED_BONUS - _USER_DEFINED_BONUS)


def _rounded(value: float) -> float:
    return array("f", (value,))[0]
