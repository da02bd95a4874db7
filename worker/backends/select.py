"""Selects the device of a rank and the backend that computes a model there.

Triton's kernels compute on a GPU, native ones on a CPU, torch's operations otherwise.
"""

from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import torch

from ...kernels import triton
from ...kernels.arrays import DType
from ...kernels.cpu.library import LibraryError
from ...kernels.cpu.library import load as load_library
from ...protocol.errors import ConfigError
from ...protocol.options.config import EngineConfig
from ..description.config import ModelConfig
from ..device import Device, HostDevice
from ..ranks.parallel import Parallel
from .backend import Backend, BackendOptions
from .native.backend import NativeBackend
from .torch.backend import TorchBackend
from .torch.card import visible_cards
from .torch.device import TensorDevice
from .triton.unsupported import missing_kernels

# A driver of GPUs makes one of these; the second is Windows' under WSL.
_DRIVERS = (Path("/dev/nvidiactl"), Path("/dev/dxg"))


def chosen_device(config: EngineConfig, rank: int) -> Device:
    has_torch = find_spec("torch") is not None
    if config.device == "cpu":
        return HostDevice()
    if config.device == "auto" and not (has_torch and any(driver.exists() for driver in _DRIVERS)):
        return HostDevice()
    if not has_torch:
        raise ConfigError(
            "device='cuda' needs torch and Triton, which aren't installed here. Install them with: "
            "pip install 'penstock[gpu]', or use device='cpu'."
        )
    return _card(config, rank)


def _card(config: EngineConfig, rank: int) -> Device:
    if not torch.cuda.is_available():
        if config.device == "auto":
            return HostDevice()
        raise ConfigError(
            "device='cuda', and torch finds no CUDA device here. Use device='cpu', or check the driver and that "
            "this torch is a CUDA build."
        )
    cards = visible_cards(config)
    if rank >= len(cards) or max(cards) >= torch.cuda.device_count():
        raise ConfigError(
            f"tensor_parallel_size={config.tensor_parallel_size} needs a card for each rank; of the "
            f"{torch.cuda.device_count()} here, {cards} may be used. Use a smaller size or name other devices."
        )
    device = torch.device("cuda", cards[rank])
    torch.cuda.set_device(device)
    return TensorDevice(device)


def select_backend(
    config: ModelConfig,
    device: Device,
    dtype: DType,
    ranks: Parallel,
    options: BackendOptions,
) -> Backend:
    """The fastest backend that can run the model here."""
    missing, tensors = "", TensorDevice(device.torch_device)
    if device.kind == "cuda" or triton.is_interpreted():
        if lacking := missing_kernels(config):
            raise ConfigError(
                f"{config.family.name} {lacking}, and there are no kernels for that on a GPU yet. Use device='cpu'."
            )
        if not (missing := triton.lack()):
            from .triton.backend import TritonBackend  # its kernels import triton

            # Captured steps only support tables of blocks.
            captures_steps = options.captures_steps and not any(config.states)
            return TritonBackend.create(tensors, dtype, ranks, replace(options, captures_steps=captures_steps))
    else:
        try:
            return NativeBackend.create(load_library(), config, tensors, dtype, ranks)
        except LibraryError as error:
            missing = str(error)
    return TorchBackend.create(tensors, dtype, ranks, options.deterministic, missing)
