"""From a medium's pixels to the patches that an encoder multiplies with: normalised, as they are arranged."""

import torch
from torch import Tensor

from ..models.vision_config import Colours, VisionConfig
from .arrangement import Arrangement


def patches_of(pixels: Tensor, arrangement: Arrangement, config: VisionConfig, colours: Colours) -> Tensor:
    """float32 [P, colours × frames × patch × patch] of uint8 [frames, height, width, colours].

    Where frames don't fill the last patches, the last one stands there again: a picture is two frames alike.
    """
    if missing := -len(pixels) % config.num_frames:
        pixels = torch.cat((pixels, pixels[-1:].expand(missing, -1, -1, -1)))
    merge, patch = config.merge, config.patch_size
    down, across = (side // merge for side in arrangement.grid)
    whole = pixels[:, : down * merge * patch, : across * merge * patch]
    cut = whole.reshape(-1, config.num_frames, down, merge, patch, across, merge, patch, pixels.shape[-1])
    # [frames, down, across, merge, merge, colours, frames of a patch, patch, patch]
    by_patch = cut.permute(0, 2, 5, 3, 6, 8, 1, 4, 7).reshape(-1, merge * merge * config.patch_numbers)
    if arrangement.order is not None:
        by_patch = by_patch[arrangement.order.to(by_patch.device)]
    by_colour = by_patch.view(arrangement.num_patches, pixels.shape[-1], -1).float()
    mean, deviation = (torch.tensor(each, device=pixels.device) for each in (colours.mean, colours.deviation))
    normal = (by_colour - (mean / colours.scale)[:, None]) / (deviation / colours.scale)[:, None]
    return normal.flatten(1)
