"""In which numbers training computes: bfloat16 where the processor multiplies it, which takes 50 times as long where it
doesn't.
"""

import torch

IS_SHORT = torch.cuda.is_available() or torch.ops.mkldnn._is_mkldnn_bf16_supported()
COMPUTED = torch.bfloat16 if IS_SHORT else torch.float32


def computing(device: str = "cpu") -> torch.autocast:
    """Products inside are computed so."""
    return torch.autocast(device, torch.bfloat16, enabled=COMPUTED is torch.bfloat16)
