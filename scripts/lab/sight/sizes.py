"""Cuts pictures into patches like Qwen2-VL's image processor, in the sizes of pocket-sight.

The trainer's own, for the published one takes longer than to draw a picture; a test holds both to the same numbers.
"""

import math

import numpy as np
from PIL import Image

PATCH, MERGE, FRAMES = 16, 2, 2
FACTOR = PATCH * MERGE
LEAST_PIXELS, MOST_PIXELS = 96 * 96, 160 * 160


def resized_size(width: int, height: int) -> tuple[int, int]:
    """Width and height in multiples of a merged patch, with as many pixels as the model takes."""
    wide, high = (round(side / FACTOR) * FACTOR for side in (width, height))
    if wide * high > MOST_PIXELS:
        by = math.sqrt(width * height / MOST_PIXELS)
        wide, high = (max(FACTOR, math.floor(side / by / FACTOR) * FACTOR) for side in (width, height))
    elif wide * high < LEAST_PIXELS:
        by = math.sqrt(LEAST_PIXELS / (width * height))
        wide, high = (math.ceil(side * by / FACTOR) * FACTOR for side in (width, height))
    return wide, high


def patches(image: Image.Image, filter: Image.Resampling = Image.Resampling.BICUBIC) -> tuple[np.ndarray, int, int]:
    """Bytes of one frame, [patches, 3 * PATCH * PATCH], merged ones together, and the grid's rows and columns."""
    image = image.resize(resized_size(*image.size), filter)
    rows, columns = image.height // PATCH, image.width // PATCH
    pixels = np.asarray(image).reshape(rows // MERGE, MERGE, PATCH, columns // MERGE, MERGE, PATCH, 3)
    pixels = pixels.transpose(0, 3, 1, 4, 6, 2, 5)
    return np.ascontiguousarray(pixels).reshape(rows * columns, -1), rows, columns
