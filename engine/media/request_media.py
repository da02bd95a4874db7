"""The media of one request: the positions of their rows in its prompt, and their part in the keys of KV blocks."""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ...protocol.media import Medium
from ...protocol.wire import column, values
from .work import patches_of_frame


class Span(NamedTuple):
    """Consecutive tokens of the prompt that get rows of a medium."""

    start: int
    end: int
    medium: int  # index in the prompt
    first_row: int


class RequestMedia:
    __slots__ = ("media", "num_rows", "ends", "spans", "_has_whole_spans", "_span_ends")

    def __init__(self, media: Sequence[Medium], *, has_whole_spans: bool) -> None:
        """`has_whole_spans`: the tokens of a span are computed together."""
        self.media = media
        self._has_whole_spans = has_whole_spans
        self.num_rows: list[int] = []
        self.ends: list[int] = []  # the position after each medium's last row
        self.spans: list[Span] = []
        for index, medium in enumerate(media):
            starts_and_lengths = values(medium.spans[: len(medium.spans) // 8 * 8])
            num_rows = end = 0
            for start, length in zip(starts_and_lengths[::2], starts_and_lengths[1::2]):
                end = start + length
                self.spans.append(Span(start, end, index, num_rows))
                num_rows += length
            self.num_rows.append(num_rows)
            self.ends.append(end)
        self._span_ends = [span.end for span in self.spans]

    def is_sound(self, num_prompt: int) -> bool:
        """Whether every medium has pixels of its shape, and rows in the prompt after those of the previous one."""
        end = 0
        for span in self.spans:
            if not end <= span.start < span.end <= num_prompt:
                return False
            end = span.end
        return all(self.num_rows) and all(
            len(medium.digest) == 32
            and medium.num_patches > 0
            and len(medium.pixels) == 3 * medium.shape[0] * medium.shape[1] * medium.shape[2]
            for medium in self.media
        )

    @property
    def most_rows(self) -> int:
        """The rows of the largest medium."""
        return max(self.num_rows)

    @property
    def longest_span(self) -> int:
        return max(span.end - span.start for span in self.spans)

    def most_together(self, position: int) -> int:
        """The most tokens from this position on that one step must compute."""
        first = bisect_right(self._span_ends, position) if self._has_whole_spans else len(self.spans)
        return max((span.end - span.start for span in self.spans[first:]), default=1)

    def most_of_frame(self, frames_together: int) -> int:
        """The most patches of one medium that may attend to one another."""
        return max(patches_of_frame(medium, frames_together) for medium in self.media)

    @property
    def most_patches(self) -> int:
        """The patches of the largest medium."""
        return max(medium.num_patches for medium in self.media)

    def between(self, start: int, end: int) -> Iterator[Span]:
        """The parts of spans within this stretch of the prompt."""
        for index in range(bisect_right(self._span_ends, start), len(self.spans)):
            span = self.spans[index]
            if span.start >= end:
                return
            begin = max(span.start, start)
            yield Span(begin, min(span.end, end), span.medium, span.first_row + begin - span.start)

    def span_cut_at(self, position: int) -> Span | None:
        """The span that a chunk must not cut at this position."""
        index = bisect_right(self._span_ends, position) if self._has_whole_spans else len(self.spans)
        if index < len(self.spans) and self.spans[index].start < position:
            return self.spans[index]
        return None

    def whole_end(self, end: int) -> int:
        """The end of a chunk that would end here: before a span that it would cut."""
        span = self.span_cut_at(end)
        return end if span is None else span.start

    def needed_from(self, position: int) -> range:
        """The media with rows at this position or after it, by index."""
        return range(bisect_right(self.ends, position), len(self.media))

    def start_of(self, medium: int, position: int) -> int:
        """The position of the medium's first row from this position on."""
        return next(span.start for span in self.between(position, self.ends[medium]) if span.medium == medium)

    def key_part(self, start: int, end: int) -> bytes:
        """The media's part of a block's key: which rows of which media are at these tokens."""
        return b"".join(
            self.media[span.medium].digest + column((span.start - start, span.end - start, span.first_row))
            for span in self.between(start, end)
        )
