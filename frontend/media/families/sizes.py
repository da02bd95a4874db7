"""Chooses a picture's size for an encoder that takes any size, within a number of pixels (Qwen's smart_resize)."""

import math
from typing import NamedTuple

from ....protocol.errors import RequestError
from ....protocol.media import MediaPlan

# of one medium after resizing: more than twice the maximum of any encoder here
MOST_RESULT_BYTES = 64 << 20
_MOST_RATIO = 200


class Room(NamedTuple):
    """Limits on the size of frames, so that an encoder can process them."""

    patch: int  # pixels along a side
    merge: int  # patches along a side that become one row
    frames_of_patch: int
    encoder: MediaPlan | None  # once the worker's encoder is known

    def fitted(self, size: tuple[int, int], num_frames: int, least_pixels: float) -> tuple[int, int]:
        """The size that the processor gives to each frame, reduced to the encoder's limit.

        Frames are never smaller than `least_pixels`, the processor's own minimum.
        """
        if self.encoder is None:
            return size
        most = self._most_pixels(num_frames + -num_frames % self.frames_of_patch, self.encoder)
        return fitted(*size, self.patch * self.merge, 0, max(most, least_pixels))

    def _most_pixels(self, num_frames: int, encoder: MediaPlan) -> int:
        """The most pixels of a frame."""
        together = min(encoder.frames_together, num_frames)
        num_patches = min(
            encoder.most_of_frame // -(-together // self.frames_of_patch),
            encoder.most_patches // -(-num_frames // self.frames_of_patch),
            encoder.num_rows * self.merge**2 // -(-num_frames // self.frames_of_patch),
        )
        return min(num_patches * self.patch**2, MOST_RESULT_BYTES // 3 // num_frames)


def check_ratio(height: float, width: float) -> None:
    longer, shorter = max(height, width), min(height, width)
    if longer / shorter > _MOST_RATIO:
        raise RequestError(
            f"A picture of {width:g} x {height:g} is too narrow: one side may be {_MOST_RATIO} times the other."
        )


def fitted(
    height: int, width: int, factor: int, min_pixels: float, max_pixels: float, frames: float = 1, counted: float = 1
) -> tuple[int, int]:
    """The nearest height and width that are multiples of `factor`, with pixels within the limits.

    `counted` frames count for the first estimate, `frames` for the result.
    """
    new_height, new_width = round(height / factor) * factor, round(width / factor) * factor
    if counted * new_height * new_width > max_pixels:
        scale = math.sqrt((frames * height * width) / max_pixels)
        new_height = max(factor, math.floor(height / scale / factor) * factor)
        new_width = max(factor, math.floor(width / scale / factor) * factor)
    elif counted * new_height * new_width < min_pixels:
        scale = math.sqrt(min_pixels / (frames * height * width))
        new_height = math.ceil(height * scale / factor) * factor
        new_width = math.ceil(width * scale / factor) * factor
    return new_height, new_width
