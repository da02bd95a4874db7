"""Describes this machine and model folders: `python -m penstock.worker.survey [--torch] [FOLDER ...]`.

Prints one `Survey` as JSON. Reads configs and file sizes, loads no weights, and imports torch only with `--torch`.
`--without-weights` judges a model by its config alone, before its weights are downloaded.
"""

import shutil
import sys
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

import msgspec

from ..protocol.errors import PenstockError
from ..protocol.files.cache_folder import cache_folder
from ..protocol.memory_plan import taken_bytes
from ..protocol.options.config import EngineConfig
from ..protocol.survey import SURVEYED_TOKENS, ModelSurvey, NativeSurvey, Survey, TorchSurvey
from .description.config import ModelConfig, read_config
from .description.families.table import FAMILIES
from .description.groups import groups_of, kept_bytes, memory_bytes
from .description.products import products
from .start.memory.available import available_memory
from .start.memory.default_kv_memory import default_kv_bytes
from .start.memory.media import media_plan
from .start.memory.shares import GroupSize, Shares
from .weights.files.file_checks import check_weight_files
from .weights.files.weight_files import identity, ranks_cut_for, weight_files
from .weights.packed.kept_files import LARGEST_SHARE

_UNASKED = EngineConfig(model="")  # the default options
_FLOAT = 4
_ITEM_SIZES = {"float32": 4, "float16": 2, "bfloat16": 2}
# Processor features that the native kernels require.
_NATIVE_UNITS = {"avx2", "fma", "f16c"}
# Processor features that torch requires to multiply bfloat16.
_BFLOAT16_UNITS = {"avx512bw", "avx512vl", "avx512dq"}


_TORCH, _WITHOUT_WEIGHTS = "--torch", "--without-weights"


def survey(folders: list[str], *, with_torch: bool, without_weights: bool = False) -> Survey:
    torch = _torch() if with_torch else None
    return Survey(
        available_bytes=available_memory(),
        families=list(FAMILIES),
        models=[_identified(Path(folder), without_weights) for folder in folders],
        torch=torch,
        native=_native() if with_torch else None,
    )


def _identified(folder: Path, without_weights: bool) -> ModelSurvey:
    return msgspec.structs.replace(_model(folder, without_weights), identity=identity(folder))


def _model(folder: Path, without_weights: bool) -> ModelSurvey:
    """Describe one folder; its errors don't affect others."""
    try:
        config = read_config(folder, is_pooled=True)  # the front end decides what it gives
        if not without_weights:
            check_weight_files(folder)
        stored = 0 if without_weights else sum(path.stat().st_size for path in weight_files(folder))
    except PenstockError as error:
        return ModelSurvey(refusal=str(error).removeprefix(f"{folder}/").removeprefix(f"{folder} "))
    except OSError as error:
        return ModelSurvey(refusal=f"{Path(str(error.filename)).name} cannot be used: {error.strerror}.")
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:  # a config of no known form
        return ModelSurvey(refusal=f"config.json cannot be read: {type(error).__name__}: {error}")
    if not stored and not without_weights:
        return ModelSurvey(refusal="it holds no *.safetensors files.")
    item_size = _ITEM_SIZES.get(config.dtype, 4)
    cpu_bytes = _bytes_on_cpu(config, stored, item_size)
    taken_kv_bytes = _kv_bytes_at_start(config, cpu_bytes, item_size)
    return ModelSurvey(
        family=config.family.name,
        dtype=config.dtype,
        context=config.max_position,
        cut="" if config.cut is None else f"of {config.cut.own:,}: {config.cut}",
        stored_bytes=stored,
        cpu_bytes=cpu_bytes,
        largest_bytes=_largest_where_mapped(config, stored, item_size),
        kv_bytes=memory_bytes(config, min(config.max_position, SURVEYED_TOKENS), item_size),
        taken_bytes=taken_bytes(cpu_bytes, taken_kv_bytes, media_plan(config.vision, _FLOAT, _UNASKED)),
        taken_kv_bytes=taken_kv_bytes,
        cut_for=ranks_cut_for(folder),
    )


def _bytes_on_cpu(config: ModelConfig, stored: int, item_size: int) -> int:
    """Native kernels use weights as stored. Without them quantized matrices become floats, 16-bit formats that the
    processor cannot multiply are widened, and a tied head is a second copy of the embedding.
    """
    if _cpu_flags() >= _NATIVE_UNITS:
        return stored
    if config.quantization is not None:
        stored = max(stored, item_size * sum(product.num_weights for product in products(config)))
    has_units = config.dtype == "bfloat16" and _cpu_flags() >= _BFLOAT16_UNITS
    widening = 4 // item_size if not has_units else 1
    tied = config.vocab_size * config.hidden_size * item_size if config.tie_word_embeddings else 0
    return (stored + tied) * widening


def _kv_bytes_at_start(config: ModelConfig, weight_bytes: int, item_size: int) -> int:
    """KV memory that a start with default options would take now."""
    free, block_size = available_memory(), _UNASKED.block_size
    num_seqs, num_tokens = _UNASKED.step_limits("cpu")
    groups = tuple(
        GroupSize(group.kind, len(group.layers), kept_bytes(group, block_size, item_size), group.window)
        for group in groups_of(config, config.max_position)
    )
    shares = Shares(groups, block_size, min(num_seqs, num_tokens), num_tokens)
    fits = weight_bytes < free
    num_bytes = default_kv_bytes(
        _UNASKED,
        shares,
        config.max_position,
        free_at_start=free,
        weight_bytes=weight_bytes,
        room=free - weight_bytes if fits else free,
        mapped_bytes=0 if fits else weight_bytes,
    )
    length = shares.longest_beside_others(num_bytes, config.max_position)
    return shares.bytes_of(shares.of_bytes(num_bytes, length)) if length else num_bytes


def _largest_where_mapped(config: ModelConfig, stored: int, item_size: int) -> int:
    """The largest model with native kernels, which map weights from a file if there is room for it."""
    if not _cpu_flags() >= _NATIVE_UNITS:
        return 0
    try:
        room = int(LARGEST_SHARE * shutil.disk_usage(cache_folder()).free)
    except (OSError, PenstockError):
        return 0
    largest = max(product.num_weights for product in products(config)) * item_size
    return min(largest, stored) if stored <= room else 0


def _cpu_flags() -> set[str]:
    with open("/proc/cpuinfo") as lines:
        return next((set(line.split()) for line in lines if line.startswith("flags")), set())


def _torch() -> TorchSurvey:
    if find_spec("torch") is None:
        return TorchSurvey()
    try:
        from .backends.torch.card import torch_survey  # imports torch

        return torch_survey(triton=_installed("triton"))
    except Exception as error:  # report whatever a broken installation raises
        return TorchSurvey(error=f"{type(error).__name__}: {error}")


def _native() -> NativeSurvey:
    """Find the kernels that a worker would load, without compiling anything."""
    from ..kernels.cpu.build import compiler
    from ..kernels.cpu.library import LibraryError, chosen_variant, is_compiled

    try:
        variant = chosen_variant()
    except LibraryError as error:
        return NativeSurvey(problem=str(error))
    return NativeSurvey(variant, is_compiled(variant), can_compile=compiler() is not None)


def _installed(distribution: str) -> str | None:
    with suppress(PackageNotFoundError):
        return version(distribution)
    return None


def main(words: list[str]) -> None:
    folders = [word for word in words if word not in (_TORCH, _WITHOUT_WEIGHTS)]
    found = survey(folders, with_torch=_TORCH in words, without_weights=_WITHOUT_WEIGHTS in words)
    print(msgspec.json.encode(found).decode())


if __name__ == "__main__":
    main(sys.argv[1:])
