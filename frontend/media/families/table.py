"""Finds the family of a checkpoint's vision part by its config.json."""

from collections.abc import Mapping
from typing import Any

from ..processor_files import ProcessorFiles
from .ernie import ErnieVision
from .family import Family
from .gemma3 import Gemma3Vision
from .idefics3 import Idefics3Vision
from .qwen import Qwen2Vision, Qwen3Vision
from .smolvlm import SmolVision

_KINDS: dict[str, Any] = {
    "qwen2_vl": Qwen2Vision,
    "qwen2_5_vl": Qwen2Vision,
    "qwen3_vl": Qwen3Vision,
    "qwen3_vl_moe": Qwen3Vision,
    "qwen3_5": Qwen3Vision,
    "qwen3_5_moe": Qwen3Vision,
    "ernie4_5_moe_vl": ErnieVision,
    "ernie4_5_vl_moe": ErnieVision,
    "gemma3": Gemma3Vision,
    "idefics3": Idefics3Vision,
    "smolvlm": SmolVision,
}


def family_of(files: ProcessorFiles, changes: Mapping[str, Any] | None = None) -> Family | None:
    """The family with a checkpoint's settings, changed by `mm_processor_kwargs`; None for a model without vision."""
    kind = _KINDS.get(str(files.config.get("model_type")))
    if kind is None or not files.vision:
        return None
    family: Family = kind.of(files.changed(changes or {}, kind.IMAGE_SETTINGS, kind.VIDEO_SETTINGS, kind.SIZES))
    return family
