"""Qwen3-VL and Qwen3.5: as Qwen2-VL, but the time of each pair of frames is text before it."""

from typing import TYPE_CHECKING, ClassVar

from .family import Grid, Options, Replacement
from .qwen2 import Qwen2Vision, chosen_pixels
from .sizes import check_ratio, fitted

if TYPE_CHECKING:
    from ..decoded import DecodedMedium


class Qwen3Vision(Qwen2Vision, frozen=True):
    """Pixels of a video are counted over all of its frames."""

    VIDEO_SETTINGS: ClassVar = ("size", "fps", "num_frames", "min_frames", "max_frames")
    MAKE_SMALLER: ClassVar = {"image": "max_pixels", "video": "max_frames, fps, size"}
    PATCH: ClassVar = 16
    IMAGE_PIXELS: ClassVar = (256 * 256, 4096 * 4096)
    VIDEO_PIXELS: ClassVar = (128 * 32 * 32, 32 * 32 * 768)

    def video_size(self, num_frames: int, height: int, width: int, options: Options) -> tuple[int, int]:
        pair, factor = self.frames_of_patch, self.factor
        num_frames = max(num_frames, pair)
        if height < factor or width < factor:
            scale = max(factor / height, factor / width)
            height, width = int(height * scale), int(width * scale)
        check_ratio(height, width)
        least, most = chosen_pixels(self.video_pixels, options)
        counted = round(num_frames / pair) * pair
        size = fitted(height, width, factor, least, most, num_frames, counted)
        return self.room.fitted(size, num_frames, self.video_pixels[0] / num_frames)

    def spread(self, total: int, wanted: float, least: int, most: int) -> list[int]:
        from .frames import evenly

        return evenly(total, min(max(int(wanted), least), most, total))

    def replacement(self, medium: "DecodedMedium") -> Replacement:
        times, height, width = self.grid_of(medium)
        rows = height * width // self.merge**2
        if medium.kind == "image":
            return Replacement(self.row_tokens["image"], (rows,))
        start, end = self.marks
        pairs = [f"<{seconds:.1f} seconds>{start}{self.row_tokens['video']}{end}" for seconds in self.seconds(medium)]
        return Replacement("".join(pairs), (rows,) * times)

    def seconds(self, medium: "DecodedMedium") -> list[float]:
        """When each pair of frames is, in the middle between its first and its last."""
        times, pair = medium.layout.times, self.frames_of_patch
        return [(times[first] + times[first + pair - 1]) / 2 for first in range(0, len(times), pair)]

    def grids(self, medium: "DecodedMedium") -> tuple[Grid, ...]:
        times, height, width = self.grid_of(medium)
        return (Grid((0,), height // self.merge, width // self.merge),) * times
