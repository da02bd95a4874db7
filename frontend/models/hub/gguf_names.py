"""Finds the quantizations of a repository's GGUF files from their names.

Qwen3-0.6B-Q4_K_M.gguf, UD-Q4_K_XL/Qwen3-235B-UD-Q4_K_XL-00001-of-00003.gguf, mmproj-F16.gguf
"""

import re
from collections.abc import Iterable
from typing import NamedTuple

from ....protocol.errors import ConfigError
from ....protocol.fields.suggestion import nearest
from ....protocol.files.gguf.parts import SUFFIX, part_number, stem_of
from ..gguf.file_names import likely_encoders, stands_beside
from ..model_names import GgufName

# In the repository or one of its folders, like the parts of large models.
_FILE = re.compile(r"(?:[\w][\w. +-]{0,199}/)?[\w][\w. +-]{0,199}\.gguf")
_LABEL = re.compile(r"(?i)(?:UD-)?(?:I?Q\d\w*|TQ\d\w*|BF16|F16|F32|MXFP4\w*)")


class ChosenFiles(NamedTuple):
    parts: list[str]  # in order
    encoder: str | None  # the vision encoder, if the repository has one


def chosen_files(names: Iterable[str], name: GgufName) -> ChosenFiles:
    """The files of one quantization."""
    files = sorted(each for each in names if _FILE.fullmatch(each))
    models = _models(files)
    fitting = [stem for stem in models if _has_label(stem, name.quantization)]
    # Names of Unsloth's mixtures have the same endings as llama.cpp's own.
    plain = [stem for stem in fitting if not _has_label(stem, f"UD-{name.quantization}")]
    fitting = plain or fitting
    if len(fitting) != 1:
        raise ConfigError(_which(name, fitting, models))
    [stem] = fitting
    _require_all(models[stem], name)
    by_file_name = {_file_name(each): each for each in files}
    encoders = likely_encoders(_file_name(stem), by_file_name)
    return ChosenFiles(models[stem], by_file_name[encoders[0]] if encoders else None)


def labels(names: Iterable[str]) -> list[str]:
    """The quantizations of a repository's files, by their names."""
    found = (_LABEL.findall(_file_name(stem)) for stem in _models(filter(_FILE.fullmatch, names)))
    return sorted({each[-1] for each in found if each})


def _models(files: Iterable[str]) -> dict[str, list[str]]:
    """The files of each model, by its name."""
    models: dict[str, list[str]] = {}
    for each in files:
        if not stands_beside(_file_name(each)):
            models.setdefault(stem_of(each), []).append(each)
    return models


def _file_name(name: str) -> str:
    """The name without the folder."""
    return name.rpartition("/")[2]


def _has_label(stem: str, label: str) -> bool:
    """Whether the name contains the label as a whole word: Q4_K isn't Q4_K_M."""
    return re.search(rf"(?i)(?:^|[-._/]){re.escape(label)}(?:[-./]|$)", stem) is not None


def _require_all(parts: list[str], name: GgufName) -> None:
    if (first := part_number(parts[0])) is None:
        return
    numbers = [part.number for each in parts if (part := part_number(each))]
    if numbers != list(range(1, first.total + 1)):
        raise ConfigError(f"Of {name} there are {len(parts)} of {first.total} parts. Look for another repository.")


def _which(name: GgufName, fitting: list[str], models: dict[str, list[str]]) -> str:
    if fitting:
        return f"{name} may be any of {', '.join(f'{each}{SUFFIX}' for each in fitting)}. Download the one you want."
    known = labels(each for files in models.values() for each in files)
    if not known:
        return f"{name.model} holds no GGUF files. Look for another repository of this model."
    near = nearest(name.quantization.upper(), known)
    hint = f" Did you mean {name.model.id}:{near}?" if near else ""
    return f"{name.model} has no {name.quantization}.{hint} There are {', '.join(known)}."
