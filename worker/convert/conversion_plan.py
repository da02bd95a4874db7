"""Plans a conversion: which tensors of the source, whole or in a rank's pieces, go into which files.

It works on names and shapes and reads no weights. The caller gives the pieces that each rank holds.
"""

from dataclasses import field
from pathlib import Path
from typing import NamedTuple

from ...kernels.arrays import DType
from ...kernels.stored.float8 import FLOAT8
from ...protocol.conversion import Conversion
from ...protocol.errors import ConfigError
from ...protocol.files.model_file import require_regular
from ...protocol.options.quantization import named_layers
from ...records import dataclass
from ..description.config import ModelConfig
from ..description.products import HEAD, VISION, quantized_kinds
from ..description.text_config import name_beside
from ..weights.files.mapped_safetensors import MappedSafetensors
from ..weights.files.weight_files import own_weight_files, rank_folder
from ..weights.layouts.layout import FindLayout, Layout, Sliceable
from ..weights.piece import CheckpointPiece
from ..weights.quantized import COMPANIONS
from .compressed_writer import planned_tensors
from .safetensors_file import STORED_AS, TensorSpec

_LARGEST_FILE = 5 << 30  # the usual limit
_GROUP_SIZES = (32, 64, 128)

TargetFile = dict[str, TensorSpec]  # one planned safetensors file
Pieces = dict[str, CheckpointPiece]  # by the source's names


class StoredTensor(NamedTuple):
    """A tensor of the source, as layers see it."""

    name: str
    stored_name: str  # several may share one
    layout: Layout
    file: MappedSafetensors
    dtype: DType
    shape: tuple[int, ...]
    written_name: str
    kind: str | None = None  # int8 or int4, if it is to be quantized
    widened: DType | None = None  # the dtype of 8-bit floats that are not quantized

    @property
    def nbytes(self) -> int:
        return TensorSpec(self.dtype, self.shape).nbytes

    def view(self) -> Sliceable:
        """The tensor in its file, to be sliced."""
        return self.layout.view(self.name, self.file.array(self.stored_name))

    @property
    def is_rescaled(self) -> bool:
        """Whether it is read together with its scales, which are not kept."""
        return self.dtype in FLOAT8 and (self.kind or self.widened) is not None

    @property
    def is_linear(self) -> bool:
        """Whether it is the matrix of a Linear, in the sense of compressed-tensors."""
        return self.name == f"{HEAD}.weight" or (self.name.startswith(("model.layers.", VISION)) and _is_matrix(self))


@dataclass
class TargetFolder:
    """A set of planned files: the whole model, or one rank's share."""

    name: str  # within the target
    pieces: Pieces = field(default_factory=dict)
    written_names: dict[str, str] = field(default_factory=dict)  # by the pieces' tensors
    files: list[TargetFile] = field(default_factory=list)

    @property
    def nbytes(self) -> int:
        return sum(map(size_of, self.files))

    @property
    def file_names(self) -> list[str]:
        count = len(self.files)
        if count == 1:
            return ["model.safetensors"]
        return [f"model-{number:05}-of-{count:05}.safetensors" for number in range(1, count + 1)]

    def add(self, source: StoredTensor, piece: CheckpointPiece, tensors: TargetFile) -> None:
        """Add the tensors that a piece of the source becomes."""
        if not self.files or (self.files[-1] and size_of(self.files[-1]) + size_of(tensors) > _LARGEST_FILE):
            self.files.append({})
        self.files[-1] |= tensors
        self.pieces[source.name], self.written_names[source.name] = piece, source.written_name


def _is_matrix(tensor: StoredTensor) -> bool:
    return tensor.name.endswith(".weight") and len(tensor.shape) == 2


def size_of(file: TargetFile) -> int:
    return sum(planned.nbytes for planned in file.values())


def kinds_of_tensors(config: ModelConfig, asked: Conversion) -> dict[str, str | None]:
    """int8 or int4 for each tensor to be quantized, None for those named that are not.

    The head stays unchanged, for engines that need it so, and so does the projection from latents to keys and values: a
    load cuts it by head before quantizing it, the keys across the rows.
    """
    kinds = quantized_kinds(config, asked.quantization)
    is_cut_first = config.latent is not None and config.quantization is None
    left = {layer for layer in kinds if is_cut_first and layer.endswith(".kv_b_proj")} | {HEAD}
    named = named_layers(asked.quantization, kinds) - left
    return {f"{layer}.weight": (kinds[layer] or "").removeprefix("w") or None for layer in kinds if layer in named}


def stored_tensors(
    folder: Path, config: ModelConfig, kinds: dict[str, str | None], find_layout: FindLayout
) -> list[StoredTensor]:
    """All tensors of the source, by file and name. A model with vision keeps its names; others get layers' names."""
    file_of: dict[str, MappedSafetensors] = {}
    for path in own_weight_files(folder):
        require_regular(path)
        file = MappedSafetensors.open(path)
        file_of |= dict.fromkeys(sorted(file.names), file)
    layout = find_layout(file_of, config)
    found = []
    for name, stored in layout.names(file_of).items():
        file = file_of[stored]
        view = layout.view(name, file.array(stored))
        written = name if config.vision is None else name_beside(stored, name)
        dtype = _dtype(view, name)
        found.append(StoredTensor(name, stored, layout, file, dtype, view.shape, written, kinds.get(name)))
    return sorted(found, key=lambda each: each.file.path)


def _dtype(view: Sliceable, name: str) -> DType:
    if view.dtype not in STORED_AS:
        raise ConfigError(
            f"{name} is stored as {view.dtype}, which is not converted. Use a float32, float16 or bfloat16 checkpoint."
        )
    return view.dtype


def with_scales_applied(stored: list[StoredTensor], kinds: dict[str, str | None], widened: DType) -> list[StoredTensor]:
    """Convert 8-bit floats as loading does: layers that are not named become int8, others floats."""
    matrices = {each.name for each in stored if each.dtype in FLOAT8 and _is_matrix(each)}
    scales = {f"{name.removesuffix('weight')}{companion}" for name in matrices for companion in COMPANIONS}
    found = []
    for each in stored:
        if each.name in matrices:
            is_layer = each.is_linear and each.name != f"{HEAD}.weight"
            kind = kinds.get(each.name, "int8" if is_layer else None)
            each = each._replace(kind=kind, widened=None if kind else widened)
        if each.name not in scales:
            found.append(each)
    return found


def planned_folders(stored: list[StoredTensor], asked: Conversion, by_rank: list[Pieces]) -> list[TargetFolder]:
    """Plan one folder per rank if the target is divided, else one with everything."""
    wanted = {".": {source.name: CheckpointPiece(source.name, source.shape) for source in stored}}
    if asked.is_cut:
        wanted = {rank_folder(rank, len(by_rank)): pieces for rank, pieces in enumerate(by_rank)}
    folders = []
    for name, pieces in wanted.items():
        folder = TargetFolder(name)
        for source in stored:
            if piece := pieces.get(source.name):
                folder.add(source, piece, _planned(source, piece, asked))
        folders.append(folder)
    return folders


def _planned(source: StoredTensor, piece: CheckpointPiece, asked: Conversion) -> TargetFile:
    if source.kind is None:
        return {source.written_name: TensorSpec(source.widened or source.dtype, piece.part_shape)}
    module = source.written_name.removesuffix("weight")
    rows, inputs = piece.part_shape
    made = planned_tensors(source.kind, (rows, inputs), asked.group_size)
    return {module + name: TensorSpec(*planned) for name, planned in made.items()}


def check_groups(by_rank: list[Pieces], kinds: dict[str, str | None], asked: Conversion) -> None:
    """Refuse group sizes that don't divide the inputs of every rank, and name those that do."""
    names = {name for name, kind in kinds.items() if kind == "int4"}
    widths = {piece.part_shape[1] for pieces in by_rank for piece in pieces.values() if piece.name in names}
    if not widths:
        return
    if all(width % asked.group_size == 0 for width in widths) and asked.group_size in _GROUP_SIZES:
        return
    fitting = [size for size in _GROUP_SIZES if all(width % size == 0 for width in widths)]
    way_out = f"Use {' or '.join(map(str, fitting))}." if fitting else "None of 32, 64 and 128 does; use int8."
    among = f" on each of {len(by_rank)} ranks" if len(by_rank) > 1 else ""
    raise ConfigError(
        f"group_size={asked.group_size} is no size that the kernels have and that divides the projections' inputs"
        f"{among}, {', '.join(f'{width:,}' for width in sorted(widths))}. {way_out}"
    )
