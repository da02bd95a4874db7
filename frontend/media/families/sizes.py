"""How large a picture is made for an encoder that takes any size, within a number of pixels (Qwen's smart_resize)."""

import math

from ....protocol.errors import RequestError

_MOST_RATIO = 200


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

    `counted` frames count at first, `frames` in what is made of it.
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
