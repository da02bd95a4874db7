"""Reads how a config.json describes quantized weights: GPTQ, AWQ, AutoRound and compressed-tensors with 4 or 8 bits,
8-bit floats, MXFP4, GGUF.

Keeps only what the tensors don't reveal; the files show which matrices are quantized, and with how many bits. Imports
no torch.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

from ...protocol.errors import ConfigError
from ...protocol.fields.rules import shown
from ...protocol.files.model_file import read_model_json
from ...records import dataclass
from .text_config import text_name

Layout = Literal["gptq", "gptq_v2", "awq", "compressed-tensors", "fp8", "mxfp4", "gguf"]

# Keys of config.json; the second is used by the first compressed-tensors checkpoints, the third by MLX.
QUANTIZATION_KEYS = ("quantization_config", "compression_config", "quantization")
# Separate files that the first tools of a method wrote it to.
QUANTIZATION_FILES = {"quantize_config.json": "gptq", "hf_quant_config.json": "modelopt"}

_BITS = (4, 8)
_INTEGER_FORMATS = ("pack-quantized", "int-quantized")
_FLOAT8_FORMATS = ("float-quantized", "mxfp8-quantized")
_COMPRESSED_FORMATS = (*_INTEGER_FORMATS, *_FLOAT8_FORMATS, "naive-quantized", "mixed-precision")
# ModelOpt's algorithms for 8-bit floats: one scale per matrix, per row, per block.
_MODELOPT_FLOAT8 = ("FP8", "FP8_PER_CHANNEL_PER_TOKEN", "FP8_PB_WO", "MXFP8")
# AutoRound packs like GPTQ's first version or like AWQ; without a packing_format like GPTQ.
_AUTO_ROUND_LAYOUTS: dict[str, Layout] = {"auto_round:auto_gptq": "gptq", "auto_round:auto_awq": "awq"}
_FLOAT_BITS = 16  # AutoRound's value for modules that stay floats


@dataclass(frozen=True)
class Quantization:
    """How a checkpoint's quantized matrices are laid out."""

    layout: Layout
    bits: int  # of most matrices
    group_size: int  # inputs that share a scale; 0: a whole row
    # GPTQModel's `dynamic`, AutoRound's `extra_config`: group sizes by pattern of module names. The first match counts.
    group_sizes: tuple[tuple[str, int], ...] = ()
    is_ordered: bool = False  # each matrix lists which inputs share a scale (activation order)
    block: tuple[int, int] = (0, 0)  # rows and columns of 8-bit floats that share a scale; 0: see the scales' shape

    @property
    def is_float8(self) -> bool:
        """Whether its quantized matrices are 8-bit floats instead of integers."""
        return self.layout == "fp8"

    @property
    def is_mxfp4(self) -> bool:
        """Whether experts are 4-bit floats and the other matrices aren't quantized."""
        return self.layout == "mxfp4"

    @property
    def is_gguf(self) -> bool:
        """Whether the weights come from GGUF files, in which each tensor has its own type."""
        return self.layout == "gguf"

    def group_size_of(self, module: str) -> int:
        found = (size for pattern, size in self.group_sizes if re.match(pattern, module))
        return next(found, self.group_size)

    def __str__(self) -> str:
        if self.is_mxfp4 or self.is_gguf:
            return self.layout.upper()
        if self.is_float8:
            return "8-bit floats" + (f" in blocks of {self.block[0]} × {self.block[1]}" if any(self.block) else "")
        groups = f"in groups of {self.group_size}" if self.group_size else "a scale per row"
        return f"{self.layout}, {self.bits} bits, {groups}"


def read_quantization(config: dict[str, Any], path: Path) -> Quantization | None:
    """Read the quantization; None for a checkpoint in floats. An error names what is not supported."""
    given = next((config[key] for key in QUANTIZATION_KEYS if key in config), None)
    if given is None:
        found = (_beside(path.with_name(name), method) for name, method in QUANTIZATION_FILES.items())
        given = next((each for each in found if each is not None), None)
    if given is None:
        return None
    if not isinstance(given, dict):
        raise ConfigError(f"{path}: its quantization_config must be an object, and is {shown(given)}.")
    method = given.get("quant_method", "MLX" if _is_mlx(given) else "an unnamed method")
    if not isinstance(method, str) or method not in _METHODS:
        _refuse(path, _name(method), f"its methods are not among {', '.join(_METHODS)}")
    try:
        return _METHODS[method](given, path)
    except ConfigError:
        raise
    except (AttributeError, IndexError, KeyError, TypeError, ValueError, re.error) as error:
        raise ConfigError(f"{path}: its quantization_config is not as {method} writes it: {_told(error)}.") from error


def _is_mlx(given: dict[str, Any]) -> bool:
    """Recognize MLX, which writes only bits and group_size; newer versions add a mode."""
    return "group_size" in given and "bits" in given


def _gptq(given: dict[str, Any], path: Path) -> Quantization:
    layout: Layout = given.get("checkpoint_format") or "gptq"
    if layout not in ("gptq", "gptq_v2") or given.get("is_marlin_format"):
        _refuse(path, f"gptq, {_name(layout)}", "that layout is made for one kernel of GPUs")
    bits, group_size = _bits(given["bits"], "gptq", path), _group_size(given.get("group_size"))
    group_sizes = tuple(_dynamic(given.get("dynamic") or {}, group_size, path))
    return Quantization(layout, bits, group_size, group_sizes, bool(given.get("desc_act")) and group_size > 0)


def _dynamic(given: dict[str, dict[str, Any]], group_size: int, path: Path) -> Iterator[tuple[str, int]]:
    """Read GPTQModel's `dynamic`. Modules after "-:" are not quantized, which their tensors show."""
    for pattern, own in given.items():
        if not pattern.startswith("-:"):
            _bits(own.get("bits", _BITS[0]), f"gptq, dynamic {pattern!r}", path)
            pattern = pattern.removeprefix("+:")
            re.compile(pattern)
            yield text_name(pattern), _group_size(own["group_size"]) if "group_size" in own else group_size


def _beside(path: Path, method: str) -> dict[str, Any] | None:
    try:
        given = read_model_json(path)
    except FileNotFoundError:
        return None
    if not isinstance(given, dict):
        raise ConfigError(f"{path} holds no JSON object. Download it again.")
    return {"quant_method": method} | given


def _awq(given: dict[str, Any], path: Path) -> Quantization:
    version = given.get("version", "gemm")
    if not isinstance(version, str) or version.lower() != "gemm":
        _refuse(path, f"awq, version {_name(version)}", "only version gemm is read")
    bits = _bits(given["bits"] if "bits" in given else given["w_bit"], "awq", path)
    if bits != 4:
        _refuse(path, f"awq, {bits} bits", "awq is read with 4 bits")
    return Quantization("awq", bits, _group_size(given.get("group_size", given.get("q_group_size"))))


def _auto_round(given: dict[str, Any], path: Path) -> Quantization:
    packing = given.get("packing_format", "auto_round:auto_gptq")
    if not isinstance(packing, str) or packing not in _AUTO_ROUND_LAYOUTS:
        read = ", ".join(_AUTO_ROUND_LAYOUTS)
        _refuse(path, f"auto-round, {_name(packing)}", f"its packings that are read are {read}")
    if (kind := given.get("data_type", "int")) != "int":
        _refuse(path, f"auto-round, {_name(kind)}", "only its integers are read")
    layout = _AUTO_ROUND_LAYOUTS[packing]
    bits = _bits(given["bits"], "auto-round", path)
    if layout == "awq" and bits != 4:
        _refuse(path, f"auto-round, {packing}, {bits} bits", "awq is read with 4 bits")
    group_size = _group_size(given.get("group_size"))
    group_sizes = tuple(_extra(given.get("extra_config") or {}, group_size, path))
    return Quantization(layout, bits, group_size, group_sizes)


def _extra(given: dict[str, dict[str, Any]], group_size: int, path: Path) -> Iterator[tuple[str, int]]:
    """Read AutoRound's `extra_config`, whose keys are module names or patterns."""
    for pattern, own in given.items():
        if (bits := own.get("bits", _BITS[0])) != _FLOAT_BITS:
            _bits(bits, f"auto-round, extra_config {pattern!r}", path)
            re.compile(pattern)
            yield f"{text_name(pattern)}$", _group_size(own["group_size"]) if "group_size" in own else group_size


def _compressed_tensors(given: dict[str, Any], path: Path) -> Quantization:
    form = given.get("format")
    if form not in _COMPRESSED_FORMATS:
        read = ", ".join(_COMPRESSED_FORMATS)
        _refuse(path, f"compressed-tensors, {_name(form)}", f"its formats that are read are {read}")
    if (given.get("sparsity_config") or {}).get("format", "dense") != "dense":
        _refuse(path, "compressed-tensors, sparse", "sparse weights are not read")
    if given.get("transform_config"):
        _refuse(path, "compressed-tensors, transformed", "weights behind a rotation are not read")
    groups = [group["weights"] for group in given["config_groups"].values()]
    for weights in groups:
        _check_numbers(weights, path)
    integers = [weights for weights in groups if weights.get("type", "int") == "int"]
    block = next((_block(weights["block_structure"]) for weights in groups if weights.get("block_structure")), (0, 0))
    if not integers:
        return Quantization("fp8", 8, 0, block=block)
    bits, group_size = integers[0]["num_bits"], _group_size(integers[0].get("group_size"))
    is_ordered = any(weights.get("actorder") == "group" for weights in integers)
    return Quantization("compressed-tensors", bits, group_size, is_ordered=is_ordered, block=block)


def _check_numbers(weights: dict[str, Any], path: Path) -> None:
    """Check the numbers of one group of modules."""
    kind, bits = weights.get("type", "int"), weights["num_bits"]
    if kind == "int":
        _bits(bits, "compressed-tensors", path)
    elif kind != "float" or bits != 8:
        written = f"{_name(kind)}{bits if type(bits) is int else shown(bits)}"
        _refuse(path, f"compressed-tensors, {written}", "only int4, int8 and float8 are read")


def _fp8(given: dict[str, Any], path: Path) -> Quantization:
    """8-bit floats with scales per block (DeepSeek, Qwen, MiniMax), per matrix or per row."""
    if (expert := given.get("expert_dtype", "fp8")) != "fp8":
        _refuse(path, f"fp8, with experts in {_name(expert)}", "experts are read in fp8")
    return Quantization("fp8", 8, 0, block=_block(given.get("weight_block_size") or (0, 0)))


def _modelopt(given: dict[str, Any], path: Path) -> Quantization:
    given = given.get("quantization", given)
    layers = given.get("quantized_layers") or {}
    for algorithm in [given["quant_algo"]] if not layers else [layer["quant_algo"] for layer in layers.values()]:
        if algorithm not in _MODELOPT_FLOAT8:
            read = ", ".join(_MODELOPT_FLOAT8)
            _refuse(path, f"modelopt, {_name(algorithm)}", f"its formats that are read are {read}")
    return Quantization("fp8", 8, 0)


def _block(sizes: Any) -> tuple[int, int]:
    rows, columns = sizes
    if type(rows) is not int or type(columns) is not int or min(rows, columns) < 0:
        raise TypeError(f"blocks must have two whole numbers of rows and columns, and have {shown(sizes)}")
    return rows, columns


def _mxfp4(given: dict[str, Any], path: Path) -> Quantization:
    """Experts of gpt-oss. The tensors show which modules aren't quantized (`modules_to_not_convert`)."""
    return Quantization("mxfp4", 4, 32)


def _gguf(given: dict[str, Any], path: Path) -> Quantization:
    """The files give each tensor's type."""
    return Quantization("gguf", _FLOAT_BITS, 0)


_METHODS = {
    "gptq": _gptq,
    "awq": _awq,
    "auto-round": _auto_round,
    "compressed-tensors": _compressed_tensors,
    "fp8": _fp8,
    "fbgemm_fp8": _fp8,
    "modelopt": _modelopt,
    "mxfp4": _mxfp4,
    "gguf": _gguf,
}


def _bits(bits: Any, method: str, path: Path) -> int:
    if type(bits) is not int or bits not in _BITS:
        kind = ", written as numbers" if isinstance(bits, str) else ""
        _refuse(path, f"{method}, {shown(bits)} bits", f"4 and 8 bits are read{kind}")
    return int(bits)


def _group_size(size: Any) -> int:
    """Read a group size; -1 and None mean a whole row."""
    if size is not None and type(size) is not int:
        raise TypeError(f"group_size must be a whole number, and is {shown(size)}")
    return max(size or 0, 0)


def _told(error: Exception) -> str:
    return f"it has no {error}" if isinstance(error, KeyError) else str(error)


def _name(value: Any) -> str:
    """Show a plain name as it is, and anything else as JSON would."""
    return value if isinstance(value, str) and value[:1].isalpha() and len(value) <= 40 else shown(value)


def _refuse(path: Path, what: str, why: str) -> None:
    raise ConfigError(
        f"{path.parent} is quantized ({what}), and {why}. Use its float32, float16 or bfloat16 original, with "
        "quantization='int8' or 'int4' if it should be small."
    )
