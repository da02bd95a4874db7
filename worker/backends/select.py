"""Selects the device of a rank and the backend that computes a model there.

Triton's kernels compute on a GPU, native ones on a CPU, torch's operations otherwise.
"""

import logging
from importlib.util import find_spec
from typing import TYPE_CHECKING

from ...kernels import triton
from ...kernels.arrays import DType
from ...kernels.cpu.library import LibraryError
from ...kernels.cpu.library import load as load_library
from ...kernels.triton.launch.switches import wrong_switch
from ...protocol.errors import ConfigError
from ...protocol.options.config import EngineConfig
from ...protocol.survey import are_cards_hidden, has_driver
from ..description.config import ModelConfig
from ..description.groups import groups_of
from ..device import Device, HostDevice
from ..ranks.parallel import Parallel
from .backend import Backend, BackendOptions
from .native.backend import NativeBackend
from .native.portable import PortableBackend

if TYPE_CHECKING:
    from .torch.backend import TorchBackend

_LOG = logging.getLogger(__name__)


def chosen_device(config: EngineConfig, rank: int) -> Device:
    if wrong := wrong_switch():  # before any rank waits for another, and on a CPU, too: a rehearsal finds it
        raise ConfigError(wrong)
    if config.device == "cpu" or (config.device == "auto" and (not has_driver() or are_cards_hidden())):
        return HostDevice()
    what, advice = _lack_of_torch()
    if what and config.device == "auto":
        _LOG.warning("There is a GPU, but %s: computing on the CPU. For the GPU: %s", what, advice)
        return HostDevice()
    if what:
        raise ConfigError(f"device='cuda', and {what}. For the GPU: {advice}, or use device='cpu'.")
    from .torch.card import card_of_rank
    from .torch.device import TensorDevice

    card = card_of_rank(config, rank)
    return HostDevice() if card is None else TensorDevice(card)


def _lack_of_torch() -> tuple[str, str]:
    """What of torch a GPU lacks here, and what to do; two empty strings if nothing."""
    install = "pip install 'penstock[gpu]'"
    if find_spec("torch") is None:
        return "torch isn't installed", install
    from .torch.card import cpu_build

    version = cpu_build()
    return (f"this torch ({version}) is a CPU build", f"pip uninstall torch, then {install}") if version else ("", "")


def select_backend(
    config: ModelConfig,
    device: Device,
    dtype: DType,
    ranks: Parallel,
    options: BackendOptions,
) -> Backend:
    """The fastest backend that can run the model here. Those of torch and Triton are imported where they are chosen."""
    if options.portable:
        return _portable_backend(config, device, dtype, ranks)
    missing = ""
    if device.kind == "cuda" or triton.is_interpreted():
        if lacking := _missing_on_a_gpu(config):
            raise ConfigError(
                f"{config.family.name} {lacking}, and there are no kernels for that on a GPU yet. Use device='cpu'."
            )
        if not (missing := triton.lack()):
            from .torch.device import tensor_device
            from .triton.backend import TritonBackend

            return TritonBackend.create(tensor_device(device), dtype, ranks, options)
    else:
        try:
            return NativeBackend.create(load_library(), config, dtype, ranks)
        except LibraryError as error:
            missing = str(error)
    return _torch_backend(device, dtype, ranks, options, missing)


def _portable_backend(config: ModelConfig, device: Device, dtype: DType, ranks: Parallel) -> Backend:
    if device.kind == "cuda":
        raise ConfigError(
            "deterministic='portable' is for CPUs: a GPU's products add in an order of their own. Use device='cpu', or "
            "deterministic=True for the same answer in any batch."
        )
    try:
        return PortableBackend.create(load_library().portable(), config, dtype, ranks)
    except LibraryError as error:
        raise ConfigError(
            f"deterministic='portable' needs the native kernels, whose arithmetic it is: {error} "
            "penstock doctor says more about this machine."
        ) from error


def _torch_backend(
    device: Device, dtype: DType, ranks: Parallel, options: BackendOptions, missing: str
) -> "TorchBackend":
    """The backend of torch's operations, where it is known why no kernels run here."""
    require_torch(missing)
    from .torch.backend import TorchBackend
    from .torch.device import tensor_device

    return TorchBackend.create(tensor_device(device), dtype, ranks, options.deterministic or options.pooled, missing)


def require_torch(missing: str) -> None:
    """Refuse to go on without torch, where kernels are missing for this reason."""
    if find_spec("torch") is None:
        raise ConfigError(
            f"There are no kernels for this model here ({missing.rstrip('.')}), and torch, whose operations would "
            "serve without quantization=, isn't installed: pip install 'penstock[torch]'."
        )


def _missing_on_a_gpu(config: ModelConfig) -> str:
    """The first feature of this model that a GPU's kernels don't support yet, as the end of a sentence; "" if none."""
    if config.is_two_sided:
        return "sees its texts to both sides"
    if config.latent is not None:
        return "keeps latents instead of keys and values (MLA)"
    attention = [group for group in groups_of(config, 1, gives_back=False) if group.state is None]
    if len(attention) > 1:
        return f"has {len(attention)} kinds of heads in its layers"
    if config.scales.score_cap is not None:
        return "caps the scores of attention (soft cap)"
    if config.qk_norm is not None and config.family.norm.has_mean:
        return "takes the mean off queries and keys (LayerNorm by head)"
    if config.family.norms_values:
        return "norms values"
    if config.family.norms_after_rotation:
        return "norms queries and keys behind their rotation"
    return ""
