"""What a conversion will write: for each tensor of the source its file in the target, and what becomes of it.

Knows shapes and names, reads no weights.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import torch
from safetensors import safe_open

from ..protocol.conversion import Conversion
from ..protocol.errors import ConfigError
from .models.config import ModelConfig
from .quantized_checkpoint.compressed_writer import planned_tensors
from .safetensors_file import DTYPES, Planned

_LARGEST_FILE = 5 << 30  # as others cut theirs
_GROUP_SIZES = (32, 64, 128)
# Projections whose inputs tensor parallelism divides; of the others it divides the outputs.
_DIVIDED_INPUTS = ("o_proj", "down_proj")


class Stored(NamedTuple):
    """A tensor of the source."""

    name: str
    file: Path
    dtype: torch.dtype
    shape: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        return Planned(self.dtype, self.shape).nbytes

    @property
    def is_projection(self) -> bool:
        """What compressed-tensors calls a Linear, the head left out."""
        return self.name.startswith("model.layers.") and self.name.endswith("_proj.weight")


@dataclass
class TargetFile:
    """One safetensors file to be."""

    sources: list[Stored] = field(default_factory=list)
    tensors: dict[str, Planned] = field(default_factory=dict)

    @property
    def nbytes(self) -> int:
        return sum(planned.nbytes for planned in self.tensors.values())


def stored_tensors(folder: Path) -> list[Stored]:
    """All of the source, by file and name."""
    found = []
    for path in sorted(folder.glob("*.safetensors")):
        with safe_open(path, framework="pt") as file:
            for name in sorted(file.keys()):
                view = file.get_slice(name)
                found.append(Stored(name, path, DTYPES[view.get_dtype()], tuple(view.get_shape())))
    return found


def planned_files(stored: list[Stored], asked: Conversion) -> list[TargetFile]:
    files = [TargetFile()]
    for source in stored:
        made = _planned(source, asked)
        size = sum(planned.nbytes for planned in made.values())
        if files[-1].tensors and files[-1].nbytes + size > _LARGEST_FILE:
            files.append(TargetFile())
        files[-1].sources.append(source)
        files[-1].tensors |= made
    return files


def _planned(source: Stored, asked: Conversion) -> dict[str, Planned]:
    if not source.is_projection:
        return {source.name: Planned(source.dtype, source.shape)}
    module = source.name.removesuffix("weight")
    made = planned_tensors(asked.kind, (source.shape[0], source.shape[1]), asked.group_size)
    return {module + name: Planned(*planned) for name, planned in made.items()}


def check_groups(stored: list[Stored], config: ModelConfig, asked: Conversion) -> None:
    """Refuse groups that don't divide the inputs of every rank, and say which do."""
    ranks = asked.tensor_parallel_size
    if config.num_heads % ranks or config.intermediate_size % ranks:
        raise ConfigError(
            f"tensor_parallel_size={ranks} can't share {config.num_heads} attention heads and a width of "
            f"{config.intermediate_size:,} evenly."
        )
    if asked.kind != "int4":
        return
    widths = set(_input_widths(stored, ranks))
    if all(width % asked.group_size == 0 for width in widths) and asked.group_size in _GROUP_SIZES:
        return
    fitting = [size for size in _GROUP_SIZES if all(width % size == 0 for width in widths)]
    way_out = f"Use {' or '.join(map(str, fitting))}." if fitting else "None of 32, 64 and 128 does; use int8."
    among = f" on each of {ranks} ranks" if ranks > 1 else ""
    raise ConfigError(
        f"group_size={asked.group_size} is no size that the kernels have and that divides the projections' inputs"
        f"{among}, {', '.join(f'{width:,}' for width in sorted(widths))}. {way_out}"
    )


def _input_widths(stored: list[Stored], ranks: int) -> Iterator[int]:
    for source in stored:
        if source.is_projection:
            is_divided = source.name.split(".")[-2] in _DIVIDED_INPUTS
            yield source.shape[1] // ranks if is_divided else source.shape[1]
