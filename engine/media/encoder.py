"""Plans the encoder's work along with the text part's steps: each step does part of the work.

A sequence holds the media whose rows it has yet to compute, in order and without gaps, as far as there is room. So the
first of them can always be encoded, computed and released, whatever others hold. Media are encoded one after another,
in the order of the sequences that wait for them. A chunk of a prompt ends before the rows of a medium that isn't fully
planned. If a request ends while its medium is half encoded, the medium is dropped.

Work is counted in patches x layers; attention to many keys counts as extra patches, so that work is proportional to
time. Each step has a budget, which may run out anywhere in a layer.
"""

from collections import Counter, deque
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ...protocol.media import Encode, MediaPlan, MediaRows, Medium
from ..request import Sequence
from ..step import Allowance, ScheduledStep
from .entries import Entries, Entry, Key
from .request_media import RequestMedia
from .work import LEAST_WORK, work_of

if TYPE_CHECKING:
    from .kept_rows import KeptRows

NO_ENCODER = MediaPlan(num_rows=0, row_bytes=0, num_layers=0, most_patches=0, most_of_frame=0)


class Encoder:
    def __init__(self, plan: MediaPlan | None, most_tokens: int) -> None:
        """`most_tokens` is the most tokens of a step."""
        self.plan = plan or NO_ENCODER
        self.most_tokens = most_tokens
        self.entries = Entries(self.plan.num_rows)
        self.kept: KeptRows | None = None  # on disk
        self.num_encoded = 0  # media planned to their end
        self._held: dict[Sequence, deque[tuple[int, Entry]]] = {}  # with the index of each medium, ascending
        self._encoding_for: Sequence | None = None  # the sequence for which an entry is half encoded
        self._budget = 0

    @property
    def awaits_rows(self) -> bool:
        """Whether rows are on their way from the disk."""
        return self.kept is not None and self.kept.is_awaited

    def begin_step(self, budget: int) -> None:
        """Begin a step with this budget of work."""
        self._budget = max(LEAST_WORK, budget) if budget else 0

    def drop_abandoned(self) -> bool:
        """Drop a half-encoded entry whose sequence has ended; True if there was one."""
        half, waiting = self.entries.half_encoded, self._encoding_for
        if half is None or half.num_holders or waiting is None or not waiting.has_ended:
            return False
        self.entries.give_up(half)
        return True

    def reach(
        self,
        sequence: Sequence,
        media: RequestMedia,
        step: ScheduledStep,
        position: int,
        budget: int,
        allowance: Allowance,
    ) -> int:
        """Plan work on the media of a sequence that continues at a position. Returns how many tokens, `budget` at
        most, it can compute in this step with this allowance for prompts."""
        reach, work_before = budget, step.encoder_work
        for index in media.needed_from(position):
            entry = self._hold(sequence, media, index, step)
            if entry is None or not self._encode(sequence, index, entry, step):
                reach = max(0, min(reach, media.start_of(index, position) - position))
                if entry is None or self._budget <= 0:
                    break
        reach = allowance.beside(step.encoder_work - work_before, reach)
        return self._with_whole_spans(media, position, reach, self.most_tokens - sum(step.num_tokens))

    def _with_whole_spans(self, media: RequestMedia, position: int, reach: int, room: int) -> int:
        """The same reach, shortened so that it cuts no span. A span that comes next may use all the room in the
        step, beyond the prompts' share: it can't be computed in parts."""
        span = media.span_cut_at(position + reach) if reach else None
        if span is None:
            return reach
        if span.start > position:
            return span.start - position
        return span.end - position if span.end - position <= room else 0

    def rows_of(self, sequence: Sequence, media: RequestMedia, start: int, end: int, row: int) -> Iterator[MediaRows]:
        """The rows of media that the tokens of this stretch get, as row number `row` of a step."""
        entries = dict(self._held.get(sequence, ()))
        for span in media.between(start, end):
            entry = entries[span.medium]
            yield MediaRows(row, span.start - start, span.end - span.start, entry.number, span.first_row)

    def release_up_to(self, sequence: Sequence, media: RequestMedia, end: int, step: ScheduledStep) -> None:
        """Release the media whose rows this step, or an earlier one, has used to the last: those before `end`."""
        held = self._held.get(sequence) or deque()
        while held and media.ends[held[0][0]] <= end:
            entry = held.popleft()[1]
            entry.used_in = step.number
            self.entries.release(entry)
            if self.kept is not None:
                self.kept.note_used(entry)
        if not held:
            self._held.pop(sequence, None)

    def release(self, sequence: Sequence) -> None:
        """Release the media of a sequence that leaves its slot, or didn't get one."""
        for _, entry in self._held.pop(sequence, ()):
            self.entries.release(entry)

    def forget(self, sequence: Sequence) -> None:
        """Forget the media of a failed sequence, so that no other sequence reads their rows."""
        keys = [_key_of(sequence, medium) for medium in sequence.request.prompt.media]
        for key in keys:
            self.entries.forget(key)
        if self.kept is not None:
            self.kept.forget(keys)

    def _hold(self, sequence: Sequence, media: RequestMedia, index: int, step: ScheduledStep) -> Entry | None:
        held = self._held.get(sequence)
        if held is not None and index <= held[-1][0]:
            return held[index - held[0][0]][1]
        medium = media.media[index]
        work = work_of(medium, self.plan)
        entry = self.entries.hold(_key_of(sequence, medium), media.num_rows[index], work, step.number)
        if entry is not None:
            self._held.setdefault(sequence, deque()).append((index, entry))
            if self.kept is not None:
                self.kept.look_for(entry, step.number)
        return entry

    def _encode(self, sequence: Sequence, index: int, entry: Entry, step: ScheduledStep) -> bool:
        """Plan as much of the work on an entry as the budget allows; True if all of it is planned."""
        left = entry.work - entry.done
        if left == 0:
            return True
        if entry.is_coming or self._budget <= 0 or not self.entries.may_advance(entry, step.number):
            return False
        count = min(left, self._budget)
        encode = Encode(entry.number, entry.done, count)
        if entry.done == 0:
            medium = sequence.request.prompt.media[index]
            encode.kind, encode.pixels, encode.shape = medium.kind, medium.pixels, medium.shape
            encode.num_rows, encode.work = entry.num_rows, entry.work
        step.encodes.append(encode)
        step.encoder_work += count
        self._budget -= count
        self._encoding_for = sequence
        self.entries.advance(entry, count, step.number)
        if count < left:
            return False
        self.num_encoded += 1
        if self.kept is not None:
            self.kept.note_encoded(entry)
        return True

    def check(self, running: list[Sequence]) -> None:
        """Raise unless only running sequences hold entries, and each entry has as many holders as counted."""
        if strangers := self._held.keys() - set(running):
            raise RuntimeError(f"{[each.id for each in strangers]} hold media but do not run.")
        self.entries.check(Counter(entry for held in self._held.values() for _, entry in held))


def _key_of(sequence: Sequence, medium: Medium) -> Key:
    return medium.digest, sequence.request.prompt.params.cache_salt
