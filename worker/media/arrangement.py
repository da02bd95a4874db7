"""The order of a medium's patches in an encoder, and which of them attend to one another.

The patches of a group (merge × merge of a frame) are adjacent: they become one row, in some models together with the
group at the same position of the next frame. If most layers attend within windows, the groups of a window are adjacent
too; their order is kept, to put the rows back.
"""

from dataclasses import replace

import numpy

from ...kernels.arrays import Array
from ...records import dataclass
from ..description.vision_config import VisionConfig
from ..plan_error import require

FRAMES, WINDOWS = 0, 1  # by number, the rows of patches that attend to one another


@dataclass(frozen=True)
class Arrangement:
    """The arrangement of one medium's patches."""

    grid: tuple[int, int]  # patches of a frame: down, across
    heights: Array  # int64 [P]: coordinates of each patch in its frame
    widths: Array
    layouts: list[list[int]]  # sizes of runs of patches that attend to one another: by frame, maybe by window
    num_rows: int
    row_frames: int  # frames of one row
    order: Array | None  # int64 [groups]: the medium's group for each of the encoder's; None: the same order

    @property
    def num_patches(self) -> int:
        return len(self.heights)

    def between(self, first: int, end: int) -> "Arrangement":
        """The coordinates of these patches only."""
        return replace(self, heights=self.heights[first:end], widths=self.widths[first:end])

    def groups_of_rows(self, first: int, end: int) -> Array:
        """int64 [rows × row_frames]: the groups that become these rows, row by row."""
        rows = numpy.arange(first, end)
        of_frame = self.num_rows * self.row_frames // len(self.layouts[FRAMES])
        firsts = rows + rows // of_frame * of_frame * (self.row_frames - 1)
        return (firsts[:, None] + of_frame * numpy.arange(self.row_frames)).flatten()


def arrangement_of(shape: tuple[int, int, int], config: VisionConfig) -> Arrangement:
    """Arrange a medium with this shape: frames, and pixels down and across."""
    frames = shape[0]
    grid = shape[1] // config.patch_size, shape[2] // config.patch_size  # pixels beyond whole patches are dropped
    require(
        frames > 0 and all(side > 0 and side % config.merge == 0 for side in grid),
        f"encodes {frames} frames of {grid[0]} × {grid[1]} patches, and {config.merge} × {config.merge} make a row",
    )
    require(
        config.family.places != "fixed" or grid == (config.table_side,) * 2,
        f"encodes frames of {grid[0]} × {grid[1]} patches, and its position table is {config.table_side} × "
        f"{config.table_side}",
    )
    num_frames, pair = -(-frames // config.num_frames), config.family.row_frames
    require(num_frames == 1 or num_frames % pair == 0, f"encodes {num_frames} frames, of which {pair} make a row")
    down, across = grid[0] // config.merge, grid[1] // config.merge  # rows
    heights, widths = _coordinates(down, across, config.merge)  # [down × across, merge²]
    layouts, order = [[grid[0] * grid[1]] * num_frames], None
    if config.window is not None:
        of_frame, counts = _windows(down, across, config.window)
        heights, widths = heights[of_frame], widths[of_frame]
        layouts.append([count * config.merge**2 for count in counts] * num_frames)
        order = (of_frame + down * across * numpy.arange(num_frames)[:, None]).flatten()
    return Arrangement(
        grid=grid,
        heights=numpy.tile(heights.flatten(), num_frames),
        widths=numpy.tile(widths.flatten(), num_frames),
        layouts=layouts,
        num_rows=-(-num_frames // pair) * down * across,
        row_frames=min(pair, num_frames),
        order=order,
    )


def _coordinates(down: int, across: int, merge: int) -> tuple[Array, Array]:
    """Coordinates of one frame's patches, those of a row adjacent."""
    row, column = numpy.arange(down * across) // across, numpy.arange(down * across) % across
    inner = numpy.arange(merge * merge)
    return row[:, None] * merge + inner // merge, column[:, None] * merge + inner % merge


def _windows(down: int, across: int, side: int) -> tuple[Array, list[int]]:
    """A frame's rows in the order of windows, and the number in each window."""
    row, column = numpy.arange(down * across) // across, numpy.arange(down * across) % across
    window = row // side * -(-across // side) + column // side
    return window.argsort(kind="stable"), numpy.bincount(window).tolist()
