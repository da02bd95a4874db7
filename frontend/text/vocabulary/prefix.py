"""Before which parts of a text a SentencePiece model gets the space that it expects there, by the model and by the
settings of transformers: the part that begins the text, or (`legacy`) every one that follows a special token as well.
"""

from collections.abc import Mapping
from typing import Any, Literal

from .sentencepiece_model import SentencePieceModel

DummyPrefix = Literal["never", "first", "always"]


def dummy_prefix(model: SentencePieceModel, settings: Mapping[str, Any]) -> DummyPrefix:
    if not model.add_dummy_prefix or settings.get("add_prefix_space") is False:
        return "never"
    return "always" if settings.get("legacy") else "first"
