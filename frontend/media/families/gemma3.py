"""Gemma 3: a picture becomes a square of one size; crops of a long picture may become additional squares."""

import math
from typing import TYPE_CHECKING, ClassVar

from ....protocol.errors import ConfigError
from ..processor_files import ProcessorFiles, flag, inner, number, whole
from .family import Family, Options, Replacement

if TYPE_CHECKING:
    from PIL import Image

    from ..decoded import DecodedMedium
    from .frames import Frames

_START, _ROW, _END = "<start_of_image>", "<image_soft_token>", "<end_of_image>"
_WHOLE = f"\n\n{_START}{_ROW}{_END}\n\n"


class Gemma3Vision(Family, frozen=True):
    height: int
    width: int
    patch: int
    rows: int  # of one square
    crops: bool
    min_crop: int
    most_crops: int
    crop_ratio: float  # the ratio of sides from which on a picture is cropped

    placeholders: ClassVar = {_START: "image"}
    row_tokens: ClassVar = {"image": _ROW}
    marks: ClassVar = (_END,)

    IMAGE_SETTINGS: ClassVar = (
        "size",
        "do_pan_and_scan",
        "pan_and_scan_min_crop_size",
        "pan_and_scan_max_num_crops",
        "pan_and_scan_min_ratio_to_activate",
    )
    VIDEO_SETTINGS: ClassVar = ()
    SIZES: ClassVar = {"size": ("height", "width")}
    MAKE_SMALLER: ClassVar = {"image": "pan_and_scan_max_num_crops"}

    @classmethod
    def of(cls, files: ProcessorFiles) -> "Gemma3Vision":
        image, vision = files.image, files.vision
        size = inner(image, "size")
        side = whole(vision, "image_size", 896, 1 << 13)
        of_model = whole(files.config, "mm_tokens_per_image", 256, 1 << 16)
        of_image = whole(image, "image_seq_length", of_model, 1 << 16)
        if (rows := whole(files.processor, "image_seq_length", of_image, 1 << 16)) != of_model:
            raise ConfigError(f"The processor's image_seq_length is {rows}, and mm_tokens_per_image {of_model}.")
        height, width = whole(size, "height", side, 1 << 13), whole(size, "width", side, 1 << 13)
        if (height, width) != (side, side):
            raise ConfigError(
                f"The processor's size is {height} x {width}, and this model's encoder sees squares of {side} x {side} "
                "alone. Leave size out."
            )
        return cls(
            height=height,
            width=width,
            patch=whole(vision, "patch_size", 14, 256),
            rows=rows,
            crops=flag(image, "do_pan_and_scan", False),
            min_crop=whole(image, "pan_and_scan_min_crop_size", 256),
            most_crops=whole(image, "pan_and_scan_max_num_crops", 4, 64),
            crop_ratio=number(image, "pan_and_scan_min_ratio_to_activate", 1.2) or 1.2,
        )

    def __post_init__(self) -> None:
        if self.height % self.patch or self.width % self.patch:
            raise ConfigError(f"The processor's size {self.height} x {self.width} is not made of whole patches.")

    # --- pixels ---

    def image(self, image: "Image.Image", options: Options) -> "Frames":
        from .frames import BILINEAR, resized, tiles

        squares = [image, *(self._cropped(image) if self.crops else ())]
        return tiles([resized(each, self.height, self.width, BILINEAR) for each in squares], 0, len(squares) - 1)

    def _cropped(self, image: "Image.Image") -> "list[Image.Image]":
        """Pan and scan: crops along the longer side; none for a picture that is nearly square or too small."""
        longer, shorter = max(image.size), min(image.size)
        if longer / shorter < self.crop_ratio:
            return []
        count = min(longer // self.min_crop, math.floor(longer / shorter + 0.5))
        count = min(self.most_crops, max(2, count))
        length = math.ceil(longer / count)
        if min(length, shorter) < self.min_crop:
            return []
        is_wide = image.width >= image.height
        starts = range(0, longer, length)[:count]  # small pictures have fewer
        ends = [min(start + length, longer) for start in starts]
        return [
            image.crop((start, 0, end, image.height) if is_wide else (0, start, image.width, end))
            for start, end in zip(starts, ends)
        ]

    # --- tokens ---

    def num_patches(self, medium: "DecodedMedium") -> int:
        frames, height, width = medium.shape
        return frames * (height // self.patch) * (width // self.patch)

    def replacement(self, medium: "DecodedMedium") -> Replacement:
        num_crops = medium.shape[0] - 1
        text = _WHOLE
        if num_crops:
            crops = " ".join([_WHOLE] * num_crops)
            text = f"Here is the original image {_WHOLE} and here are some crops to help you see better {crops}"
        return Replacement(text, (self.rows,) * medium.shape[0])
