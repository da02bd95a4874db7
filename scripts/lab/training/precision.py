"""The numbers in which training computes: bfloat16, or float32 where the processor has no products for it."""

import torch

IS_SHORT = torch.cuda.is_available() or torch.ops.mkldnn._is_mkldnn_bf16_supported()
COMPUTED = torch.bfloat16 if IS_SHORT else torch.float32


def computing(device: str = "cpu") -> torch.autocast:
    """Products inside are computed so."""
    return torch.autocast(device, torch.bfloat16, enabled=COMPUTED is torch.bfloat16)
