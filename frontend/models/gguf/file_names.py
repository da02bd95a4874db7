"""What the names of GGUF files say: which is a model, which only stands beside one, and which encoder is likely whose.

An encoder (`mmproj`) is what a model sees with; an `imatrix` is what quantizing needs.
"""

import re
from collections.abc import Iterable
from itertools import takewhile

_ENCODER = "mmproj"
_BESIDE = (_ENCODER, "imatrix")
# Of one encoder in several number formats: half as large as F32, and F16 is what any processor reads fast.
_PREFERRED = (re.compile(r"(?i)(?<![a-z0-9])f16"), re.compile(r"(?i)(?<![a-z0-9])bf16"))


def is_encoder(name: str) -> bool:
    return _ENCODER in name.lower()


def stands_beside(name: str) -> bool:
    """Whether it is no model."""
    return any(word in name.lower() for word in _BESIDE)


def likely_encoders(model: str, names: Iterable[str]) -> list[str]:
    """Of the files beside a model's those that may be its encoder, the likeliest first.

    A folder may hold the encoders of several models, and one encoder in several formats. So those come first whose
    names begin as the model's does, and of those the ones in 16 bits.
    """

    def key(name: str) -> tuple[int, int, str]:
        alike = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(model.lower(), name.lower())))
        formats = (number for number, word in enumerate(_PREFERRED) if word.search(name))
        return -alike, next(formats, len(_PREFERRED)), name

    return sorted(filter(is_encoder, names), key=key)
