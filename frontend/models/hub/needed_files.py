"""Which files of a hub repository the engine reads. Nothing else is downloaded, and code never.

A repository may hold the same weights several times over: as `pytorch_model.bin`, as GGUF, in `original/` and `onnx/`.
Knows nothing of networks and folders.
"""

import re
from collections.abc import Iterable
from fnmatch import fnmatchcase

from ...text.convert_tokenizer import VOCABULARY_FILES

# Some models come with several templates, and `penstock convert --per-rank` lists each rank's pieces.
_STEM = r"[^/\\\x00-\x1f]{1,200}"
_DESCRIPTIONS = re.compile(
    rf"{_STEM}\.(json|jinja)|additional_chat_templates/{_STEM}\.jinja|rank-\d+-of-\d+/pieces\.json"
)
_WEIGHTS = re.compile(rf"(rank-\d+-of-\d+/)?{_STEM}\.safetensors")
# The same weights once more, as Mistral's own code names them, and what belongs to an adapter.
_NOT_THE_MODEL = ("consolidated", "adapter_model")
# How others store weights, for a sentence that says what there is instead.
_OTHER_WEIGHTS = (".bin", ".gguf", ".pt", ".pth", ".h5", ".msgpack", ".pdparams", ".onnx")


def is_description(name: str) -> bool:
    return _DESCRIPTIONS.fullmatch(name) is not None


def is_vocabulary(name: str) -> bool:
    return any("/" not in name and fnmatchcase(name, pattern) for pattern in VOCABULARY_FILES)


def is_weights(name: str) -> bool:
    return _WEIGHTS.fullmatch(name) is not None and not name.startswith(_NOT_THE_MODEL)


def other_weights(names: Iterable[str]) -> list[str]:
    """Kinds of files that hold weights and that nobody here reads."""
    return sorted({suffix for name in names for suffix in _OTHER_WEIGHTS if name.endswith(suffix)})
