"""From a model folder to a model that can run a batch: number formats, ranks, weights, and a report of what was read.

Knows nothing of requests or KV blocks.
"""

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from ...kernels import FAST, INVARIANT, TorchOperations, WeightForm, multiplies_bfloat16
from ...protocol.errors import ConfigError
from ..batch import Batch
from ..checkpoint import Checkpoint, DummySource, Placement, Source, Weights
from ..kv_cache import KVShape
from ..layers.linear import local_kv_heads
from ..parallel import Parallel
from .config import ModelConfig, read_config
from .decoder import Decoder

_DTYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}


@dataclass(frozen=True)
class LoadReport:
    """What loading read on this rank."""

    bytes_read: int
    leftovers: list[str]  # tensors in the checkpoint that no layer asked for


@dataclass(frozen=True)
class Model:
    """A loaded model, and what its surroundings ask of it."""

    config: ModelConfig
    decoder: Decoder
    dtype: torch.dtype  # the model's number format, in which its keys and values are stored by default
    kv_shape: KVShape
    report: LoadReport

    @property
    def vocab_size(self) -> int:
        return self.config.vocab_size

    @property
    def max_position(self) -> int:
        """Tokens of context that the config gives."""
        return self.config.max_position

    def forward(self, batch: Batch) -> Tensor:
        """[T, hidden] of a step."""
        return self.decoder.forward(batch)

    def logits(self, hidden: Tensor) -> Tensor:
        """[S, vocabulary] float32 of some rows of `forward`'s result."""
        return self.decoder.logits(hidden)


def load_model(
    model_folder: Path,
    *,
    device: torch.device | str = "cpu",
    dtype: torch.dtype | str = "auto",
    ranks: Parallel | None = None,
    max_model_len: int | None = None,
    load_format: str = "auto",
    deterministic: bool = False,
) -> Model:
    """Read this rank's share of the model in `model_folder`; `dtype` "auto" is the checkpoint's."""
    config = read_config(model_folder)
    ranks = ranks or Parallel()
    check_split(config, ranks.size)
    device = torch.device(device)
    number = resolve_dtype(dtype, config)
    matrices, activations = number_formats(number, device)
    ops = TorchOperations(INVARIANT if deterministic else FAST, device, activations, ranks.all_reduce)
    form = WeightForm.of(matrices)
    placement = Placement(device, form, form, activations, ops, ranks)
    source: Source = DummySource(device, _absent(config)) if load_format == "dummy" else Checkpoint(model_folder)
    decoder = Decoder(Weights(source, placement), config, max_model_len or config.max_position)
    first, last = local_kv_heads(ranks.rank, ranks.size, config.num_kv_heads)
    unread = source.leftovers()
    if config.tie_word_embeddings:  # many exporters save the tied head a second time
        unread = [name for name in unread if name != "lm_head.weight"]
    return Model(
        config=config,
        decoder=decoder,
        dtype=number,
        kv_shape=KVShape(config.num_layers, last - first, config.head_dim),
        report=LoadReport(source.bytes_read, unread),
    )


def resolve_dtype(dtype: torch.dtype | str, config: ModelConfig) -> torch.dtype:
    """The number format asked for, or with "auto" the checkpoint's."""
    if isinstance(dtype, torch.dtype):
        return dtype
    name = config.dtype if dtype == "auto" else dtype
    if name not in _DTYPES:
        raise ConfigError(f"The number format {name!r} is not supported. Use one of {', '.join(_DTYPES)}.")
    return _DTYPES[name]


def number_formats(dtype: torch.dtype, device: torch.device) -> tuple[torch.dtype, torch.dtype]:
    """Of the matrices and of the activations between products.

    On a CPU activations are float32, and so are the matrices of a half format that its units can't multiply: torch
    multiplies those at a fraction of float32's speed.
    """
    if device.type != "cpu":
        return dtype, dtype
    is_multiplied = dtype == torch.bfloat16 and multiplies_bfloat16()
    return (torch.bfloat16 if is_multiplied else torch.float32), torch.float32


def check_split(config: ModelConfig, size: int) -> None:
    """Refuse a number of ranks that can't share the heads, and say which can."""
    fitting = [n for n in range(1, config.num_heads + 1) if _fits(config, n)]
    if size not in fitting:
        raise ConfigError(
            f"tensor_parallel_size={size} can't share {config.num_heads} attention heads and {config.num_kv_heads} "
            f"key-value heads. Use one of {', '.join(map(str, fitting))}."
        )


def _fits(config: ModelConfig, size: int) -> bool:
    kv_heads = config.num_kv_heads
    return config.num_heads % size == 0 and (kv_heads % size == 0 or size % kv_heads == 0)


def _absent(config: ModelConfig) -> tuple[str, ...]:
    """Endings of the optional tensors that this model does not have."""
    projections = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj", "lm_head")
    return tuple(f"{name}.bias" for name in projections if name not in config.biased)
