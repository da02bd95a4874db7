"""Checks that ranks can divide a model: its heads, and the inner layers of its MLPs. Reads no weights."""

from collections.abc import Iterator

from ...protocol.errors import ConfigError
from .config import ModelConfig
from .parts.mixers import DeltaNet, ShortConvolution
from .parts.mixtures import ExpertsConfig


def check_split(config: ModelConfig, size: int, expert_parallel: bool = False) -> None:
    """Refuse a number of ranks that can't share the model, and say which can."""
    fitting = [n for n in range(1, config.num_heads + 1) if _fits(config, n)]
    if size not in fitting:
        raise ConfigError(
            f"tensor_parallel_size={size} can't share {config.num_heads} attention heads and {_kv_heads(config)} "
            f"key-value heads{_of_states(config)}. Use one of {', '.join(map(str, fitting))}."
        )
    if expert_parallel and config.experts is not None and config.experts.num_experts < size:
        raise ConfigError(
            f"enable_expert_parallel=True gives each of {size} ranks whole experts, and this model has only "
            f"{config.experts.num_experts}. Use a smaller tensor_parallel_size, or leave it out."
        )
    for what, width in _widths(config, expert_parallel):
        if width < size:
            raise ConfigError(
                f"tensor_parallel_size={size} can't share {what}, of which there are {width}: a rank would have none. "
                f"Use {width} ranks or fewer."
            )


def _fits(config: ModelConfig, size: int) -> bool:
    if any(_shared(mixer) % size for mixer in config.mixers if mixer is not None):
        return False
    kv_heads = {heads.num_kv_heads for heads in config.heads}
    return config.num_heads % size == 0 and all(each % size == 0 or size % each == 0 for each in kv_heads)


def _kv_heads(config: ModelConfig) -> str:
    return " or ".join(str(each) for each in sorted({heads.num_kv_heads for heads in config.heads}))


def _shared(mixer: DeltaNet | ShortConvolution) -> int:
    """The counts that the ranks must divide evenly."""
    return mixer.num_key_heads if isinstance(mixer, DeltaNet) else mixer.channels


def _of_states(config: ModelConfig) -> str:
    mixer = next((mixer for mixer in config.mixers if mixer is not None), None)
    if mixer is None:
        return ""
    what = "key heads of delta nets" if isinstance(mixer, DeltaNet) else "channels of convolutions"
    return f", and {_shared(mixer)} {what}, which ranks share evenly"


def _widths(config: ModelConfig, expert_parallel: bool) -> Iterator[tuple[str, int]]:
    """The MLP widths that the ranks divide."""
    experts = config.experts
    if any(map(config.has_mlp, range(config.num_layers))):
        yield "the outputs of the MLP's first product (intermediate_size)", config.intermediate_size
    if experts is not None and experts.shared_width:
        yield "the outputs of the shared experts' first product", experts.shared_width
    if experts is not None and not expert_parallel:
        yield _inner_layer(config, experts)


def _inner_layer(config: ModelConfig, experts: ExpertsConfig) -> tuple[str, int]:
    if config.quantization is not None and config.quantization.is_mxfp4:
        block = config.quantization.group_size  # numbers that share an exponent stay together
        return f"blocks of {block} in an expert's inner layer", experts.width // block
    return "the outputs of an expert's first product", experts.width
