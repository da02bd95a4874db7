"""A call that may be written in several formats: its first character decides."""

from collections.abc import Mapping

from ..marks import CallPiece, CallReader, ReaderOf, Tools


class FormatChoice:
    """A `CallReader` that delegates to the reader whose key begins the inside; "" is for all others."""

    def __init__(self, tools: Tools, readers: Mapping[str, ReaderOf]) -> None:
        self._tools = tools
        self._readers = readers
        self._chosen: CallReader | None = None
        self._has_begun = False

    @property
    def is_text(self) -> bool:
        return self._has_begun if self._chosen is None else self._chosen.is_text

    @property
    def is_over(self) -> bool:
        return self._chosen is not None and self._chosen.is_over

    @property
    def is_whole(self) -> bool:
        return self._chosen is not None and self._chosen.is_whole

    @property
    def text(self) -> str:
        return self._chosen.text if self._chosen is not None else ""

    @property
    def rest(self) -> str:
        return self._chosen.rest if self._chosen is not None else ""

    def feed(self, text: str) -> list[CallPiece]:
        if not self._has_begun:
            text = text.lstrip()
            self._has_begun = bool(text)
            reader = self._readers.get(text[:1]) or self._readers.get("")
            if self._has_begun and reader is not None:
                self._chosen = reader(self._tools)
        return self._chosen.feed(text) if self._chosen is not None else []

    def close(self, *, is_cut: bool) -> list[CallPiece]:
        return self._chosen.close(is_cut=is_cut) if self._chosen is not None else []
