"""What the names of GGUF files say: that one is a model, that another only stands beside it."""

from pathlib import Path

from ....protocol.files.gguf.parts import SUFFIX, is_later_part

_ENCODER = "mmproj"
_BESIDE = (_ENCODER, "imatrix")


def is_encoder(name: str) -> bool:
    """Whether it is what a model sees with."""
    return _ENCODER in name.lower()


def stands_beside(name: str) -> bool:
    """Whether it is no model: what one sees with, or what quantizing needs."""
    return any(word in name.lower() for word in _BESIDE)


def is_model(path: Path) -> bool:
    """Whether it is the file of a model, of one in parts the first."""
    return path.suffix == SUFFIX and path.is_file() and not stands_beside(path.name) and not is_later_part(path)
