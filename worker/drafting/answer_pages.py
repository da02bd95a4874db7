"""Finished answers in a bounded memory, and where in them each three tokens occur.

The memory is divided into pages. A page holds answers of one key only, and a key finds nothing but its own pages. When
all pages are taken, the oldest one of a key that has its share or more is overwritten: whoever floods the memory floods
what is their own. A key is small while it has few tokens, all in one page. Small keys have a quarter of the pages at
most, and a further one overwrites the oldest of them: whoever asks little under many keys pushes out no large key.

An occurrence is found by a hash of the three tokens before a position. Each key's table has the latest position of each
hash, and each position the one before it, so a chain's positions get older from one to the next. An overwritten page
leaves the chains without being looked for: a walk ends at the first position whose page is another's by now, or newer
than the one before it.
"""

from array import array
from collections import deque
from collections.abc import Iterator
from mmap import mmap

import numpy

from ...protocol.wire import TOKEN_BYTES
from .matches import LONGEST, longest

_PAGE = 1024  # tokens
_BYTES_PER_TOKEN = 15  # itself, the position before it, and its share of a table and of the one that replaces it
_ORDER = 3
_WALK = 12  # occurrences that are compared: each lies elsewhere in a large memory
_OVERLAP = 16  # tokens that an answer's next page repeats, so that what follows them is found there
_SMALL = _PAGE // 4  # tokens, below which a key is small
_NOTED_TOKENS = 128  # of memory for each answer that is noted
_NOTHING = -1  # what stands between two answers, before a page's first one and after its last one
_FACTORS = (0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9)
_ALL_BITS = 2**64 - 1


class AnswerPages:
    def __init__(self, most_bytes: int, most_answers: int | None = None) -> None:
        num_pages = max(2, most_bytes // (_BYTES_PER_TOKEN * _PAGE))
        # Zeros take no memory before they are overwritten.
        self._tokens = _zeros(num_pages * _PAGE)
        self._bytes = self._tokens.data.cast("B")
        self._earlier = _zeros(num_pages * _PAGE)  # 0, where no answer is, ends a chain
        self._owners: list[_Shelf | None] = [None] * num_pages
        self._ages = array("q", bytes(8 * num_pages))  # the greater, the later the page was begun
        self._num_begun = 0
        self._free = list(range(num_pages))[::-1]
        # Notes of answers take memory as well: of very short ones fewer are kept than was asked for.
        self._most_answers = None if most_answers is None else min(most_answers, num_pages * _PAGE // _NOTED_TOKENS)
        self._kept: deque[tuple[_Shelf, int, int]] = deque()  # of each answer, the age of its last page and its end
        self._shelves: dict[bytes, _Shelf] = {}  # those last that were added to last
        self._small: dict[bytes, _Shelf] = {}  # of these the small keys', likewise
        self._most_small = max(1, num_pages // 4)

    def add(self, key: bytes, answer: numpy.ndarray) -> None:
        if len(answer) <= _ORDER:
            return
        self._shelves[key] = shelf = self._shelves.pop(key, None) or _Shelf(key)
        while len(answer) > _ORDER:
            if shelf.room < 2 * _OVERLAP:
                self._begin_page(shelf)
            start = shelf.end + 1  # one is left between two answers
            piece = answer[: shelf.room - 1]
            shelf.end = start + len(piece)
            self._tokens[start : shelf.end] = piece
            self._link(shelf, start, piece)
            self._small.pop(key, None)
            if shelf.is_small:
                self._small[key] = shelf
            answer = answer[len(piece) - _OVERLAP :] if len(piece) < len(answer) else answer[:0]
        if self._most_answers is not None:
            self._kept.append((shelf, self._ages[shelf.pages[-1]], shelf.end))
            if len(self._kept) > self._most_answers:
                self._forget(*self._kept.popleft())

    def _forget(self, shelf: "_Shelf", age: int, end: int) -> None:
        """Forget a shelf's answers up to the one that ends there, in the page of that age."""
        while shelf.pages and self._ages[shelf.pages[0]] < age:
            self._free.append(self._oldest_page(shelf))
        if shelf.pages and self._ages[shelf.pages[0]] == age:
            shelf.forgotten = end

    def _begin_page(self, shelf: "_Shelf") -> None:
        if not shelf.pages and len(self._small) >= self._most_small:
            page = self._oldest_page(next(iter(self._small.values())))
        else:
            page = self._free.pop() if self._free else self._taken_page()
        self._num_begun += 1
        self._owners[page], self._ages[page] = shelf, self._num_begun
        self._tokens[page * _PAGE : (page + 1) * _PAGE] = _NOTHING
        self._shelves[shelf.key] = shelf  # again, if its only page was taken
        shelf.pages.append(page)
        shelf.end = page * _PAGE + LONGEST - 1
        self._fit_table(shelf)

    def _taken_page(self) -> int:
        """Take the oldest page of a key that has its share or more, of all those the one longest not added to.

        Small keys don't count. The key that needs the page does, as it has none yet or has filled one.
        """
        num_taken, num_shelves = len(self._owners) - len(self._small), len(self._shelves) - len(self._small)
        have_share = (each for each in self._shelves.values() if len(each.pages) * num_shelves >= num_taken)
        return self._oldest_page(next(each for each in have_share if each.key not in self._small))

    def _oldest_page(self, shelf: "_Shelf") -> int:
        page = shelf.pages.popleft()
        self._owners[page] = None
        shelf.forgotten = 0
        self._fit_table(shelf)
        if not shelf.pages:
            del self._shelves[shelf.key]
            self._small.pop(shelf.key, None)
        return page

    def _fit_table(self, shelf: "_Shelf") -> None:
        """Give a shelf about a hash a token. If there are fewer than before, the older of two chains is given up."""
        size, before = 1 << (max(1, len(shelf.pages)) * _PAGE).bit_length() - 1, shelf.latest
        if size == len(before):
            return
        shelf.latest = _zeros(size)
        shelf.shift = 65 - size.bit_length()
        if size > len(before):
            shelf.latest.reshape(len(before), -1)[:] = before[:, None]
            return
        ages = numpy.frombuffer(self._ages, numpy.int64)
        for start in range(0, size, _PAGE):  # in pieces, as it takes memory
            chains = before.reshape(size, -1)[start : start + _PAGE]
            newest = (ages[chains // _PAGE] * _PAGE + chains % _PAGE).argmax(axis=1)
            shelf.latest[start : start + _PAGE] = chains[numpy.arange(len(chains)), newest]

    def _link(self, shelf: "_Shelf", start: int, piece: numpy.ndarray) -> None:
        """Put each position that three tokens of the piece precede at the head of its chain."""
        tokens = piece.astype(numpy.uint64)
        first, second, third = (numpy.uint64(factor) for factor in _FACTORS)
        mixed = tokens[:-3] * first + tokens[1:-2] * second + tokens[2:-1] * third
        hashes = (mixed >> numpy.uint64(shelf.shift)).astype(numpy.int64)
        order = numpy.argsort(hashes, kind="stable")
        hashes, positions = hashes[order], order + start + _ORDER
        is_again = hashes[1:] == hashes[:-1]
        earlier = shelf.latest[hashes]
        earlier[1:][is_again] = positions[:-1][is_again]
        self._earlier[positions] = earlier
        is_last = numpy.append(~is_again, True)
        shelf.latest[hashes[is_last]] = positions[is_last]

    def matches(self, key: bytes, last: "array[int]", end: int) -> list[tuple[int, int]]:
        """Return the longest matches of a text's last tokens (`end`: as one number), with their positions."""
        shelf = self._shelves.get(key)
        if shelf is None or last[-_ORDER] == _NOTHING:
            return []
        return [each for each in longest(self._bytes, self._positions(shelf, last), end) if each[0] >= _ORDER]

    def _positions(self, shelf: "_Shelf", last: "array[int]") -> Iterator[int]:
        """Yield the positions of a shelf whose hash is that of the last tokens, from the latest on."""
        first, second, third = _FACTORS
        mixed = (last[-3] * first + last[-2] * second + last[-1] * third) & _ALL_BITS
        position, age = shelf.latest.item(mixed >> shelf.shift), self._num_begun
        for _ in range(_WALK):
            page = position // _PAGE
            if not position or self._owners[page] is not shelf or self._ages[page] > age:
                return
            if position < shelf.forgotten and page == shelf.pages[0]:
                return
            yield position
            position, age = self._earlier.item(position), self._ages[page]

    def following(self, position: int, most: int) -> list[int]:
        """Return the answer's next tokens, up to the end of its page."""
        stop = min(position + most, (position // _PAGE + 1) * _PAGE)
        following: list[int] = self._tokens[position:stop].tolist()
        return following[: following.index(_NOTHING)] if _NOTHING in following else following


class _Shelf:
    """The pages of one key, the oldest first, and the latest position of each hash."""

    def __init__(self, key: bytes) -> None:
        self.key = key
        self.pages: deque[int] = deque()
        self.end = 0  # of what is written in the last page
        self.forgotten = 0  # the end of what is forgotten in the first page; 0: nothing is
        self.latest = numpy.zeros(1, numpy.int32)
        self.shift = 64  # the highest bits of a hash are an index into it

    @property
    def is_small(self) -> bool:
        return len(self.pages) == 1 and self.room > _PAGE - _SMALL

    @property
    def room(self) -> int:
        return (self.pages[-1] + 1) * _PAGE - self.end if self.pages else 0


def _zeros(size: int) -> numpy.ndarray:
    """Return memory that goes back to the system at once when it is replaced; an allocator would keep much of it."""
    return numpy.frombuffer(mmap(-1, size * TOKEN_BYTES), numpy.int32)
