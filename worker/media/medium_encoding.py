"""The encoding of one medium: how far it is, and what computes the next stretch of the work on it."""

from collections.abc import Callable
from math import prod

import numpy

from ...kernels.arrays import FLOAT32, Array, DeviceArray
from ...protocol.media import Encode
from ..description.vision_config import VisionConfig
from .arrangement import Arrangement
from .encoder import Encoder
from .encoder_pass import EncoderPass
from .positions import rotation_of
from .work import Stage, Work, key_cost, layer_products, projection_products

_PATCH_COST = 2.5  # of a float multiplication in integer ones: the patch embedding is never quantized


class MediumEncoding:
    """`keep` receives a part of the rows: the part's number, the row numbers in the medium's order, and the values."""

    def __init__(
        self,
        encode: Encode,
        arrangement: Arrangement,
        encoding: EncoderPass,
        keep: Callable[[int, Array, DeviceArray], None],
    ) -> None:
        config = encoding.encoder.config
        pixels = numpy.frombuffer(encode.pixels, numpy.uint8).reshape(*encode.shape, 3)
        self.entry = encode.entry
        self.done = 0
        self._encoding = encoding
        self._arrangement = arrangement
        self._keep = keep
        self._pixels = encoding.device.put(_by_patch(pixels, config))
        colours = config.image_colours if encode.kind == "image" else config.video_colours
        self._mean, self._deviation = (
            encoding.device.put(_scaled(each, colours.scale)) for each in (colours.mean, colours.deviation)
        )
        self._group = config.merge**2  # patches
        self._work = Work(_stages(arrangement, encoding.encoder), encode.work, self._group * arrangement.row_frames)
        encoding.begin(arrangement, rotation_of(arrangement, config))

    @property
    def work(self) -> int:
        return self._work.total

    def compute(self, end: int) -> None:
        """Do the work up to this point."""
        computing = {"embed": self._embed, "project": self._project, "attend": self._attend, "merge": self._merge}
        for stage, first, last in self._work.between(self.done, end):
            computing[stage.kind](stage.number, first, last)
        self.done = end

    def _embed(self, _: int, first: int, end: int) -> None:
        """Embed these groups."""
        first, end = first * self._group, end * self._group
        entries = self._encoding.encoder.entries(self._arrangement.between(first, end))
        self._encoding.embed(first, self._patches(first, end), entries)

    def _project(self, layer: int, first: int, end: int) -> None:
        self._encoding.project(layer, first * self._group, end * self._group)

    def _attend(self, layer: int, first: int, end: int) -> None:
        self._encoding.attend(layer, first * self._group, end * self._group)

    def _merge(self, part: int, first: int, end: int) -> None:
        """Merge these rows."""
        arrangement, stream = self._arrangement, self._encoding.stream
        groups = arrangement.groups_of_rows(first, end)
        x = stream.reshape(-1, self._group * stream.shape[1])[groups].reshape(-1, stream.shape[1])
        rows = numpy.arange(first, end) if arrangement.order is None else arrangement.order[first:end]
        self._keep(part, rows, self._encoding.merged(part, x, arrangement.row_frames))

    def _patches(self, first: int, end: int) -> DeviceArray:
        """float32 [P, colours × frames × patch × patch]: the normalized pixels of these patches."""
        own, frames = self._arrangement.between(first, end), numpy.arange(first, end) // prod(self._arrangement.grid)
        found = self._pixels[frames, :, own.heights, :, own.widths]  # [P, frames, patch, patch, colours]
        *sizes, num_colours = found.shape[1:]
        normal = self._encoding.device.zeros((end - first, num_colours, *sizes), FLOAT32)
        for colour in range(num_colours):
            normal[:, colour] = found[..., colour]
        normal -= self._mean
        normal /= self._deviation
        return normal.reshape(end - first, -1)


def _stages(arrangement: Arrangement, encoder: Encoder) -> list[Stage]:
    config, group = encoder.config, encoder.config.merge**2
    num_groups, projection = arrangement.num_patches // group, projection_products(config)
    embedding = int(_PATCH_COST * config.patch_numbers * config.hidden_size)
    found = [Stage("embed", 0, num_groups, group * embedding)]
    for number, layer in enumerate(encoder.layers):
        attention = int(key_cost(config) * _mean_keys(arrangement.layouts[layer.layout]))
        rest = layer_products(config) - projection
        found.append(Stage("project", number, num_groups, group * projection))
        found.append(Stage("attend", number, num_groups, group * (rest + attention)))
        for part in encoder.parts_behind(number):
            found.append(Stage("merge", part, arrangement.num_rows, encoder.mergers[part].products))
    return found


def _mean_keys(lengths: list[int]) -> float:
    """The mean number of keys that a patch attends to."""
    counts = numpy.array(lengths, numpy.float64)
    return float((counts**2).sum() / counts.sum())


def _by_patch(pixels: Array, config: VisionConfig) -> Array:
    """uint8 [frames of patches, frames, down, patch, across, patch, colours] of [frames, height, width, colours].

    The last frame is repeated to fill the last patches: a picture counts as two equal frames.
    """
    pixels = numpy.concatenate((pixels, pixels[-1:].repeat(-len(pixels) % config.num_frames, 0)))
    down, across = (side // config.patch_size for side in pixels.shape[1:3])
    whole = pixels[:, : down * config.patch_size, : across * config.patch_size]
    return whole.reshape(-1, config.num_frames, down, config.patch_size, across, config.patch_size, pixels.shape[3])


def _scaled(colours: tuple[float, ...], scale: float) -> Array:
    """float32 [colours, 1, 1, 1], for bytes instead of numbers that were scaled."""
    return (numpy.array(colours, FLOAT32) / scale)[:, None, None, None]
