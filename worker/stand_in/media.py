"""The stand-in worker's media: which entries are encoded, how far, and what their rows stand for.

It checks the rules of `docs/sight.md`: work comes in order and once, on one entry at a time; rows are only used when
the work is done and the entry wasn't dropped; and no more rows are kept than the memory plan allows. A row is
represented by the hash of its medium and the row's number.
"""

from collections.abc import Iterator, Sequence

from ...protocol.layer_groups import FetchRows
from ...protocol.media import Encode, MediaPlan, MediaRows
from ...protocol.messages import StepPlan
from ...protocol.wire import values
from ...records import dataclass
from ..plan_error import PlanError

Row = tuple[int, int]  # the hash of a medium, and the row's number


@dataclass(slots=True)
class StoredEntry:
    content: int
    num_rows: int
    work: int
    done: int = 0
    is_coming: bool = False  # from the disk; it may be encoded instead

    @property
    def is_encoded(self) -> bool:
        return self.done == self.work


class MediaMemory:
    def __init__(self, plan: MediaPlan | None) -> None:
        self._plan = plan
        self._entries: dict[int, StoredEntry] = {}
        self.num_encoded = 0  # media, since the start

    @property
    def has_whole_spans(self) -> bool:
        return self._plan is not None and self._plan.has_whole_spans

    def apply(self, plan: StepPlan) -> None:
        """Drop entries, encode, then make room for those that are fetched."""
        for number in values(plan.dropped_entries):
            if self._entries.pop(number, None) is None:
                raise PlanError(f"The plan drops entry {number}, which is not there.")
        for encode in plan.encodes:
            self._encode(encode)
        for fetch in plan.disk.fetched_rows if plan.disk is not None else ():
            self._reserve(fetch)

    def _reserve(self, fetch: FetchRows) -> None:
        if fetch.entry in self._entries:
            raise PlanError(f"The plan fetches entry {fetch.entry}, which is there.")
        self._keep(fetch.entry, StoredEntry(0, fetch.num_rows, 1, is_coming=True))

    def content(self, entry: int) -> int | None:
        """What the rows of an encoded entry stand for."""
        found = self._entries.get(entry)
        return found.content if found is not None and found.is_encoded else None

    def fill(self, entry: int, content: int) -> bool:
        """Fill an entry from the disk; False if it was dropped or is encoded."""
        found = self._entries.get(entry)
        if found is None or not found.is_coming:
            return False
        found.content, found.done = content, found.work
        return True

    def _encode(self, encode: Encode) -> None:
        if encode.first == 0:
            self._begin(encode)
        entry, end = self._entries.get(encode.entry), encode.first + encode.count
        if entry is None or not entry.done == encode.first < end <= entry.work:
            raise PlanError(f"The plan does {encode.first} to {end} of the work on entry {encode.entry}: {entry}.")
        entry.done = end
        self.num_encoded += end == entry.work

    def _begin(self, encode: Encode) -> None:
        before = self._entries.get(encode.entry)
        if before is not None and not (before.is_coming and before.num_rows == encode.num_rows):
            raise PlanError(f"The plan begins entry {encode.entry} twice.")
        begun = {number: entry for number, entry in self._entries.items() if not entry.is_coming}
        if others := [number for number, entry in begun.items() if not entry.is_encoded]:
            raise PlanError(f"The plan begins entry {encode.entry} amid {others}.")
        content = content_of(encode.kind, encode.pixels)
        self._keep(encode.entry, StoredEntry(content, encode.num_rows, encode.work))

    def _keep(self, number: int, entry: StoredEntry) -> None:
        if self._plan is None:
            raise PlanError("The plan keeps rows of a medium, and the model sees none.")
        self._entries[number] = entry
        num_rows, capacity = sum(each.num_rows for each in self._entries.values()), self._plan.num_rows
        if entry.num_rows < 1 or num_rows > capacity:
            raise PlanError(f"The plan keeps {num_rows} rows of media, and {capacity} fit.")

    def rows(self, media: Sequence[MediaRows], num_tokens: Sequence[int]) -> Iterator[tuple[int, int, Row]]:
        """Yield for each token that gets a media row: the step's row, the token's number in it, and the media row."""
        ends = (-1, 0)  # the previous row, and the end of its tokens
        for each in media:
            entry = self._entries.get(each.entry)
            if entry is None or not entry.is_encoded:
                raise PlanError(f"The plan uses rows of entry {each.entry}, which is not encoded: {entry}.")
            end = each.offset + each.count
            is_behind = (each.row, each.offset) >= ends and each.count > 0 <= each.offset
            if not is_behind or each.row >= len(num_tokens) or end > num_tokens[each.row]:
                raise PlanError(f"The plan puts rows of media where the step has no tokens for them: {each}.")
            if each.first < 0 or each.first + each.count > entry.num_rows:
                raise PlanError(f"The plan uses rows that entry {each.entry} doesn't have: {each}, {entry}.")
            ends = (each.row, end)
            for number in range(each.count):
                yield each.row, each.offset + number, (entry.content, each.first + number)


def content_of(kind: str, pixels: bytes) -> int:
    return hash((kind, pixels))
