"""Recognizes a checkpoint's layout by the names of its tensors, and refuses layouts that layers can't read."""

from collections.abc import Iterable

from ....kernels.arrays import Array
from ....protocol.errors import ConfigError
from ...description.config import ModelConfig
from .fused_experts import FusedExperts, is_fused, refuse_scales_of_stacks
from .fused_projections import FusedProjections
from .layout import Layout
from .paddle import PaddleLayout
from .tensor_names import is_paddles, layer_names

_QUANTIZED = (".quant_weight", ".code_scale", ".super_scales")


class HuggingFaceLayout:
    """Only a prefix may differ."""

    def names(self, stored: Iterable[str]) -> dict[str, str]:
        return layer_names(stored)

    def view(self, name: str, stored: Array) -> Array:
        return stored


def own_layout(config: ModelConfig) -> Layout:
    """The family's layout with transformers' names, which adapters use."""
    stored = config.family.stored
    return FusedProjections(stored, config) if stored else HuggingFaceLayout()


def layout_of(stored: Iterable[str], config: ModelConfig | None) -> Layout:
    """The layout of tensors with these names."""
    names = list(stored)
    if quantized := next((name for name in names if name.endswith(_QUANTIZED)), None):
        raise ConfigError(
            f"{quantized} is quantized for the kernels of one kind of card, in an order that the files don't state. "
            "Use the model's bfloat16 form, with quantization='int8' or 'int4' if it should be small."
        )
    if config is not None and is_paddles(names):
        return PaddleLayout(config)
    if config is not None and config.family.stored:
        return own_layout(config)
    if config is None or (experts := config.experts) is None or not is_fused(names):
        return HuggingFaceLayout()
    if experts.names.stack is None:
        block_rows = config.quantization.block[0] if config.quantization is not None else 0
        return FusedExperts(experts, config.hidden_size, block_rows, HuggingFaceLayout())
    refuse_scales_of_stacks(names)
    return HuggingFaceLayout()
