"""The encoders of pictures that run here, by the architecture that a config names. Imports no torch."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from .layer_norms import RMS, NormForm

_LAYER_NORM = NormForm(has_mean=True, has_bias=True)
_HALF = (0.5, 0.5, 0.5)


class Colours:
    """What the colours' mean and deviation are where a model's files don't say it."""

    HALF = (_HALF, _HALF)
    CLIP = ((0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711))


@dataclass(frozen=True)
class MergerNames:
    """What a merger's parts are called: of the norm, and of its two projections."""

    norm: str
    up: str
    down: str


@dataclass(frozen=True)
class VisionFamily:
    """The details of an encoder that its config does not spell out."""

    name: str
    norm: NormForm = _LAYER_NORM
    epsilon: float = 1e-6
    mlp: tuple[str, ...] = ("linear_fc1", "linear_fc2")  # gate, if there is one, up and down
    merger: MergerNames = MergerNames("norm", "linear_fc1", "linear_fc2")
    colours: tuple[tuple[float, ...], tuple[float, ...]] = Colours.HALF
    width: str = "hidden_size"  # the key that says how wide the encoder's stream is
    out_width: str = "out_hidden_size"  # and its rows
    has_position_table: bool = False  # learned, and resampled to a medium's grid
    has_windows: bool = False  # most layers attend within windows
    taps: str | None = None  # the key with the layers behind which rows for DeepStack are taken
    rope_theta: float = 10_000.0  # of heights and widths
    # What transformers' class takes for keys that a config leaves out.
    defaults: Mapping[str, Any] = field(default_factory=dict)


_DEFAULTS = {
    "num_heads": 16,
    "in_channels": 3,
    "spatial_merge_size": 2,
    "temporal_patch_size": 2,
    "hidden_act": "gelu_pytorch_tanh",
}
QWEN3_VL = VisionFamily(
    "qwen3_vl_vision",
    has_position_table=True,
    taps="deepstack_visual_indexes",
    defaults=_DEFAULTS
    | {
        "depth": 27,
        "hidden_size": 1152,
        "intermediate_size": 4304,
        "patch_size": 16,
        "out_hidden_size": 3584,
        "num_position_embeddings": 2304,
        "deepstack_visual_indexes": [8, 16, 24],
    },
)
QWEN3_5 = replace(QWEN3_VL, name="qwen3_5_vision", taps=None)
QWEN2_5_VL = VisionFamily(
    "qwen2_5_vl_vision",
    norm=RMS,
    mlp=("gate_proj", "up_proj", "down_proj"),
    merger=MergerNames("ln_q", "mlp.0", "mlp.2"),
    colours=Colours.CLIP,
    has_windows=True,
    defaults=_DEFAULTS
    | {
        "depth": 32,
        "hidden_size": 3584,
        "intermediate_size": 3420,
        "patch_size": 14,
        "out_hidden_size": 3584,
        "hidden_act": "silu",
        "window_size": 112,
        "fullatt_block_indexes": [7, 15, 23, 31],
    },
)
QWEN2_VL = VisionFamily(
    "qwen2_vl_vision",
    mlp=("fc1", "fc2"),
    merger=MergerNames("ln_q", "mlp.0", "mlp.2"),
    colours=Colours.CLIP,
    width="embed_dim",
    out_width="hidden_size",
    defaults=_DEFAULTS
    | {
        "depth": 32,
        "embed_dim": 1280,
        "hidden_size": 3584,
        "mlp_ratio": 4,
        "patch_size": 14,
        "hidden_act": "quick_gelu",
    },
)

VISION_FAMILIES: dict[str, VisionFamily] = {
    "Qwen3VLForConditionalGeneration": QWEN3_VL,
    "Qwen3VLMoeForConditionalGeneration": QWEN3_VL,
    "Qwen3_5ForConditionalGeneration": QWEN3_5,
    "Qwen3_5MoeForConditionalGeneration": QWEN3_5,
    "Qwen2_5_VLForConditionalGeneration": QWEN2_5_VL,
    "Qwen2VLForConditionalGeneration": QWEN2_VL,
}
