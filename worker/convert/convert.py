"""Writes a model with its projections as integers, in the layout of compressed-tensors, which other engines read too.

Weights are read, quantized and written some rows at a time, whole or divided for the ranks. The target appears under
its name when it is complete. The head, the embedding, the norms and all layers that are not quantized stay unchanged.
A model whose vision is supported is written with its encoder and names; of other models only the text part.
"""

import shutil
from collections.abc import Callable, Iterator, Sequence
from itertools import product
from pathlib import Path

import numpy

from ...kernels.arrays import Array
from ...kernels.cpu.library import LibraryError, load
from ...kernels.cpu.weights.quantized import pack_parts, unpacked
from ...kernels.stored.parts import WeightPart
from ...kernels.stored.quantized import QuantizedPart
from ...protocol.conversion import (
    RECORD,
    Conversion,
    ConversionMessage,
    ConversionProgress,
    ConversionRecord,
    ConversionResult,
    read_record,
)
from ...protocol.errors import ConfigError
from ...protocol.files.model_file import read_model_json
from ...protocol.pooling.form import MODULE_FILES
from ..backends.select import require_torch
from ..description.config import ModelConfig, read_config
from ..description.keys.paddle import as_transformers_writes_it
from ..description.origin import origin_of
from ..description.products import HEAD, expert_layers
from ..description.quantization import QUANTIZATION_FILES, QUANTIZATION_KEYS
from ..description.text_config import PICTURE_TENSORS, text_part
from ..start.load import resolve_dtype
from ..weights.files.checkpoint import Checkpoint
from ..weights.files.file_checks import check_weight_files
from ..weights.files.own_head import with_head_as_stored
from ..weights.files.weight_files import ranks_cut_for
from ..weights.layouts.find_layout import layout_of
from ..weights.layouts.layout import FindLayout
from ..weights.layouts.separate_experts import layout_with_experts_apart
from .compressed_writer import quantization_config
from .conversion_plan import (
    StoredTensor,
    check_groups,
    kinds_of_tensors,
    planned_folders,
    stored_tensors,
    with_scales_applied,
)
from .converted_folder import ConvertedFolder, write_json
from .gguf.convert import convert_to_gguf
from .rank_pieces import rank_pieces
from .target_path import appearing_folder

_PIECE = 16 << 20  # bytes of a source's rows at a time
_WEIGHTS = {".safetensors", ".bin", ".pt", ".pth", ".gguf", ".onnx", ".h5", ".msgpack", ".ot"}
_TEMPLATES = ("additional_chat_templates/*.jinja",)

Quantize = Callable[[WeightPart, str], QuantizedPart]  # rows and their kind
Say = Callable[[ConversionMessage], None]


def convert(asked: Conversion, say: Say) -> ConversionResult:
    """Make the target folder, or GGUF file; raises `PenstockError`."""
    if asked.is_gguf:
        return convert_to_gguf(asked, say)
    source, target = Path(asked.source), Path(asked.target)
    config = read_config(source, is_pooled=asked.pooling is not None)
    _check_source(source, config, asked)
    check_weight_files(source)
    if asked.pooling is None:
        config = with_head_as_stored(config, source, Checkpoint(source, config.quantization, config).names)
    # Quantized files are only copied as a whole.
    is_copied = config.quantization is not None and asked.quantization is None
    kinds = kinds_of_tensors(config, asked)
    find_layout = _layout_for(config, kinds)
    by_rank = [] if is_copied else rank_pieces(source, config, asked, find_layout)
    check_groups(by_rank, kinds, asked)
    stored = stored_tensors(source, config, kinds, find_layout)
    if config.vision is None:
        stored = [each for each in stored if not PICTURE_TENSORS.match(each.name)]
    if config.quantization is not None and not is_copied:
        stored = with_scales_applied(stored, kinds, resolve_dtype("auto", config))
    folders = planned_folders(stored, asked, by_rank)
    stored = [each for each in stored if any(each.name in folder.pieces for folder in folders)]
    before, after = (sum(each.nbytes for each in some) for some in (stored, folders))
    with appearing_folder(target, after) as folder:
        targets = [ConvertedFolder(folder / each.name, each) for each in folders]
        _write_weights(targets, stored, Checkpoint(source, config.quantization, config), _quantizer(asked), say)
        _write_config(folder, source, stored, asked, is_copied, config)
        _write_record(folder, asked)
        _copy_the_rest(folder, source, Path(asked.tokenizer), without=[] if is_copied else list(QUANTIZATION_FILES))
    return ConversionResult(before, after)


def _layout_for(config: ModelConfig, kinds: dict[str, str | None]) -> FindLayout:
    """Separate experts that share a tensor if they become integers; otherwise leave them unchanged."""
    if any(kinds.get(f"{layer}.weight") for layer in expert_layers(config)):
        return layout_with_experts_apart
    return layout_of


def _check_source(source: Path, config: ModelConfig, asked: Conversion) -> None:
    if config.quantization is not None and config.quantization.is_float8:
        if asked.is_cut and asked.quantization is None:
            raise ConfigError(f"{source} holds 8-bit floats, which are not cut for ranks. Convert it to int8 or int4.")
    elif config.quantization is not None and config.quantization.is_mxfp4:
        if asked.is_cut or asked.quantization is not None:
            raise ConfigError(
                f"{source} holds experts in MXFP4, which no conversion changes or cuts for ranks: integers of as few "
                "bits would lose more. Load it as it is; quantization='int8' or 'int4' makes its other projections "
                "smaller while loading."
            )
    elif config.quantization is not None and config.quantization.is_gguf:
        raise ConfigError(f"{source} stands for a GGUF file, whose blocks no conversion changes. Convert its original.")
    elif config.quantization is not None and (asked.quantization is not None or asked.is_cut):
        raise ConfigError(f"{source} is quantized already ({config.quantization}). Convert its original.")
    if ranks := ranks_cut_for(source):
        raise ConfigError(f"{source} is cut for {ranks} ranks already. Convert its original, or copy the whole folder.")


def _quantizer(asked: Conversion) -> Quantize:
    """Quantize like a load with `quantization`: with the kernels' packer, if there is one."""
    try:
        load()
    except LibraryError as error:
        require_torch(str(error))
        from ...kernels.torch.parts import quantized

        return lambda rows, kind: quantized(rows, kind, asked.group_size)
    return lambda rows, kind: unpacked(pack_parts([rows], kind, asked.group_size))  # type: ignore[arg-type]


def _write_weights(
    targets: list[ConvertedFolder], stored: list[StoredTensor], checkpoint: Checkpoint, quantize: Quantize, say: Say
) -> None:
    """Read and quantize each tensor once, for all ranks."""
    done, total = 0, sum(source.nbytes for source in stored)
    for source in stored:
        holders = [target for target in targets if target.holds(source.name)]
        for nbytes in _write_tensor(holders, source, checkpoint, quantize):
            done += nbytes
            say(ConversionProgress(done, total))
    for target in targets:
        target.close()


def _write_tensor(
    holders: list[ConvertedFolder], source: StoredTensor, checkpoint: Checkpoint, quantize: Quantize
) -> Iterator[int]:
    """Write one tensor; yield the numbers of source bytes done."""
    if not source.shape or not source.nbytes:
        for holder in holders:
            holder.whole(source.name, source.file.array(source.stored_name))
        return
    num_rows = source.shape[0]
    step = max(1, _PIECE * num_rows // source.nbytes)
    for first in range(0, num_rows, step):
        last = min(first + step, num_rows)
        made = _written_rows(source, checkpoint, quantize, first, last)
        for holder in holders:
            holder.rows(source.name, made, first)
        del made
        source.file.release()
        yield source.nbytes * (last - first) // num_rows


def _written_rows(
    source: StoredTensor, checkpoint: Checkpoint, quantize: Quantize, first: int, last: int
) -> Array | QuantizedPart:
    if source.is_rescaled:
        part = checkpoint.matrix(source.name, source.shape, (0, first, last))
        if source.kind:
            return _quantized(source.name, part, source.kind, quantize)
        floats = part if isinstance(part, numpy.ndarray) else part.dequantized()
        return floats.astype(source.widened or source.dtype, copy=False)
    rows = source.view()[first:last]
    return _quantized(source.name, rows, source.kind, quantize) if source.kind else rows


def _quantized(name: str, rows: WeightPart, kind: str, quantize: Quantize) -> QuantizedPart:
    made = quantize(rows, kind)
    is_finite = not isinstance(rows, numpy.ndarray) or numpy.isfinite(rows).all()
    if not (is_finite and numpy.isfinite(made.scales).all()):
        raise ConfigError(
            f"{name} holds NaN, infinity or numbers too large for {kind}. Download the model again as a whole, or "
            "convert it without quantization."
        )
    return made


def _write_config(
    folder: Path, source: Path, stored: list[StoredTensor], asked: Conversion, is_copied: bool, read: ModelConfig
) -> None:
    path = source / "config.json"
    config = as_transformers_writes_it(read_model_json(path), path)
    if read.vision is None:
        config = text_part(config, origin_of(source))
    parts = [config, *(part for part in [config.get("text_config")] if isinstance(part, dict))]
    if not is_copied:
        for part, key in product(parts, QUANTIZATION_KEYS):
            part.pop(key, None)
    if not read.tie_word_embeddings:  # the weights may show this although the config doesn't
        config["tie_word_embeddings"] = False
        for part in parts:
            part |= dict.fromkeys({"tie_word_embeddings", "tie_embedding"}.intersection(part), False)
    by_kind: dict[str, list[str]] = {}
    for each in stored:
        if each.kind is not None:
            by_kind.setdefault(each.kind, []).append(each.written_name.removesuffix(".weight"))
    if by_kind:
        others = [each.written_name.removesuffix(".weight") for each in stored if each.is_linear and each.kind is None]
        # Named even if the head is tied and has no tensor.
        config["quantization_config"] = quantization_config(by_kind, sorted({HEAD, *others}), asked.group_size)
    write_json(folder / "config.json", config)


def _write_record(folder: Path, asked: Conversion) -> None:
    before = read_record(Path(asked.source))
    record = ConversionRecord(
        asked.model or asked.source,
        asked.revision,
        asked.quantization or (before.quantization if before else None),  # a copy keeps its source's
        asked.group_size,
        asked.tensor_parallel_size,
        asked.is_cut,
    )
    write_json(folder / RECORD, record.as_json())


def _copy_the_rest(folder: Path, source: Path, tokenizer: Path, without: Sequence[str]) -> None:
    """Copy tokenizer, templates, licence: all files that are neither weights nor written here. Of folders, copy those
    of sentence-transformers' modules, with their weights, and of further templates."""
    for origin in (source, tokenizer):
        for path in sorted(origin.iterdir()):
            is_weights = path.suffix in _WEIGHTS or path.name.endswith(".index.json")
            is_wanted = not is_weights and path.name[0] != "." and path.name not in without
            if is_wanted and path.is_file() and not (folder / path.name).exists():
                shutil.copyfile(path, folder / path.name)
        for path in sorted(each for pattern in (*MODULE_FILES, *_TEMPLATES) for each in origin.glob(pattern)):
            target = folder / path.relative_to(origin)
            if path.is_file() and not target.exists():
                target.parent.mkdir(exist_ok=True)
                shutil.copyfile(path, target)
