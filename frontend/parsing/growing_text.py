"""Text that comes in many pieces: adding one doesn't copy those before it; and the same with white space trimmed."""



class GrowingText:
    __slots__ = ("_pieces", "length")

    def __init__(self) -> None:
        self._pieces: list[str] = []
        self.length = 0

    def __bool__(self) -> bool:
        return self.length > 0

    def __str__(self) -> str:
        if len(self._pieces) > 1:
            self._pieces = ["".join(self._pieces)]
        return self._pieces[0] if self._pieces else ""

    def add(self, text: str) -> None:
        if text:
            self._pieces.append(text)
            self.length += len(text)

    def take(self) -> str:
        """All of it; nothing is left."""
        text = str(self)
        self._pieces, self.length = [], 0
        return text


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
