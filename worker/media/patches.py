"""From a medium's pixels to the patches that an encoder multiplies with: normalised, some groups at a time."""

import torch
from torch import Tensor

from ..description.vision_config import Colours, VisionConfig
from .arrangement import Arrangement


def whole_frames(pixels: Tensor, config: VisionConfig) -> Tensor:
    """The same pixels, with the last frame again where frames don't fill the last patches: a picture is two alike."""
    if missing := -len(pixels) % config.num_frames:
        pixels = torch.cat((pixels, pixels[-1:].expand(missing, -1, -1, -1)))
    return pixels


def patches_of(
    pixels: Tensor, arrangement: Arrangement, config: VisionConfig, colours: Colours, first: int, end: int
) -> Tensor:
    """float32 [P, colours × frames × patch × patch] of uint8 [frames, height, width, colours], which are whole.

    The patches are those of the groups from first to end.
    """
    merge, patch = config.merge, config.patch_size
    down, across = (side // merge for side in arrangement.grid)
    whole = pixels[:, : down * merge * patch, : across * merge * patch]
    cut = whole.view(-1, config.num_frames, down, merge, patch, across, merge, patch, pixels.shape[-1])
    # [frames, down, across, merge, merge, colours, frames of a patch, patch, patch]
    by_place = cut.permute(0, 2, 5, 3, 6, 8, 1, 4, 7)
    groups = torch.arange(first, end) if arrangement.order is None else arrangement.order[first:end]
    groups = groups.to(pixels.device)
    found = by_place[groups // (down * across), groups // across % down, groups % across]
    by_colour = found.reshape((end - first) * merge * merge, pixels.shape[-1], -1).float()
    mean, deviation = (torch.tensor(each, device=pixels.device) for each in (colours.mean, colours.deviation))
    normal = (by_colour - (mean / colours.scale)[:, None]) / (deviation / colours.scale)[:, None]
    return normal.flatten(1)
