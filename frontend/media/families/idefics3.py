"""Idefics3 and SmolVLM: a picture is cut into square tiles, and stands behind them as a whole."""

import math
from typing import TYPE_CHECKING, ClassVar

from ..processor_files import ProcessorFiles, flag, inner, whole
from .family import Family, Options, Replacement

if TYPE_CHECKING:
    from PIL import Image

    from ..decoded import DecodedMedium
    from .frames import Frames

_AROUND, _GLOBAL, _ROW = "<fake_token_around_image>", "<global-img>", "<image>"
_LONGEST = 4096  # of a side, whatever the settings say
_MOST_TILES_A_SIDE = 6  # that have a token


class Idefics3Vision(Family, frozen=True):
    longest: int  # side that a picture is resized to at first
    tile: int  # side of a tile
    splits: bool
    patch: int
    rows: int  # of one tile

    placeholders: ClassVar = {_ROW: "image"}
    row_tokens: ClassVar = {"image": _ROW}
    marks: ClassVar = (
        _AROUND,
        _GLOBAL,
        *(
            f"<row_{row + 1}_col_{column + 1}>"
            for row in range(_MOST_TILES_A_SIDE)
            for column in range(_MOST_TILES_A_SIDE)
        ),
    )

    IMAGE_SETTINGS: ClassVar = ("size", "max_image_size", "do_image_splitting")
    VIDEO_SETTINGS: ClassVar = ()

    @classmethod
    def of(cls, files: ProcessorFiles) -> "Idefics3Vision":
        image, vision = files.image, files.vision
        side = whole(vision, "image_size", 364, _LONGEST)
        tile = whole(inner(image, "max_image_size"), "longest_edge", side, _LONGEST)
        patch = whole(vision, "patch_size", 14, 256)
        rows = (tile // patch) ** 2 // whole(files.config, "scale_factor", 2, 64) ** 2
        return cls(
            longest=whole(inner(image, "size"), "longest_edge", 4 * tile, 1 << 16),
            tile=tile,
            splits=flag(image, "do_image_splitting", True),
            patch=patch,
            rows=whole(files.processor, "image_seq_len", max(rows, 1), 1 << 16),
        )

    # --- pixels ---

    def image(self, image: "Image.Image", options: Options) -> "Frames":
        from .frames import LANCZOS, resized, tiles

        image = resized(image, *self._first_size(image.height, image.width), LANCZOS)
        if not self.splits:
            return tiles([resized(image, self.tile, self.tile, LANCZOS)], 0, 0)
        image = resized(image, *self._size_of_tiles(image.height, image.width), LANCZOS)
        rows, columns = image.height // self.tile, image.width // self.tile
        if rows == columns == 1:
            return tiles([image], 0, 0)
        cut = [self._tile(image, row, column) for row in range(rows) for column in range(columns)]
        return tiles([*cut, resized(image, self.tile, self.tile, LANCZOS)], rows, columns)

    def _tile(self, image: "Image.Image", row: int, column: int) -> "Image.Image":
        left, top = column * self.tile, row * self.tile
        return image.crop((left, top, left + self.tile, top + self.tile))

    def _first_size(self, height: int, width: int) -> tuple[int, int]:
        """The longer side as long as it may be, the other even."""
        ratio = width / height
        if width >= height:
            width, height = self.longest, int(self.longest / ratio)
            height += height % 2
        else:
            height, width = self.longest, int(self.longest * ratio)
            width += width % 2
        height, width = max(height, 1), max(width, 1)
        ratio = width / height
        if width >= height and width > _LONGEST:
            width, height = _LONGEST, int(_LONGEST / ratio)
        elif height > width and height > _LONGEST:
            height, width = _LONGEST, int(_LONGEST * ratio)
        return max(height, 1), max(width, 1)

    def _size_of_tiles(self, height: int, width: int) -> tuple[int, int]:
        ratio = width / height
        if width >= height:
            width = self._whole_tiles(width)
            return self._whole_tiles(int(width / ratio)), width
        height = self._whole_tiles(height)
        return height, self._whole_tiles(int(height * ratio))

    def _whole_tiles(self, length: int) -> int:
        return math.ceil(length / self.tile) * self.tile

    # --- tokens ---

    def num_patches(self, medium: "DecodedMedium") -> int:
        frames, height, width = medium.shape
        return frames * (height // self.patch) * (width // self.patch)

    def replacement(self, medium: "DecodedMedium") -> Replacement:
        rows, columns = medium.layout.tiles
        lines = [
            "".join(f"{_AROUND}<row_{row + 1}_col_{column + 1}>{_ROW}" for column in range(columns)) + "\n"
            for row in range(rows)
        ]
        whole_picture = f"{_AROUND}{_GLOBAL}{_ROW}{_AROUND}"
        text = "".join(lines) + ("\n" if lines else "") + whole_picture
        return Replacement(text, (self.rows,) * medium.shape[0])
