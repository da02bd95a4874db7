"""In which numbers training computes: bfloat16 where the processor multiplies it, which takes 50 times as long where it
doesn't.
"""

import torch

COMPUTED = torch.bfloat16 if torch.ops.mkldnn._is_mkldnn_bf16_supported() else torch.float32


def computing() -> torch.autocast:
    """Products inside are computed so."""
    return torch.autocast("cpu", torch.bfloat16, enabled=COMPUTED is torch.bfloat16)
