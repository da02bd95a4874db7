"""Qwen2-VL and Qwen2.5-VL: pictures of any size in patches, videos in pairs of frames, time positions in 2.5; and
Qwen3-VL and Qwen3.5, with the time of each pair as text before it.
"""

import math
from typing import TYPE_CHECKING, ClassVar

from ..processor_files import PIXEL_SIZES, ProcessorFiles, number, pixel_limits, same_as_encoders, whole
from .family import Family, Grid, Options, Replacement
from .sizes import Room, check_ratio, fitted

if TYPE_CHECKING:
    from PIL import Image

    from ..decoded import DecodedMedium
    from .frames import Frames, Video


class Qwen2Vision(Family, frozen=True):
    patch: int
    merge: int  # patches per side that become one row
    frames_of_patch: int
    image_pixels: tuple[int, int]  # least and most
    video_pixels: tuple[int, int]
    fps: float
    min_frames: int
    max_frames: int
    num_frames: int  # 0: determined by fps
    steps_per_second: float  # 0: a pair of frames is one step

    placeholders: ClassVar = {"<|image_pad|>": "image", "<|video_pad|>": "video"}
    row_tokens: ClassVar = {"image": "<|image_pad|>", "video": "<|video_pad|>"}
    marks: ClassVar = ("<|vision_start|>", "<|vision_end|>")
    has_grids: ClassVar = True

    IMAGE_SETTINGS: ClassVar[tuple[str, ...]] = ("min_pixels", "max_pixels", "size")
    VIDEO_SETTINGS: ClassVar[tuple[str, ...]] = (*IMAGE_SETTINGS, "fps", "num_frames", "min_frames", "max_frames")
    SIZES: ClassVar = {"size": PIXEL_SIZES}
    MAKE_SMALLER: ClassVar = {"image": "max_pixels", "video": "max_frames, fps, max_pixels"}
    PATCH: ClassVar[int] = 14
    IMAGE_PIXELS: ClassVar[tuple[int, int]] = (56 * 56, 28 * 28 * 1280)
    VIDEO_PIXELS: ClassVar[tuple[int, int]] = (128 * 28 * 28, 28 * 28 * 768)

    @classmethod
    def of(cls, files: ProcessorFiles) -> "Qwen2Vision":
        image, video, vision = files.image, files.video, files.vision
        return cls(
            patch=same_as_encoders(image, "patch_size", vision, "patch_size", cls.PATCH),
            merge=same_as_encoders(image, "merge_size", vision, "spatial_merge_size", 2),
            frames_of_patch=same_as_encoders(image, "temporal_patch_size", vision, "temporal_patch_size", 2),
            image_pixels=pixel_limits(image, *cls.IMAGE_PIXELS),
            video_pixels=pixel_limits(video, *cls.VIDEO_PIXELS),
            fps=number(video, "fps", 2.0) or 2.0,
            min_frames=whole(video, "min_frames", 4),
            max_frames=whole(video, "max_frames", 768),
            num_frames=whole(video, "num_frames", 0),
            steps_per_second=number(vision, "tokens_per_second", 0.0) or 0.0,
        )

    @property
    def factor(self) -> int:
        return self.patch * self.merge

    @property
    def room(self) -> Room:
        return Room(self.patch, self.merge, self.frames_of_patch, self.encoder)

    # --- pixels ---

    def image(self, image: "Image.Image", options: Options) -> "Frames":
        from .frames import BICUBIC, picture

        check_ratio(image.height, image.width)
        size = fitted(image.height, image.width, self.factor, *chosen_pixels(self.image_pixels, options))
        size = self.room.fitted(size, 1, self.image_pixels[0])
        return picture(image, *size, BICUBIC)

    def video(self, video: "Video", options: Options) -> "Frames":
        from .frames import BICUBIC, taken

        indices = self.sampled(video, options)
        height, width = self.video_size(len(indices), video.height, video.width, options)
        return taken(video, indices, height, width, BICUBIC, multiple=self.frames_of_patch)

    def video_size(self, num_frames: int, height: int, width: int, options: Options) -> tuple[int, int]:
        check_ratio(height, width)
        size = fitted(height, width, self.factor, *chosen_pixels(self.video_pixels, options))
        return self.room.fitted(size, num_frames, self.video_pixels[0])

    def sampled(self, video: "Video", options: Options) -> list[int]:
        """The indices of sampled frames."""
        total, most = video.num_frames, min(self.max_frames, int(options.get("max_frames", self.max_frames)))
        if video.is_sampled and total <= most:
            return list(range(total))
        wanted = int(options.get("num_frames", 0 if "fps" in options else self.num_frames))
        if not wanted:
            wanted_at = total / video.rate * float(options.get("fps", self.fps))
            return self.spread(total, wanted_at, int(options.get("min_frames", self.min_frames)), most)
        return self.spread(total, wanted, 1, most)

    def spread(self, total: int, wanted: float, least: int, most: int) -> list[int]:
        from .frames import from_the_start

        pair = self.frames_of_patch
        if total < pair:
            return list(range(total))
        most = min(most, total) // pair * pair
        count = math.floor(min(max(wanted, least), most) / pair) * pair
        return from_the_start(total, max(count, min(pair, most) or 1))

    # --- tokens ---

    def grid_of(self, medium: "DecodedMedium") -> tuple[int, int, int]:
        """Patches in time, height and width."""
        frames, height, width = medium.shape
        return max(frames // self.frames_of_patch, 1), height // self.patch, width // self.patch

    def num_patches(self, medium: "DecodedMedium") -> int:
        return math.prod(self.grid_of(medium))

    def replacement(self, medium: "DecodedMedium") -> Replacement:
        return Replacement(self.row_tokens[medium.kind], (self.num_patches(medium) // self.merge**2,))

    def grids(self, medium: "DecodedMedium") -> tuple[Grid, ...]:
        import numpy

        times, height, width = self.grid_of(medium)
        step = 1.0
        if medium.kind == "video" and self.steps_per_second:
            step = self.steps_per_second * self.frames_of_patch / (medium.layout.frame_rate or 1.0)
        # In single precision, as in transformers, since that decides how a step is rounded down.
        steps = numpy.arange(times, dtype=numpy.float32) * numpy.float32(step)
        return (Grid(tuple(map(int, steps)), height // self.merge, width // self.merge),)


def chosen_pixels(limits: tuple[int, int], options: Options) -> tuple[int, int]:
    """A request may lower the model's maximum of pixels, but not raise it."""
    least, most = limits
    most = min(most, int(options.get("max_pixels", most)))
    return min(int(options.get("min_pixels", least)), most), most


class Qwen3Vision(Qwen2Vision, frozen=True):
    """Counts the pixels of a video over all of its frames."""

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
        """The time of each pair of frames, midway between its first and last."""
        times, pair = medium.layout.times, self.frames_of_patch
        return [(times[first] + times[first + pair - 1]) / 2 for first in range(0, len(times), pair)]

    def grids(self, medium: "DecodedMedium") -> tuple[Grid, ...]:
        times, height, width = self.grid_of(medium)
        return (Grid((0,), height // self.merge, width // self.merge),) * times
