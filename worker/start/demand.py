"""Estimates a model's memory on a rank, and chooses where its packed weights are kept, before any of them is read.

Weights that don't fit into memory are written to the cached file while they are packed, and mapped.
"""

from collections.abc import Callable
from pathlib import Path

from ...kernels import DTYPES, WeightFormat
from ...kernels.arrays import DType
from ...kernels.cpu.kv_memory import LARGEST_LATENT_IN_BYTES, LATENT_FORMATS
from ...protocol.errors import ConfigError, OutOfMemoryError
from ...records import dataclass
from ..backends.backend import Backend
from ..description.config import ModelConfig
from ..description.groups import LayerGroup
from ..description.parts.latent import LatentConfig
from ..ranks.parallel import Parallel
from ..weights.layer_formats import LayerFormats
from ..weights.packed.cache import NotKept, PackedCache
from ..weights.packed.kept_files import NoRoom
from ..weights.weight_bytes import estimated_weight_bytes, largest_weight_bytes
from .group_memory import block_bytes


@dataclass(frozen=True)
class Demand:
    config: ModelConfig
    weight_bytes: int
    largest_bytes: int  # of the weights packed at once
    kinds: str  # number formats of the weights
    is_kept: bool  # packed weights of an earlier start exist, and are mapped
    not_mapped: str  # why weights can't be written to a file while packing and mapped; empty: they can
    # Bytes of a group's block or state, by the block's size and the format that the option `kv_cache_dtype` names.
    block_bytes: Callable[[LayerGroup, int, str], int]
    gives_back: bool  # blocks that leave a window are freed


# Raises if the model doesn't fit; returns whether its weights fit only if they are mapped.
CheckRoom = Callable[[Demand], bool]


def kept_weights(
    load_format: str,
    backend: Backend,
    model_folder: Path,
    formats: LayerFormats,
    ranks: Parallel,
    expert_parallel: bool,
) -> tuple[PackedCache | None, str]:
    """Choose the folder for packed weights, or give the reason why they aren't kept."""
    if load_format == "dummy":
        return None, "weights that are made up (load_format='dummy') are not kept"
    try:
        return backend.cache(model_folder, formats, ranks, expert_parallel), ""
    except NotKept as error:
        return None, str(error)


def demand_of(
    config: ModelConfig,
    backend: Backend,
    formats: LayerFormats,
    ranks: Parallel,
    cache: PackedCache | None,
    not_kept: str,
    dtype: DType,
) -> Demand:
    weight_bytes = estimated_weight_bytes(config, formats, ranks.size)
    if cache is not None:
        not_kept = cache.lack(weight_bytes * ranks.size)  # all ranks write to one disk

    def of_block(group: LayerGroup, block_size: int, wanted: str) -> int:
        kind = kv_kind(config, backend, WeightFormat.of(dtype).kind, wanted)
        return block_bytes(group, backend, ranks, block_size, kind)

    return Demand(
        config=config,
        weight_bytes=weight_bytes,
        largest_bytes=largest_weight_bytes(config, formats, ranks.size),
        kinds=formats.kinds,
        is_kept=cache is not None and cache.is_kept,
        not_mapped=not_kept,
        block_bytes=of_block,
        gives_back=backend.gives_back,
    )


def write_through(cache: PackedCache, nbytes: int) -> None:
    try:
        cache.write_through(nbytes)
    except (NoRoom, NotKept, OSError) as error:
        raise OutOfMemoryError(
            f"The model is larger than memory, and its packed weights can't be mapped from the disk: {error}. "
            "Free some of the disk, use a smaller model, or free memory. Nothing was read."
        ) from error


def kv_kind(config: ModelConfig, backend: Backend, own: str, wanted: str) -> str:
    if config.latent is not None:
        _check_latents(config, config.latent, wanted)
    return backend.kv_kind(backend.own_kv_kind(own) if wanted == "auto" else wanted)


def _check_latents(config: ModelConfig, latent: LatentConfig, wanted: str) -> None:
    if wanted not in ("auto", *LATENT_FORMATS):
        raise ConfigError(
            f"kv_cache_dtype={wanted!r} is not for {config.family.name}, which keeps latents instead of keys "
            f"and values (MLA). Use {', '.join(LATENT_FORMATS)}."
        )
    if wanted == "int8" and max(latent.rank, latent.rope_dim) > LARGEST_LATENT_IN_BYTES:
        raise ConfigError(
            f"kv_cache_dtype='int8' takes latents of up to {LARGEST_LATENT_IN_BYTES} numbers, and this model's have "
            f"{latent.rank} and a key of {latent.rope_dim}. Use {', '.join(DTYPES)}."
        )
