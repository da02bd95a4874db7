"""SmolVLM: pictures as in Idefics3, and videos, each frame of which is a square after its time as text."""

import math
from datetime import timedelta
from typing import TYPE_CHECKING, ClassVar

from ..processor_files import ProcessorFiles, inner, number, whole
from ..sources.encoded_media import MOST_FRAMES
from .family import Options, Replacement
from .idefics3 import LONGEST, WHOLE_PICTURE, Idefics3Vision

if TYPE_CHECKING:
    from PIL import Image

    from ..decoded import DecodedMedium
    from .frames import Frames, Video

_SMALL = (
    "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve",
    "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen",
)  # fmt: skip
_TENS = ("twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")
_SKIPPED_SECONDS = 1  # at both ends of a long video


class SmolVision(Idefics3Vision, frozen=True):
    longest_of_frame: int  # the side that a frame is first resized to
    fps: float
    num_frames: int  # at most

    placeholders: ClassVar = {**Idefics3Vision.placeholders, "<video>": "video"}
    row_tokens: ClassVar = {**Idefics3Vision.row_tokens, "video": Idefics3Vision.row_tokens["image"]}
    # Its chat templates drop videos; transformers uses another template for conversations with videos.
    has_video_parts: ClassVar = False

    VIDEO_SETTINGS: ClassVar = ("size", "max_image_size", "fps", "num_frames")
    MAKE_SMALLER: ClassVar = {**Idefics3Vision.MAKE_SMALLER, "video": "num_frames, fps"}

    @classmethod
    def figures(cls, files: ProcessorFiles) -> dict[str, object]:
        found = super().figures(files)
        video, sampling = files.video, inner(files.video, "video_sampling")
        size = inner(video, "size") or inner(sampling, "video_size")
        most = whole(sampling, "max_frames", 64, MOST_FRAMES)
        return found | dict(
            longest_of_frame=min(whole(size, "longest_edge", 4 * 364, 1 << 16), LONGEST),
            fps=number(video, "fps", number(sampling, "fps", 1.0)),
            num_frames=whole(video, "num_frames", most, MOST_FRAMES),
        )

    # --- pixels ---

    def video(self, video: "Video", options: Options) -> "Frames":
        from .frames import LANCZOS, resized, taken

        def at_first(frame: "Image.Image", seconds: float) -> "Image.Image":
            return resized(frame, *self.first_size(frame.height, frame.width, self.longest_of_frame), LANCZOS)

        return taken(video, self.sampled(video, options), self.tile, self.tile, LANCZOS, draw=at_first)

    def sampled(self, video: "Video", options: Options) -> list[int]:
        """The indices of sampled frames: evenly spaced, without the first and last second of a long video."""
        import numpy

        total, rate = video.num_frames, video.rate
        given = min(options.get(name, self.num_frames) for name in ("num_frames", "max_frames"))
        most = min(self.num_frames, int(given))
        if video.is_sampled and total <= most:
            return list(range(total))
        fps = float(options.get("fps", self.fps))
        count = max(1, min(max(round(fps * (total / rate)), int(options.get("min_frames", 1))), most))
        first, last = 0, total - 1
        if total / rate - 2 * _SKIPPED_SECONDS > most * fps:
            first, last = int(_SKIPPED_SECONDS * rate), min(int(total - _SKIPPED_SECONDS * rate), last)
        if first >= last:
            first, last = 0, total - 1
        return [int(index) for index in numpy.unique(numpy.linspace(first, last, count, dtype=int))]

    # --- tokens ---

    def replacement(self, medium: "DecodedMedium") -> Replacement:
        if medium.kind == "image":
            return super().replacement(medium)
        num_frames, length = medium.shape[0], timedelta(seconds=math.floor(medium.layout.seconds))
        series = f"series of {in_words(num_frames)} frames from a {length} [H:MM:SS] video"
        frames = [
            f"\nFrame from {int(seconds // 60):02d}:{int(seconds % 60):02d}:{WHOLE_PICTURE}"
            for seconds in medium.layout.times
        ]
        text = f"You are provided the following {series}.\n{''.join(frames)}\n\n"
        return Replacement(text, (self.rows,) * num_frames)


def in_words(number: int) -> str:
    """A number from 0 to 999,999 in num2words' spelling: one thousand, one hundred and sixty-four."""
    if number < len(_SMALL):
        return _SMALL[number]
    if number < 100:
        return _TENS[number // 10 - 2] + (f"-{_SMALL[number % 10]}" if number % 10 else "")
    unit, name = (100, "hundred") if number < 1000 else (1000, "thousand")
    whole, rest = f"{in_words(number // unit)} {name}", number % unit
    if not rest:
        return whole
    return f"{whole} and {in_words(rest)}" if rest < 100 else f"{whole}, {in_words(rest)}"
