"""Idefics3: a picture is cut into square tiles, followed by the whole picture."""

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Self

from ....protocol.errors import ConfigError
from ....protocol.media import MediumKind
from ..processor_files import ProcessorFiles, flag, inner, whole
from .family import Family, Options, Replacement

if TYPE_CHECKING:
    from PIL import Image

    from ..decoded import DecodedMedium
    from .frames import Frames

_AROUND, _GLOBAL, _ROW = "<fake_token_around_image>", "<global-img>", "<image>"
WHOLE_PICTURE = f"{_AROUND}{_GLOBAL}{_ROW}{_AROUND}"
LONGEST = 4096  # of a side, whatever the settings are
_MOST_TILES_A_SIDE = 6  # that have a token


class Idefics3Vision(Family, frozen=True):
    longest: int  # the side that a picture is first resized to
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
    VIDEO_SETTINGS: ClassVar[tuple[str, ...]] = ()
    SIZES: ClassVar = {"size": ("longest_edge",), "max_image_size": ("longest_edge",)}
    MAKE_SMALLER: ClassVar[Mapping[MediumKind, str]] = {"image": "size"}

    @classmethod
    def of(cls, files: ProcessorFiles) -> Self:
        figures: Any = cls.figures(files)
        return cls(**figures)

    @classmethod
    def figures(cls, files: ProcessorFiles) -> dict[str, object]:
        image, vision = files.image, files.vision
        side = whole(vision, "image_size", 364, LONGEST)
        tile = whole(inner(image, "max_image_size"), "longest_edge", side, LONGEST)
        patch = whole(vision, "patch_size", 14, 256)
        scale = whole(files.config, "scale_factor", 2, 64)
        patches = tile // patch
        rows = whole(files.processor, "image_seq_len", max((patches // scale) ** 2, 1), 1 << 16)
        if patches % scale or (patches // scale) ** 2 != rows:
            raise ConfigError(
                f"The processor's tiles of {tile} x {tile} (max_image_size) have {patches} x {patches} patches, and "
                f"{scale} x {scale} of them become a row: these are not the {rows} rows that image_seq_len says."
            )
        return dict(
            longest=whole(inner(image, "size"), "longest_edge", 4 * tile, 1 << 16),
            tile=tile,
            splits=flag(image, "do_image_splitting", True),
            patch=patch,
            rows=rows,
        )

    # --- pixels ---

    def image(self, image: "Image.Image", options: Options) -> "Frames":
        from .frames import LANCZOS, resized, tiles

        image = resized(image, *self.first_size(image.height, image.width, self.longest), LANCZOS)
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

    @staticmethod
    def first_size(height: int, width: int, longest: int) -> tuple[int, int]:
        """Resize the longer side to this length, and make the other even."""
        ratio = width / height
        if width >= height:
            width, height = longest, int(longest / ratio)
            height += height % 2
        else:
            height, width = longest, int(longest * ratio)
            width += width % 2
        height, width = max(height, 1), max(width, 1)
        ratio = width / height
        if width >= height and width > LONGEST:
            width, height = LONGEST, int(LONGEST / ratio)
        elif height > width and height > LONGEST:
            height, width = LONGEST, int(LONGEST * ratio)
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
        text = "".join(lines) + ("\n" if lines else "") + WHOLE_PICTURE
        return Replacement(text, (self.rows,) * medium.shape[0])
