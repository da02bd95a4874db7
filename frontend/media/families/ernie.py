"""ERNIE-4.5-VL: pictures of any size, and videos in pairs of frames, with their time drawn into them."""

import io
import math
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from ....protocol.files.model_file import read_model_settings
from ..processor_files import PIXEL_SIZES, ProcessorFiles, flag, number, pixel_limits, same_as_encoders, whole
from ..sources.encoded_media import MOST_FRAMES
from .family import Family, Grid, Options, Replacement
from .qwen import chosen_pixels
from .sizes import Room, check_ratio, fitted

if TYPE_CHECKING:
    from PIL import Image

    from ..decoded import DecodedMedium
    from .frames import Frames, Video

_IMAGE, _VIDEO = "<|IMAGE_PLACEHOLDER|>", "<|VIDEO_PLACEHOLDER|>"
_PAIR = 2  # frames whose patches become one row
_SHARE = 0.1  # a letter's height as a share of a frame's shorter side, and width of its border as a share of the letter


class ErnieVision(Family, frozen=True):
    patch: int
    merge: int
    image_pixels: tuple[int, int]  # least and most
    video_pixels: tuple[int, int]  # of a frame
    fps: float  # 0: every frame, up to the most
    min_frames: int
    max_frames: int
    draws_times: bool
    font: str  # a file; "" is the one that comes with Pillow
    video_row_token: str  # in the first published models, the same as for pictures

    placeholders: ClassVar = {
        "<|image@placeholder|>": "image",
        "<|video@placeholder|>": "video",
        _IMAGE: "image",
        _VIDEO: "video",
    }
    marks: ClassVar = ("<|IMAGE_START|>", "<|IMAGE_END|>", "<|VIDEO_START|>", "<|VIDEO_END|>")
    has_grids: ClassVar = True

    IMAGE_SETTINGS: ClassVar = ("min_pixels", "max_pixels", "size")
    VIDEO_SETTINGS: ClassVar = (*IMAGE_SETTINGS, "fps", "min_frames", "max_frames", "draw_on_frames")
    SIZES: ClassVar = {"size": PIXEL_SIZES}
    MAKE_SMALLER: ClassVar = {"image": "max_pixels", "video": "max_frames, fps, max_pixels"}

    @classmethod
    def of(cls, files: ProcessorFiles) -> "ErnieVision":
        image, video, vision = files.image, files.video, files.vision
        # In a file for both, the settings are those of pictures.
        sized = {} if video is files.image else video
        return cls(
            patch=same_as_encoders(image, "patch_size", vision, "patch_size", 14),
            merge=same_as_encoders(image, "merge_size", vision, "spatial_merge_size", 2),
            image_pixels=pixel_limits(image, 56 * 56, 28 * 28 * 6177),
            video_pixels=pixel_limits(sized, 299 * 28 * 28, 1196 * 28 * 28),
            fps=number(video, "fps", 0.0) or 0.0,
            min_frames=whole(video, "min_frames", 16, MOST_FRAMES),
            max_frames=whole(video, "max_frames", 180, MOST_FRAMES),
            draws_times=flag(video, "draw_on_frames", True),
            font=_font(files.folder, video.get("font")),
            video_row_token=_video_row_token(files),
        )

    @property
    def row_tokens(self) -> Any:
        return {"image": _IMAGE, "video": self.video_row_token}

    # --- pixels ---

    def image(self, image: "Image.Image", options: Options) -> "Frames":
        from .frames import BICUBIC, picture

        return picture(image, *self._size(image.height, image.width, 1, self.image_pixels, options), BICUBIC)

    def video(self, video: "Video", options: Options) -> "Frames":
        from .frames import BICUBIC, taken

        indices = self.sampled(video, options)
        num_frames = len(indices) + -len(indices) % _PAIR
        size = self._size(video.height, video.width, num_frames, self.video_pixels, options)
        draw = self._drawn if self.draws_times else _plain
        return taken(video, indices, *size, BICUBIC, multiple=_PAIR, draw=draw)

    def _size(
        self, height: int, width: int, num_frames: int, limits: tuple[int, int], options: Options
    ) -> tuple[int, int]:
        check_ratio(height, width)
        size = fitted(height, width, self.patch * self.merge, *chosen_pixels(limits, options))
        return Room(self.patch, self.merge, 1, self.encoder).fitted(size, num_frames, limits[0])

    def sampled(self, video: "Video", options: Options) -> list[int]:
        """The indices of sampled frames."""
        from .frames import from_the_start

        total, most = video.num_frames, min(self.max_frames, int(options.get("max_frames", self.max_frames)))
        if video.is_sampled and total <= most:
            return list(range(total))
        fps = float(options.get("fps", self.fps))
        wanted = options.get("num_frames", total / video.rate * fps if fps else total)
        least = int(options.get("min_frames", 1 if "num_frames" in options else min(self.min_frames, most)))
        return from_the_start(total, max(1, min(max(wanted, least), most, total)))

    def _drawn(self, frame: "Image.Image", seconds: float) -> "Image.Image":
        """Draw in black with a white border, in the upper left corner."""
        from PIL import ImageDraw

        size = int(min(frame.size) * _SHARE)
        if size < 1:
            return frame
        frame = frame.copy()
        ImageDraw.Draw(frame).text(
            (0, 0),
            written_time(seconds),
            font=_loaded_font(self.font, size),
            fill=(0, 0, 0),
            stroke_width=int(size * _SHARE),
            stroke_fill=(255, 255, 255),
        )
        return frame

    # --- tokens ---

    def grid_of(self, medium: "DecodedMedium") -> tuple[int, int, int]:
        """Patches in time, height and width; each frame has its own."""
        frames, height, width = medium.shape
        return frames, height // self.patch, width // self.patch

    def num_patches(self, medium: "DecodedMedium") -> int:
        return math.prod(self.grid_of(medium))

    def replacement(self, medium: "DecodedMedium") -> Replacement:
        (grid,) = self.grids(medium)
        return Replacement(self.row_tokens[medium.kind], (len(grid.times) * grid.height * grid.width,))

    def grids(self, medium: "DecodedMedium") -> tuple[Grid, ...]:
        frames, height, width = self.grid_of(medium)
        times = frames // _PAIR if medium.kind == "video" else 1
        return (Grid(tuple(range(times)), height // self.merge, width // self.merge),)


def _plain(frame: "Image.Image", seconds: float) -> "Image.Image":
    return frame


def written_time(seconds: float) -> str:
    hours, rest = seconds // 3600, seconds % 3600
    return f"time: {int(hours):02d}:{int(rest // 60):02d}:{rest % 60:05.02f}"


@cache
def _loaded_font(path: str, size: int) -> Any:
    from PIL import ImageFont

    if path:
        return ImageFont.truetype(path, size)
    # Pillow's own font, with the same layout as any other, not Pillow's simple one.
    own: Any = ImageFont.load_default(size)
    return ImageFont.truetype(io.BytesIO(own.font_bytes), size)


def _font(folder: Path, name: Any) -> str:
    path = folder / Path(name if isinstance(name, str) else "Roboto-Regular.ttf").name
    return str(path) if path.is_file() else ""


def _video_row_token(files: ProcessorFiles) -> str:
    """A token of its own since the models were converted for transformers; their tokenizer's settings may name it."""
    settings = read_model_settings(files.folder / "tokenizer_config.json")
    further = settings.get("extra_special_tokens")
    named = settings.get("video_token") or (further.get("video_token") if isinstance(further, dict) else None)
    if isinstance(named, str):
        return named
    return _VIDEO if files.config.get("video_token_id") is not None else _IMAGE
