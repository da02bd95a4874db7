"""Selects the backend that computes a model: the fastest that can run it here."""

import torch

from ...kernels import triton
from ...kernels.cpu.library import LibraryError, load
from ..models.config import ModelConfig
from ..parallel import Parallel
from .backend import Backend, BackendOptions
from .native.backend import NativeBackend
from .torch.backend import TorchBackend


def select_backend(
    config: ModelConfig,
    device: torch.device,
    dtype: torch.dtype,
    ranks: Parallel,
    options: BackendOptions,
) -> Backend:
    missing = ""
    if device.type == "cuda" or triton.is_interpreted():
        if not (missing := triton.lack()):
            from .triton.backend import TritonBackend  # its kernels import triton

            return TritonBackend.made(device, dtype, ranks, options)
    else:
        try:
            return NativeBackend.made(load(), config, device, dtype, ranks)
        except LibraryError as error:
            missing = str(error)
    return TorchBackend.made(device, dtype, ranks, options.deterministic, missing)
