"""A text that comes in many pieces: adding one doesn't copy those before it. Knows nothing of what it says."""


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
