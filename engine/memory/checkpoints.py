"""At which positions of a sequence its state is kept, so that others, or itself later, can go on from there.

All are borders of blocks, because blocks have keys:

- every so many tokens, for prompts that share a long beginning;
- the last border before a prompt's last token: the same prompt again, and the samples of one, compute a block's tokens;
- where blocks of attention were found further than states: others share that prefix, so the next one finds it whole;
- from the last border of what is known when the sequence is admitted, each border of the answer. Of these only the
  newest is kept: the next turn of a conversation and a sequence that gave way go on from it.
"""

from collections.abc import Iterator

from ..request import Sequence


class Checkpoints:
    """The positions for one sequence, since it was admitted."""

    __slots__ = ("_block_size", "_branch", "_every", "_prompt_border", "_rolling_from")

    def __init__(self, sequence: Sequence, block_size: int, every: int, branch: int) -> None:
        """`branch`: up to where attention has found more blocks than there are states for, or 0."""
        self._block_size = block_size
        self._every = every
        self._branch = branch
        self._prompt_border = self._last_border(sequence.num_prompt)
        self._rolling_from = self._last_border(sequence.num_known)

    def between(self, start: int, end: int) -> Iterator[int]:
        """The positions in [start, end), in order; none at the very beginning, where every state is zeros."""
        size = self._block_size
        for border in range(max(size, -(-start // size) * size), end, size):
            is_single = border in (self._prompt_border, self._branch)
            if is_single or border >= self._rolling_from or self._is_regular(border):
                yield border

    def is_rolling(self, position: int) -> bool:
        """Whether it is kept only until the next one is found."""
        return position > self._prompt_border and not self._is_regular(position)

    def _is_regular(self, border: int) -> bool:
        """Whether a multiple of the distance lies in the block that begins here."""
        return (border + self._block_size - 1) // self._every > (border - 1) // self._every

    def _last_border(self, num_tokens: int) -> int:
        return (num_tokens - 1) // self._block_size * self._block_size
