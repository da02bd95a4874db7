"""Which of a repository's GGUF files have which quantization, as their makers' names tell.

Qwen3-0.6B-Q4_K_M.gguf, UD-Q4_K_XL/Qwen3-235B-UD-Q4_K_XL-00001-of-00003.gguf, mmproj-F16.gguf
"""

import re
from collections.abc import Iterable

from ....protocol.errors import ConfigError
from ....protocol.fields.suggestion import nearest
from ....protocol.files.gguf.parts import SUFFIX
from ..gguf.file_names import is_encoder, stands_beside
from ..model_names import GgufName

# In the repository or in a folder of it, as large models' parts are.
_FILE = re.compile(r"(?:[\w][\w. +-]{0,199}/)?[\w][\w. +-]{0,199}\.gguf")
_PART = re.compile(r"-(\d{5})-of-(\d{5})$")
_LABEL = re.compile(r"(?i)(?:UD-)?(?:I?Q\d\w*|TQ\d\w*|BF16|F16|F32|MXFP4\w*)")


def chosen_files(names: Iterable[str], name: GgufName) -> list[str]:
    """Of a repository's files those of one quantization, its parts in order, then what it sees with."""
    files = sorted(each for each in names if _FILE.fullmatch(each))
    models: dict[str, list[str]] = {}
    for each in files:
        if not is_beside(each):
            models.setdefault(_PART.sub("", each.removesuffix(SUFFIX)), []).append(each)
    fitting = [stem for stem in models if _has_label(stem, name.quantization)]
    # Mixtures of Unsloth's have names that end as those of llama.cpp's own do.
    plain = [stem for stem in fitting if not _has_label(stem, f"UD-{name.quantization}")]
    fitting = plain or fitting
    if len(fitting) != 1:
        raise ConfigError(_which(name, fitting, models))
    parts = models[fitting[0]]
    _require_all(parts, name)
    projectors = [each for each in files if is_beside(each) and is_encoder(each)]
    # Of several the one of 16 bits that any processor reads.
    projectors.sort(key=lambda each: ("bf16" in each.lower(), "f16" not in each.lower(), each))
    return [*parts, *projectors[:1]]


def labels(names: Iterable[str]) -> list[str]:
    """The quantizations that a repository's files have by their names."""
    stems = {
        _PART.sub("", each.removesuffix(SUFFIX)) for each in names if _FILE.fullmatch(each) and not is_beside(each)
    }
    found = (_LABEL.findall(stem.rpartition("/")[2]) for stem in stems)
    return sorted({each[-1] for each in found if each})


def is_beside(name: str) -> bool:
    return stands_beside(name.rpartition("/")[2])


def _has_label(stem: str, label: str) -> bool:
    """Whether a name says so, as a word of its own: Q4_K isn't Q4_K_M."""
    return re.search(rf"(?i)(?:^|[-._/]){re.escape(label)}(?:[-./]|$)", stem) is not None


def _require_all(parts: list[str], name: GgufName) -> None:
    if (match := _PART.search(parts[0].removesuffix(SUFFIX))) is None:
        return
    numbers = [int(found[1]) for each in parts if (found := _PART.search(each.removesuffix(SUFFIX)))]
    if numbers != list(range(1, int(match[2]) + 1)):
        raise ConfigError(f"Of {name} there are {len(parts)} of {int(match[2])} parts. Look for another repository.")


def _which(name: GgufName, fitting: list[str], models: dict[str, list[str]]) -> str:
    if fitting:
        return f"{name} may be any of {', '.join(f'{each}{SUFFIX}' for each in fitting)}. Download the one you want."
    known = labels(each for files in models.values() for each in files)
    if not known:
        return f"{name.model} holds no GGUF files."
    near = nearest(name.quantization.upper(), known)
    hint = f" Did you mean {name.model.id}:{near}?" if near else ""
    return f"{name.model} has no {name.quantization}.{hint} There are {', '.join(known)}."
