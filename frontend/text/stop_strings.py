"""Ends a text at the first completed stop string, and shows no part of it before; does the same for stop words, which
are sequences of token ids.

The text is fed one token at a time, and the result does not depend on how it was cut into tokens.
"""

from collections.abc import Collection, Iterable, Sequence
from functools import lru_cache

from .incremental import IncrementalDecoder


class StopStrings:
    """The stop strings of a request, prepared for search; shared by all requests with the same ones."""

    def __init__(self, strings: tuple[str, ...]) -> None:
        self.strings = strings
        self.longest = max(map(len, strings))
        self.prefixes = {text[:length] for text in strings for length in range(1, len(text))}
        self.inner_characters = {character for text in strings for character in text[:-1]}

    def first_completed(self, text: str, after: int) -> tuple[int, str] | None:
        """Where the stop string begins that ends first beyond `after`, as if text arrived one character at a time."""
        found: tuple[int, int, str] | None = None
        for stop in self.strings:
            start = text.find(stop, max(0, after - len(stop) + 1))
            if start >= 0 and (found is None or (start + len(stop), start) < found[:2]):
                found = (start + len(stop), start, stop)
        return found and (found[1], found[2])

    def unfinished(self, text: str) -> int:
        """Where the longest suffix of the text begins that could still become a stop string."""
        if not text or text[-1] not in self.inner_characters:
            return len(text)
        for start in range(max(0, len(text) - self.longest + 1), len(text)):
            if text[start:] in self.prefixes:
                return start
        return len(text)


@lru_cache(maxsize=256)
def stop_strings(strings: tuple[str, ...]) -> StopStrings:
    return StopStrings(strings)


class StopChecker:
    """Passes a text on up to its first stop string, but never a part of one.

    It is fed the text of one token at a time, so that the caller knows which token completed the stop string.
    """

    __slots__ = ("_held", "_included", "_min_tokens", "_num_tokens", "_stops", "found")

    def __init__(
        self, strings: Sequence[str], *, include_stop_str_in_output: bool = False, min_tokens: int = 0
    ) -> None:
        self._stops = stop_strings(tuple(strings))
        self._included = include_stop_str_in_output
        self._min_tokens = min_tokens  # a stop string that one of these completes is ordinary text
        self._num_tokens = 0
        self._held = ""  # the end of the text so far, if it could become a stop string
        self.found: str | None = None

    def feed(self, text: str) -> str:
        """The text that may be shown after one more token with this text. Once `found` is set, the text is complete."""
        self._num_tokens += 1
        if not text:
            return ""
        seen = len(self._held)
        text = self._held + text
        if self._num_tokens > self._min_tokens and (found := self._stops.first_completed(text, seen)):
            start, self.found = found
            self._held = ""
            return text[: start + len(self.found)] if self._included else text[:start]
        border = self._stops.unfinished(text)
        self._held = text[border:]
        return text[:border]

    def release(self, text: str = "") -> str:
        """The text that was held back, now that only `text` follows."""
        held, self._held = self._held, ""
        return held + text


class StopSearch:
    """Finds completed stop strings while it isn't known yet whether their tokens become text or a stop word."""

    __slots__ = ("_checker", "_decoder")

    def __init__(self, decoder: IncrementalDecoder, checker: StopChecker) -> None:
        self._decoder = decoder
        self._checker = checker

    def is_completed_by(self, token_ids: Iterable[int]) -> bool:
        """Whether one of the next tokens completes a stop string; later tokens are not read."""
        for token_id in token_ids:
            self._checker.feed(self._decoder.feed((token_id,)))
            if self._checker.found is not None:
                return True
        return False


class StopWords:
    """The token sequences that end an answer; none of their text is shown."""

    __slots__ = ("_prefixes", "_words")

    def __init__(self, words: Sequence[Sequence[int]]) -> None:
        self._words = {tuple(word) for word in words}
        self._prefixes = {word[:length] for word in self._words for length in range(1, len(word))}

    def num_begun(self, token_ids: Sequence[int]) -> int:
        """How many of the last tokens could still become a stop word."""
        return _longest_end(token_ids, self._prefixes)

    def num_ending(self, token_ids: Sequence[int]) -> int:
        """The length of the stop word that these tokens end with; 0 if there is none."""
        return _longest_end(token_ids, self._words)


def _longest_end(token_ids: Sequence[int], among: Collection[tuple[int, ...]]) -> int:
    longest = min(len(token_ids), max(map(len, among)))
    ends = (length for length in range(longest, 0, -1) if tuple(token_ids[-length:]) in among)
    return next(ends, 0)
