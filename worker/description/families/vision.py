"""The picture encoders that run here, by the architecture that a config names. Imports no torch."""

from collections.abc import Mapping
from dataclasses import field, replace
from typing import Any, Literal, NamedTuple

from ....records import dataclass
from ..parts.norms import RMS, NormForm

_LAYER_NORM = NormForm(has_mean=True, has_bias=True)
_HALF = (0.5, 0.5, 0.5)

# How a learned position table is applied to a frame: interpolated between neighbours, by the scaled index, or as it is.
Places = Literal["resampled", "bucketed", "fixed"]
# How patches become rows. mlp: norm, linear, gelu, linear of the patches side by side. mean: the patches' mean,
# normalized and projected. projection: one projection of the patches side by side. pairs: an MLP of the patches side by
# side, then another of two frames' rows side by side.
Merging = Literal["mlp", "mean", "projection", "pairs"]


class Colours:
    """Default mean and deviation of the colours, if a model's files don't give them."""

    HALF = (_HALF, _HALF)
    CLIP = ((0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711))


class TowerNames(NamedTuple):
    """The names of an encoder's parts."""

    patch: str = "patch_embed.proj"
    table: str = "pos_embed"
    blocks: str = "blocks"
    before_attention: str = "norm1"
    before_mlp: str = "norm2"
    attention: str = "attn"
    heads: tuple[str, ...] = ("qkv",)  # for queries, keys and values
    output: str = "proj"


@dataclass(frozen=True)
class MergerNames:
    """The names of a merger's norm and of its two projections."""

    norm: str
    up: str
    down: str


_QWEN = TowerNames()


@dataclass(frozen=True)
class VisionFamily:
    """The details of an encoder that its config does not spell out."""

    name: str
    norm: NormForm = _LAYER_NORM
    names: TowerNames = _QWEN
    epsilon: float = 1e-6  # of norms, if no key gives it
    keys: Mapping[str, str] = field(default_factory=dict)  # config keys that differ from Qwen's
    # Keys next to vision_config.
    outer_keys: tuple[str, ...] = ()
    patch_dims: int = 5  # dimensions of the stored patch embedding
    rotates: bool = True  # queries and keys, by the coordinates of their patches
    places: Places | None = None  # how a learned position table is applied to a medium's grid, if there is one
    merging: Merging = "mlp"  # how patches become rows
    row_frames: int = 1  # frames of a video that become one row
    has_whole_spans: bool = False  # adjacent rows of one picture see one another in the text part
    mlp: tuple[str, ...] = ("linear_fc1", "linear_fc2")  # gate, if there is one, up and down
    merger: MergerNames = MergerNames("norm", "linear_fc1", "linear_fc2")
    colours: tuple[tuple[float, ...], tuple[float, ...]] = Colours.HALF
    width: str = "hidden_size"  # the key for the width of the encoder's stream
    out_width: str | None = "out_hidden_size"  # the key for its rows' width; None: the text part's width
    has_windows: bool = False  # most layers attend within windows
    taps: str | None = None  # the key that lists the layers after which rows for DeepStack are taken
    rope_theta: float = 10_000.0  # for heights and widths
    # Defaults of transformers' class.
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
    places="resampled",
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
_SIGLIP = VisionFamily(
    "siglip_vision_model",
    names=TowerNames(
        patch="embeddings.patch_embedding",
        table="embeddings.position_embedding",
        blocks="encoder.layers",
        before_attention="layer_norm1",
        before_mlp="layer_norm2",
        attention="self_attn",
        heads=("q_proj", "k_proj", "v_proj"),
        output="out_proj",
    ),
    keys={
        "depth": "num_hidden_layers",
        "num_heads": "num_attention_heads",
        "in_channels": "num_channels",
        "epsilon": "layer_norm_eps",
    },
    patch_dims=4,
    rotates=False,
    mlp=("fc1", "fc2"),
    out_width=None,
)
_SIGLIP_DEFAULTS = {
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "hidden_size": 768,
    "intermediate_size": 3072,
    "num_channels": 3,
    "image_size": 224,
    "patch_size": 16,
    "hidden_act": "gelu_pytorch_tanh",
    "layer_norm_eps": 1e-6,
}
GEMMA3 = replace(
    _SIGLIP,
    outer_keys=("mm_tokens_per_image",),
    places="fixed",
    merging="mean",
    has_whole_spans=True,
    defaults=_SIGLIP_DEFAULTS | {"mm_tokens_per_image": 256},
)
IDEFICS3 = replace(
    _SIGLIP,
    name="idefics3_vision",
    keys={**_SIGLIP.keys, "spatial_merge_size": "scale_factor"},
    outer_keys=("scale_factor",),
    places="bucketed",
    merging="projection",
    defaults=_SIGLIP_DEFAULTS | {"hidden_size": 1152, "num_attention_heads": 16, "patch_size": 32, "scale_factor": 2},
)
ERNIE_VL = VisionFamily(
    "ernie4_5_vl_moe_vision",
    keys={"epsilon": "rms_norm_eps"},
    patch_dims=2,
    merging="pairs",
    row_frames=2,
    mlp=("fc1", "fc2"),
    colours=Colours.CLIP,
    out_width=None,
    defaults={
        "depth": 32,
        "hidden_size": 1280,
        "intermediate_size": 5120,
        "num_heads": 16,
        "in_channels": 3,
        "patch_size": 14,
        "spatial_merge_size": 2,
        "hidden_act": "quick_gelu",
        "rms_norm_eps": 1e-6,
    },
)

VISION_FAMILIES: dict[str, VisionFamily] = {
    "Qwen3VLForConditionalGeneration": QWEN3_VL,
    "Qwen3VLMoeForConditionalGeneration": QWEN3_VL,
    "Qwen3_5ForConditionalGeneration": QWEN3_5,
    "Qwen3_5MoeForConditionalGeneration": QWEN3_5,
    "Qwen2_5_VLForConditionalGeneration": QWEN2_5_VL,
    "Qwen2VLForConditionalGeneration": QWEN2_VL,
    "Ernie4_5_VLMoeForConditionalGeneration": ERNIE_VL,
    "Ernie4_5_VLForConditionalGeneration": ERNIE_VL,
    "Gemma3ForConditionalGeneration": GEMMA3,
    "Idefics3ForConditionalGeneration": IDEFICS3,
    "SmolVLMForConditionalGeneration": IDEFICS3,
}
