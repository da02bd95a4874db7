"""Text without the white space around thoughts and calls, while it comes. Knows nothing of either."""

from .growing_text import GrowingText


class Trimmed:
    """Lets text through, its white space only once more text follows."""

    def __init__(self, *, drops_beginning: bool = False) -> None:
        self._held = GrowingText()  # white space
        self._drops = drops_beginning  # white space that comes next

    def drop_what_follows(self) -> None:
        self._drops = True

    def drop_held(self) -> None:
        self._held.take()

    def feed(self, text: str) -> str:
        if self._drops:
            text = text.lstrip()
            self._drops = not text
        body = text.rstrip()
        shown = self._held.take() + body if body else ""
        self._held.add(text[len(body) :])
        return shown

    def ending(self) -> str:
        """The white space held, now that nothing follows; none where a thought or a call was the last thing."""
        held = self._held.take()
        return "" if self._drops else held
