"""The encoding of one medium: how far it is, and what computes the next stretch of the work on it."""

from collections.abc import Callable

import numpy
import torch
from torch import Tensor

from ...protocol.media import Encode
from ..description.vision_config import Colours, VisionConfig
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
        keep: Callable[[int, Tensor, Tensor], None],
    ) -> None:
        config, device = encoding.encoder.config, encoding.encoder.placement.device
        pixels = torch.frombuffer(bytearray(encode.pixels), dtype=torch.uint8).view(*encode.shape, 3)
        self.entry = encode.entry
        self.done = 0
        self._config = config
        self._encoding = encoding
        self._arrangement = arrangement
        self._keep = keep
        self._pixels = _whole_frames(pixels.to(device), config)
        self._colours = config.image_colours if encode.kind == "image" else config.video_colours
        self._group = config.merge**2  # patches
        self._work = Work(_stages(arrangement, encoding.encoder), encode.work, self._group * arrangement.row_frames)
        encoding.begin(arrangement, rotation_of(arrangement, config, device))

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
        patches = _patches_of(self._pixels, self._arrangement, self._config, self._colours, first, end)
        own = self._arrangement.between(first * self._group, end * self._group)
        self._encoding.embed(first * self._group, patches, self._encoding.encoder.positions(own))

    def _project(self, layer: int, first: int, end: int) -> None:
        self._encoding.project(layer, first * self._group, end * self._group)

    def _attend(self, layer: int, first: int, end: int) -> None:
        self._encoding.attend(layer, first * self._group, end * self._group)

    def _merge(self, part: int, first: int, end: int) -> None:
        """Merge these rows."""
        arrangement, stream = self._arrangement, self._encoding.stream
        groups = arrangement.groups_of_rows(first, end).to(stream.device)
        x = stream.view(-1, self._group * stream.shape[1])[groups].view(-1, stream.shape[1])
        rows = torch.arange(first, end) if arrangement.order is None else arrangement.order[first:end]
        self._keep(part, rows, self._encoding.merged(part, x, arrangement.row_frames))


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


def _whole_frames(pixels: Tensor, config: VisionConfig) -> Tensor:
    """The pixels with the last frame repeated to fill the last patches: a picture counts as two equal frames."""
    if missing := -len(pixels) % config.num_frames:
        pixels = torch.cat((pixels, pixels[-1:].expand(missing, -1, -1, -1)))
    return pixels


def _patches_of(
    pixels: Tensor, arrangement: Arrangement, config: VisionConfig, colours: Colours, first: int, end: int
) -> Tensor:
    """float32 [P, colours × frames × patch × patch] of uint8 [frames, height, width, colours], which are whole.

    These are the normalized patches of the groups from first to end.
    """
    merge, patch = config.merge, config.patch_size
    down, across = (side // merge for side in arrangement.grid)
    whole = pixels[:, : down * merge * patch, : across * merge * patch]
    cut = whole.view(-1, config.num_frames, down, merge, patch, across, merge, patch, pixels.shape[-1])
    # [frames, down, across, merge, merge, colours, frames of a patch, patch, patch]
    by_position = cut.permute(0, 2, 5, 3, 6, 8, 1, 4, 7)
    groups = torch.arange(first, end) if arrangement.order is None else arrangement.order[first:end]
    groups = groups.to(pixels.device)
    found = by_position[groups // (down * across), groups // across % down, groups % across]
    by_colour = found.reshape((end - first) * merge * merge, pixels.shape[-1], -1).float()
    mean, deviation = (torch.tensor(each, device=pixels.device) for each in (colours.mean, colours.deviation))
    normal = (by_colour - (mean / colours.scale)[:, None]) / (deviation / colours.scale)[:, None]
    return normal.flatten(1)
