"""What a config.json says of quantized weights: GPTQ, AWQ and compressed-tensors, with 4 or 8 bits.

Only what the tensors don't show by themselves is kept; which matrices are quantized, and with how many bits, is seen in
the files. Imports no torch.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from ...protocol.errors import ConfigError
from ...protocol.fields.rules import shown
from ...protocol.files.model_file import read_model_json

Layout = Literal["gptq", "gptq_v2", "awq", "compressed-tensors"]

_BITS = (4, 8)
_COMPRESSED_FORMATS = ("pack-quantized", "int-quantized", "naive-quantized", "mixed-precision")


@dataclass(frozen=True)
class Quantization:
    """How a checkpoint's quantized matrices are laid out."""

    layout: Layout
    bits: int  # of most of them
    group_size: int  # inputs that share a scale; 0: a whole row
    # GPTQModel's `dynamic`: by a pattern of modules' names their own group size. The first that fits counts.
    group_sizes: tuple[tuple[str, int], ...] = ()

    def group_size_of(self, module: str) -> int:
        found = (size for pattern, size in self.group_sizes if re.match(pattern, module))
        return next(found, self.group_size)

    def __str__(self) -> str:
        groups = f"in groups of {self.group_size}" if self.group_size else "a scale per row"
        return f"{self.layout}, {self.bits} bits, {groups}"


def read_quantization(config: dict[str, Any], path: Path) -> Quantization | None:
    """None for a checkpoint in floats; an error names what is not supported."""
    # The latter name is that of the first compressed-tensors checkpoints.
    given = config.get("quantization_config", config.get("compression_config"))
    if given is None:
        given = _beside(path.with_name("quantize_config.json"))
    if given is None:
        return None
    if not isinstance(given, dict):
        raise ConfigError(f"{path}: its quantization_config must be an object, and is {shown(given)}.")
    method = given.get("quant_method", "an unnamed method")
    if not isinstance(method, str) or method not in _METHODS:
        _refuse(path, _name(method), f"its methods are not among {', '.join(_METHODS)}")
    try:
        return _METHODS[method](given, path)
    except ConfigError:
        raise
    except (AttributeError, IndexError, KeyError, TypeError, ValueError, re.error) as error:
        raise ConfigError(f"{path}: its quantization_config is not as {method} writes it: {_told(error)}.") from error


def _gptq(given: dict[str, Any], path: Path) -> Quantization:
    layout: Layout = given.get("checkpoint_format") or "gptq"
    if layout not in ("gptq", "gptq_v2") or given.get("is_marlin_format"):
        _refuse(path, f"gptq, {_name(layout)}", "that layout is made for one kernel of GPUs")
    bits, group_size = _bits(given["bits"], "gptq", path), _group_size(given.get("group_size"))
    return Quantization(layout, bits, group_size, tuple(_dynamic(given.get("dynamic") or {}, group_size, path)))


def _dynamic(given: dict[str, dict[str, Any]], group_size: int, path: Path) -> Iterator[tuple[str, int]]:
    """Modules behind "-:" are not quantized, which their tensors show."""
    for pattern, own in given.items():
        if not pattern.startswith("-:"):
            _bits(own.get("bits", _BITS[0]), f"gptq, dynamic {pattern!r}", path)
            pattern = pattern.removeprefix("+:")
            re.compile(pattern)
            yield pattern, _group_size(own["group_size"]) if "group_size" in own else group_size


def _beside(path: Path) -> dict[str, Any] | None:
    """What the first tools for GPTQ wrote into a file of its own."""
    try:
        given = read_model_json(path)
    except FileNotFoundError:
        return None
    if not isinstance(given, dict):
        raise ConfigError(f"{path} holds no JSON object. Download it again.")
    return {"quant_method": "gptq"} | given


def _awq(given: dict[str, Any], path: Path) -> Quantization:
    version = given.get("version", "gemm")
    if not isinstance(version, str) or version.lower() != "gemm":
        _refuse(path, f"awq, version {_name(version)}", "only version gemm is read")
    bits = _bits(given["bits"] if "bits" in given else given["w_bit"], "awq", path)
    if bits != 4:
        _refuse(path, f"awq, {bits} bits", "awq is read with 4 bits")
    return Quantization("awq", bits, _group_size(given.get("group_size", given.get("q_group_size"))))


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
        if weights.get("type", "int") != "int":
            form = f"{_name(weights['type'])}{weights.get('num_bits', '')}"
            _refuse(path, f"compressed-tensors, {form}", "only int is read")
        _bits(weights["num_bits"], "compressed-tensors", path)
    return Quantization("compressed-tensors", groups[0]["num_bits"], _group_size(groups[0].get("group_size")))


_METHODS = {"gptq": _gptq, "awq": _awq, "compressed-tensors": _compressed_tensors}


def _bits(bits: Any, method: str, path: Path) -> int:
    if type(bits) is not int or bits not in _BITS:
        kind = ", written as numbers" if isinstance(bits, str) else ""
        _refuse(path, f"{method}, {shown(bits)} bits", f"4 and 8 bits are read{kind}")
    return int(bits)


def _group_size(size: Any) -> int:
    """-1 and None are written for a whole row."""
    if size is not None and type(size) is not int:
        raise TypeError(f"group_size must be a whole number, and is {shown(size)}")
    return max(size or 0, 0)


def _told(error: Exception) -> str:
    return f"it has no {error}" if isinstance(error, KeyError) else str(error)


def _name(value: Any) -> str:
    """A plain name as it is; what could be taken for one, or for a number, as it is written."""
    return value if isinstance(value, str) and value[:1].isalpha() and len(value) <= 40 else shown(value)


def _refuse(path: Path, what: str, why: str) -> None:
    raise ConfigError(
        f"{path.parent} is quantized ({what}), and {why}. Use its float32, float16 or bfloat16 original, with "
        "quantization='int8' or 'int4' if it should be small."
    )
