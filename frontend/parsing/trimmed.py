"""Text without the white space around thoughts and calls, while it comes. Knows nothing of either."""


class Trimmed:
    """Lets text through, its white space only once more text follows."""

    def __init__(self, *, drops_beginning: bool = False) -> None:
        self._held = ""
        self._drops = drops_beginning  # white space that comes next

    def drop_what_follows(self) -> None:
        self._drops = True

    def drop_held(self) -> None:
        self._held = ""

    def feed(self, text: str) -> str:
        if self._drops:
            text = text.lstrip()
            self._drops = not text
        body = text.rstrip()
        if not body:
            self._held += text
            return ""
        shown, self._held = self._held + body, text[len(body) :]
        return shown

    def ending(self) -> str:
        """The white space held, now that nothing follows; none where a thought or a call was the last thing."""
        held, self._held = "" if self._drops else self._held, ""
        return held
