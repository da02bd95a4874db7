"""In which order a medium's patches pass through an encoder, and which of them attend to one another.

A group of patches (merge × merge of a frame) stands side by side: they become one row, in some models with the group in
the same place of the next frame. Where most layers attend within windows, so do the groups of a window; the order of
all is kept, to put rows back.
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ..description.vision_config import VisionConfig
from ..plan_error import require

FRAMES, WINDOWS = 0, 1  # by number, the rows of patches that attend to one another


@dataclass(frozen=True)
class Arrangement:
    """The patches of one medium."""

    grid: tuple[int, int]  # patches of a frame: down, across
    heights: Tensor  # int64 [P]: where in its frame each patch lies
    widths: Tensor
    layouts: list[list[int]]  # so many neighbours attend to one another: of frames, and of windows if there are any
    num_rows: int
    row_frames: int  # that become one row
    order: Tensor | None  # int64 [groups]: which of the medium's groups each of the encoder's is; None: the same

    @property
    def num_patches(self) -> int:
        return len(self.heights)

    def between(self, first: int, end: int) -> "Arrangement":
        """Where these patches alone lie."""
        return replace(self, heights=self.heights[first:end], widths=self.widths[first:end])

    def groups_of_rows(self, first: int, end: int) -> Tensor:
        """int64 [rows × row_frames]: those that become these rows, one row's behind the other's."""
        rows = torch.arange(first, end)
        of_frame = self.num_rows * self.row_frames // len(self.layouts[FRAMES])
        firsts = rows + rows // of_frame * of_frame * (self.row_frames - 1)
        return (firsts[:, None] + of_frame * torch.arange(self.row_frames)).flatten()


def arrangement_of(shape: tuple[int, int, int], config: VisionConfig) -> Arrangement:
    """Of a medium of so many frames, and pixels down and across."""
    frames = shape[0]
    grid = shape[1] // config.patch_size, shape[2] // config.patch_size  # pixels that make no whole patch are left out
    require(
        frames > 0 and all(side > 0 and side % config.merge == 0 for side in grid),
        f"encodes {frames} frames of {grid[0]} × {grid[1]} patches, and {config.merge} × {config.merge} make a row",
    )
    require(
        config.family.places != "fixed" or grid == (config.table_side,) * 2,
        f"encodes frames of {grid[0]} × {grid[1]} patches, which have {config.table_side} × {config.table_side} places",
    )
    num_frames, pair = -(-frames // config.num_frames), config.family.row_frames
    require(num_frames == 1 or num_frames % pair == 0, f"encodes {num_frames} frames, of which {pair} make a row")
    down, across = grid[0] // config.merge, grid[1] // config.merge  # rows
    heights, widths = _places(down, across, config.merge)  # [down × across, merge²]
    layouts, order = [[grid[0] * grid[1]] * num_frames], None
    if config.window is not None:
        of_frame, counts = _windows(down, across, config.window)
        heights, widths = heights[of_frame], widths[of_frame]
        layouts.append([count * config.merge**2 for count in counts] * num_frames)
        order = (of_frame + down * across * torch.arange(num_frames)[:, None]).flatten()
    return Arrangement(
        grid=grid,
        heights=heights.flatten().repeat(num_frames),
        widths=widths.flatten().repeat(num_frames),
        layouts=layouts,
        num_rows=-(-num_frames // pair) * down * across,
        row_frames=min(pair, num_frames),
        order=order,
    )


def _places(down: int, across: int, merge: int) -> tuple[Tensor, Tensor]:
    """Of one frame's patches, those of a row side by side."""
    row, column = torch.arange(down * across) // across, torch.arange(down * across) % across
    inner = torch.arange(merge * merge)
    return row[:, None] * merge + inner // merge, column[:, None] * merge + inner % merge


def _windows(down: int, across: int, side: int) -> tuple[Tensor, list[int]]:
    """A frame's rows window by window, and how many each of them has."""
    row, column = torch.arange(down * across) // across, torch.arange(down * across) % across
    window = row // side * -(-across // side) + column // side
    return window.argsort(stable=True), window.bincount().tolist()
