"""Plans the encoder's work beside the steps of the text part: some layers of some media a step.

A sequence holds the media that it still has rows of to compute, in their order and without a gap, as far as there is
room. So the first of them can always be encoded, computed and released, whatever others hold. Media are encoded in the
order of the sequences that wait for them; a chunk of a prompt ends before rows that no layer is left to be planned for.

The budget of a step is in patches x layers. It is spent whole layer by whole layer, at least one of one medium.
"""

from collections import Counter, deque

from ...protocol.media import Encode, MediaPlan, MediaRows
from ..admission.pace import Allowance
from ..request import Sequence
from ..step import ScheduledStep
from .entries import Entries, Entry
from .request_media import RequestMedia

NO_ENCODER = MediaPlan(num_rows=0, row_bytes=0, num_layers=0, most_patches=0, most_at_once=0)


class Encoder:
    def __init__(self, plan: MediaPlan | None, most_tokens: int) -> None:
        """A step has at most so many tokens."""
        self.plan = plan or NO_ENCODER
        self.most_tokens = most_tokens
        self.entries = Entries(self.plan.num_rows)
        self.num_encoded = 0  # media whose layers were all planned
        self._held: dict[Sequence, deque[tuple[int, Entry]]] = {}  # with the index of each medium, ascending
        self._budget = 0

    def begin_step(self, budget: int) -> None:
        """A step is planned with so much work beside it."""
        self._budget = budget

    def reach(
        self, sequence: Sequence, step: ScheduledStep, position: int, budget: int, allowance: Allowance
    ) -> int:
        """Plan work on the media of a sequence that goes on from a position; returns how many tokens, `budget` at most,
        it can compute in this step, whose prompts have this allowance."""
        media = sequence.request.media
        if media is None:
            return budget
        reach, work_before = budget, step.encoder_work
        for index in media.needed_from(position):
            entry = self._hold(sequence, media, index, step)
            if entry is None or not self._encode(sequence, index, entry, step):
                reach = max(0, min(reach, media.start_of(index, position) - position))
                if entry is None or self._budget <= 0:
                    break
        reach = allowance.beside(step.encoder_work - work_before, reach)
        return self._with_whole_spans(media, position, reach, self.most_tokens - sum(step.num_tokens))

    def whole_end(self, sequence: Sequence, end: int) -> int:
        """Where a chunk ends that could end here: before a span that it would cut, if spans are whole."""
        media = sequence.request.media
        if media is None or not self.plan.has_whole_spans:
            return end
        span = media.span_over(end)
        return end if span is None else span.start

    def _with_whole_spans(self, media: RequestMedia, position: int, reach: int, room: int) -> int:
        """The same reach, or as far as cuts no span. One that comes next takes what room there is in the step, beyond
        what prompts have of it: there is no smaller part of it to compute."""
        span = media.span_over(position + reach) if reach and self.plan.has_whole_spans else None
        if span is None:
            return reach
        if span.start > position:
            return span.start - position
        return span.end - position if span.end - position <= room else 0

    def note_rows(self, sequence: Sequence, step: ScheduledStep, num_tokens: int) -> None:
        """The step's newest row computes so many tokens of this sequence: say which get rows of media, and release what
        is computed."""
        media = sequence.request.media
        if media is None:
            return
        end = sequence.num_computed
        start, row = end - num_tokens, len(step.rows) - 1
        held = self._held.get(sequence) or deque()
        entries = dict(held)
        for span in media.between(start, end):
            entry = entries[span.medium]
            entry.used_in = step.number
            rows = MediaRows(row, span.start - start, span.end - span.start, entry.number, span.first_row)
            step.media.append(rows)
        while held and media.ends[held[0][0]] <= end:
            self.entries.release(held.popleft()[1])
        if not held:
            self._held.pop(sequence, None)

    def release(self, sequence: Sequence) -> None:
        """The sequence leaves its slot, or didn't get one."""
        for _, entry in self._held.pop(sequence, ()):
            self.entries.release(entry)

    def forget(self, sequence: Sequence) -> None:
        """What it has computed went wrong, so nobody else should read the rows of its media."""
        if (media := sequence.request.media) is not None:
            for medium in media.media:
                self.entries.forget(medium.digest)

    def _hold(self, sequence: Sequence, media: RequestMedia, index: int, step: ScheduledStep) -> Entry | None:
        held = self._held.get(sequence)
        if held is not None and index <= held[-1][0]:
            return held[index - held[0][0]][1]
        entry = self.entries.hold(media.media[index], media.num_rows[index], step.number)
        if entry is not None:
            self._held.setdefault(sequence, deque()).append((index, entry))
        return entry

    def _encode(self, sequence: Sequence, index: int, entry: Entry, step: ScheduledStep) -> bool:
        """Plan as many layers of an entry as the budget allows; True if all are planned."""
        left = self.plan.num_layers - entry.num_layers
        if left == 0:
            return True
        medium = sequence.request.prompt.media[index]
        num_layers = min(left, self._budget // medium.num_patches)
        if num_layers <= 0 and self._budget > 0 and not step.encodes:
            num_layers = 1  # the least that a step does, if it does any
        if num_layers <= 0 or entry.used_in == step.number:
            return False
        self._budget -= num_layers * medium.num_patches
        encode = Encode(entry.number, entry.num_layers, num_layers)
        if entry.num_layers == 0:
            encode.kind, encode.pixels, encode.shape = medium.kind, medium.pixels, medium.shape
            encode.num_rows = entry.num_rows
        step.encodes.append(encode)
        step.encoder_work += num_layers * medium.num_patches
        entry.num_layers += num_layers
        entry.used_in = step.number
        self.num_encoded += num_layers == left
        return num_layers == left

    def check(self, running: list[Sequence]) -> None:
        """Raise unless only running sequences hold entries, and each as many as are counted."""
        if strangers := self._held.keys() - set(running):
            raise RuntimeError(f"{[each.id for each in strangers]} hold media, and do not run.")
        self.entries.check(Counter(entry for held in self._held.values() for _, entry in held))
