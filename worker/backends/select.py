"""Selects the backend that computes a model: Triton's kernels on a GPU, native ones on a CPU, torch's otherwise."""

from dataclasses import replace

import torch

from ...kernels import triton
from ...kernels.arrays import DType
from ...kernels.cpu.library import LibraryError
from ...kernels.cpu.library import load as load_library
from ...protocol.errors import ConfigError
from ..description.config import ModelConfig
from ..device import kind_of
from ..ranks.parallel import Parallel
from .backend import Backend, BackendOptions
from .native.backend import NativeBackend
from .torch.backend import TorchBackend
from .triton.unsupported import missing_kernels


def select_backend(
    config: ModelConfig,
    device: torch.device,
    dtype: DType,
    ranks: Parallel,
    options: BackendOptions,
) -> Backend:
    """The fastest backend that can run the model here."""
    missing = ""
    if kind_of(device).kernels == "triton" or triton.is_interpreted():
        if lacking := missing_kernels(config):
            raise ConfigError(
                f"{config.family.name} {lacking}, and there are no kernels for that on a GPU yet. Use device='cpu'."
            )
        if not (missing := triton.lack()):
            from .triton.backend import TritonBackend  # its kernels import triton

            # Captured steps only support tables of blocks.
            captures_steps = options.captures_steps and not any(config.states)
            return TritonBackend.create(device, dtype, ranks, replace(options, captures_steps=captures_steps))
    else:
        try:
            return NativeBackend.create(load_library(), config, device, dtype, ranks)
        except LibraryError as error:
            missing = str(error)
    return TorchBackend.create(device, dtype, ranks, options.deterministic, missing)
