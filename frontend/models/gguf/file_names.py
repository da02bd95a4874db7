"""Reads the names of GGUF files: which are models, which only accompany one, and which encoder likely belongs to a
model.

An encoder (`mmproj`) gives a model its vision; an `imatrix` is needed for quantizing.
"""

import re
from collections.abc import Iterable
from itertools import takewhile

_ENCODER = "mmproj"
_BESIDE = (_ENCODER, "imatrix")
# For one encoder in several formats: F16 is half as large as F32, and any processor reads it fast.
_PREFERRED = (re.compile(r"(?i)(?<![a-z0-9])f16"), re.compile(r"(?i)(?<![a-z0-9])bf16"))


def is_encoder(name: str) -> bool:
    return _ENCODER in name.lower()


def stands_beside(name: str) -> bool:
    """Whether the file is no model itself."""
    return any(word in name.lower() for word in _BESIDE)


def likely_encoders(model: str, names: Iterable[str]) -> list[str]:
    """The files next to a model's that may be its encoder, the likeliest first.

    A folder may hold the encoders of several models, and one encoder in several formats. So names with the model's
    beginning come first and, among these, 16-bit formats.
    """

    def key(name: str) -> tuple[int, int, str]:
        alike = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(model.lower(), name.lower())))
        formats = (number for number, word in enumerate(_PREFERRED) if word.search(name))
        return -alike, next(formats, len(_PREFERRED)), name

    return sorted(filter(is_encoder, names), key=key)
