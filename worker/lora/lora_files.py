"""A LoRA adapter in PEFT's format: adapter_config.json and adapter_model.safetensors.

Everything is checked before anything is read. Adapters that aren't plain LoRA (DoRA, trained biases, embeddings or
whole modules), that belong to another model or that exceed the reserved memory are refused with an error.
"""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy

from ...kernels import DTYPES
from ...kernels.arrays import FLOAT32, Array
from ...protocol.errors import AdapterError, ConfigError
from ...protocol.fields.rules import shown
from ...protocol.files.model_file import read_model_json, require_regular
from ..description.products import VISION
from ..weights.files.mapped_safetensors import MappedSafetensors
from ..weights.layouts.layout import Layout, Sliceable
from ..weights.piece import Part

_CONFIG, _WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
_NAME = re.compile(r"base_model\.model\.(?P<module>.+)\.lora_(?P<matrix>[AB])\.weight")


class Target(NamedTuple):
    """A projection of the model, in full."""

    out_features: int
    in_features: int


class AdapterFiles:
    """`modules` names the projections that the adapter changes."""

    def __init__(self, folder: Path, targets: Mapping[str, Target], max_rank: int, layout: Layout) -> None:
        """`layout` has the family's names of projections, and which of them it fuses."""
        self.folder = folder
        self.config = _checked_config(folder)
        self._stored, self._layout = _opened(folder), layout
        names = layout.names(f"{module}.weight" for module in self._checked_modules())
        self._stored_names = {_module(name): _module(stored) for name, stored in names.items()}
        for module in self.modules:
            self._check_shapes(module, targets, max_rank)

    @property
    def modules(self) -> list[str]:
        return list(self._stored_names)

    def read(self, module: str, part: Part | None) -> tuple[Array, Array]:
        """`down` [rank, in] and `up` [out, rank] with the adapter's scale, both float32, for a part of the weight."""
        down, up = (self._matrix(module, matrix) for matrix in "AB")
        rank = down.shape[0]
        dim, *span = part or (None,)
        down = down[:, slice(*span)] if dim == 1 else down[:]
        up = up[slice(*span)] if dim == 0 else up[:]
        down, up = (half.astype(FLOAT32) for half in (down, up))
        return down, up * numpy.float32(self._scale(module, rank))

    def _matrix(self, module: str, matrix: str) -> Sliceable:
        stored = self._stored.array(f"base_model.model.{self._stored_names[module]}.lora_{matrix}.weight")
        # Fused projections share one `down`; each has the rows of `up` that it has of the fused weight.
        return stored if matrix == "A" else self._layout.view(f"{module}.weight", stored)

    def _scale(self, module: str, rank: int) -> float:
        alpha = self._by_pattern("alpha_pattern", module, self.config.get("lora_alpha", 8))
        if type(alpha) not in (int, float) or not math.isfinite(alpha):
            raise AdapterError(
                f"{self.folder}: {_CONFIG} says lora_alpha={shown(alpha)} of {module}; it must be a number.", "files"
            )
        return alpha / (math.sqrt(rank) if self.config.get("use_rslora") else rank)

    def _by_pattern(self, key: str, module: str, default: Any) -> Any:
        """The value that the config gives a module by a pattern of names, else the default."""
        for pattern, own in (self.config.get(key) or {}).items():
            if re.fullmatch(rf"(.*\.)?({pattern})", self._stored_names[module]):
                return own
        return default

    def _checked_modules(self) -> list[str]:
        """Check that every tensor is half of a pair that adds to a projection."""
        halves: dict[str, set[str]] = {}
        for name in sorted(self._stored.names):
            if (found := _NAME.fullmatch(name)) is None:
                raise AdapterError(f"{self.folder} holds {name}, which {_kind_of(name)}.", "files")
            halves.setdefault(found["module"], set()).add(found["matrix"])
        for module, matrices in halves.items():
            if len(matrices) != 2:
                half = f"lora_{min(matrices)} of {module}"
                raise AdapterError(f"{self.folder} holds only {half}; it is damaged.", "files")
        if not halves:
            raise AdapterError(f"{self.folder / _WEIGHTS} holds no tensors.", "files")
        return list(halves)

    def _check_shapes(self, module: str, targets: Mapping[str, Target], max_rank: int) -> None:
        down, up = (self._matrix(module, matrix) for matrix in "AB")
        wanted = self._by_pattern("rank_pattern", module, self.config.get("r"))
        rank = down.shape[0] if down.shape else 0
        if wanted not in (None, rank):
            raise AdapterError(
                f"{self.folder}: {_CONFIG} says r={shown(wanted)} of {module}, whose matrices have rank {rank}. Its "
                "scale would be wrong; the two files don't belong together.",
                "files",
            )
        check_module(str(self.folder), module, down.shape, up.shape, targets, max_rank)
        for stored in (down, up):
            if stored.dtype not in DTYPES.values():
                raise AdapterError(
                    f"{self.folder} stores {module} as {stored.dtype}. Save it as float32, float16 or bfloat16.",
                    "files",
                )


def check_module(
    where: str, module: str, down: Sequence[int], up: Sequence[int], targets: Mapping[str, Target], max_rank: int
) -> None:
    """Refuse a pair of matrices that doesn't match a projection of this model or exceeds the reserved rank."""
    if module not in targets:
        raise AdapterError(f"{where} changes {module}. {_missing(module, targets)}", "files")
    (rank, in_features), (out_features, other_rank) = _matrix(down), _matrix(up)
    if (rank, out_features, in_features) != (other_rank, *targets[module]):
        raise AdapterError(
            f"{where} adds [{out_features}, {other_rank}] x [{rank}, {in_features}] to {module}, which is "
            f"{list(targets[module])} here. It was trained on another model.",
            "files",
        )
    if rank > max_rank:
        raise AdapterError(
            f"{where} has rank {rank} in {module}, and there is room for max_lora_rank={max_rank}. "
            f"Start with max_lora_rank={rank}.",
            "rank",
        )


def _module(weight: str) -> str:
    return weight.removesuffix(".weight")


def _matrix(shape: Sequence[int]) -> tuple[int, int]:
    return tuple(shape) if len(shape) == 2 else (0, 0)  # type: ignore[return-value]


def _opened(folder: Path) -> MappedSafetensors:
    path = folder / _WEIGHTS
    if not path.exists():
        other = folder / "adapter_model.bin"
        hint = f" {other.name} is there, but only safetensors are read." if other.exists() else ""
        raise AdapterError(f"{folder} holds no {_WEIGHTS}.{hint}", "files")
    try:
        require_regular(path)
        return MappedSafetensors.open(path)
    except ConfigError as error:
        raise AdapterError(str(error), "files") from error
    except OSError as error:
        raise AdapterError(f"{path} can't be read: {error}.", "files") from error


def _checked_config(folder: Path) -> dict[str, Any]:
    path = folder / _CONFIG
    try:
        config = read_model_json(path)
    except FileNotFoundError:
        raise AdapterError(f"{folder} holds no {_CONFIG}: it is no adapter that PEFT saved.", "files") from None
    except ConfigError as error:
        raise AdapterError(str(error), "files") from error
    if not isinstance(config, dict) or config.get("peft_type") != "LORA":
        kind = config.get("peft_type") if isinstance(config, dict) else config
        raise AdapterError(f"{folder} is of the kind {kind!r}; only LORA is supported.", "files")
    for name, (is_plain, sentence) in _PLAIN.items():
        if not is_plain(config.get(name)):
            raise AdapterError(f"{folder} has {name}={config[name]!r}: {sentence}.", "files")
    return config


def _is_unset(value: Any) -> bool:
    return not value


def _starts_from_base(value: Any) -> bool:
    """Whether training started by changing the model's own weights, so that the adapter isn't the whole difference."""
    return not str(value).lower().startswith(("pissa", "olora", "corda", "loftq", "lora_ga"))


_NOT_PLAIN = "only plain LoRA is supported; merge it into the model instead"
_TRAINED_TOO = "it has trained more than low-rank matrices; merge it into the model instead"
# Values that a config of plain low-rank matrices may have, and the error for others.
_PLAIN: dict[str, tuple[Callable[[Any], bool], str]] = {
    "bias": (lambda value: value in (None, "none"), _TRAINED_TOO),
    "modules_to_save": (_is_unset, _TRAINED_TOO),
    "trainable_token_indices": (_is_unset, _TRAINED_TOO),
    "lora_bias": (_is_unset, _TRAINED_TOO),
    "fan_in_fan_out": (_is_unset, "its matrices are transposed; save it for a model of linear layers"),
    "layer_replication": (_is_unset, "it is for a model whose layers were repeated"),
    "init_lora_weights": (
        _starts_from_base,
        "it goes with changed base weights; PEFT's save_pretrained converts it, given "
        "path_initial_model_for_weight_conversion",
    ),
    **dict.fromkeys(
        (
            "use_dora",
            "use_qalora",
            "use_bdlora",
            "target_parameters",
            "alora_invocation_tokens",
            "arrow_config",
            "kasa_config",
            "monteclora_config",
            "velora_config",
        ),
        (_is_unset, _NOT_PLAIN),
    ),
}


def _kind_of(name: str) -> str:
    if "lora_magnitude_vector" in name:
        return "belongs to DoRA; only plain LoRA is supported"
    if "lora_embedding" in name:
        return "changes an embedding; only the projections of attention and MLP can have adapters"
    return "is no low-rank matrix; an adapter that trains biases or whole modules has to be merged into the model"


def _missing(module: str, targets: Mapping[str, Target]) -> str:
    if module.startswith(VISION):
        return (
            "That is of the encoder of pictures, and adapters change the text part alone: without it answers would be "
            "another model's. Merge the adapter into the model, or train one of the text part."
        )
    last = module.rsplit(".", 1)[-1]
    known = sorted({name.rsplit(".", 1)[-1] for name in targets})
    if last in known:
        return f"This model has {last}, but not there: the adapter was trained on another model."
    return f"Only {', '.join(known)} can have adapters."
