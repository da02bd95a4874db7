"""Vision encoders: from the metadata of an encoder's file (`mmproj-….gguf`) to `vision_config`.

A row of the table is a kind of projector: the model architectures it belongs to, with the published class of the whole,
and the keys of the encoder's config. Keys are those of `clip.vision`.
"""

from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Any

from .....records import dataclass
from ....fields.rules import shown
from ..refusals import MalformedError
from .encoder_metadata import EncoderMetadata
from .model_metadata import Config

_QWEN_FRAMES, _QWEN_MERGE = 2, 2


@dataclass(frozen=True)
class Projector:
    """One kind of encoder, with the projector that turns its patches into rows."""

    classes: Mapping[str, tuple[str, str]]  # by the model's architecture: class and model_type of the whole model
    vision: Callable[[EncoderMetadata], Config]
    processor: Callable[[EncoderMetadata], Config]
    token: str  # the placeholder token that rows replace; it is in the vocabulary
    text: Config = field(default_factory=dict)  # keys of the text part that override its own
    sections: Config | None = None  # added to the sections of rotation, if there are any
    outer: Callable[[EncoderMetadata], Config] = lambda given: {}


def _qwen(given: EncoderMetadata) -> Config:
    return {
        "depth": given.num_layers,
        "num_heads": given.count("attention.head_count"),
        "patch_size": given.count("patch_size"),
        "spatial_merge_size": given.count("spatial_merge_size", _QWEN_MERGE),
        "temporal_patch_size": _QWEN_FRAMES,
        "in_channels": 3,
    }


def _qwen2(given: EncoderMetadata) -> Config:
    hidden, width = given.count("embedding_length"), given.width
    if width % hidden:
        raise MalformedError(f"has an inner layer of {width} in an encoder of {hidden}")
    own = {"embed_dim": hidden, "hidden_size": given.count("projection_dim"), "mlp_ratio": width // hidden}
    return _qwen(given) | own | {"hidden_act": "quick_gelu"}


def _qwen2_5(given: EncoderMetadata) -> Config:
    own: Config = {"hidden_size": given.count("embedding_length"), "intermediate_size": given.width}
    own |= {"out_hidden_size": given.count("projection_dim"), "window_size": given.count("window_size", 112)}
    more = {"fullatt_block_indexes": given.full_layers, "tokens_per_second": 2, "hidden_act": "silu"}
    return _qwen(given) | own | more


def _qwen3(given: EncoderMetadata) -> Config:
    own: Config = {"hidden_size": given.count("embedding_length"), "intermediate_size": given.width}
    own |= {"out_hidden_size": given.count("projection_dim"), "hidden_act": "gelu_pytorch_tanh"}
    own |= {"num_position_embeddings": given.rows("v.position_embd.weight")}
    return _qwen(given) | own | ({"deepstack_visual_indexes": given.taps} if given.taps else {})


def _siglip(given: EncoderMetadata) -> Config:
    return {
        "num_hidden_layers": given.num_layers,
        "num_attention_heads": given.count("attention.head_count"),
        "hidden_size": given.count("embedding_length"),
        "intermediate_size": given.width,
        "image_size": given.count("image_size"),
        "patch_size": given.count("patch_size"),
        "layer_norm_eps": given.epsilon,
        "hidden_act": "gelu_pytorch_tanh",
    }


def _qwen_processor(least: int, most: int) -> Callable[[EncoderMetadata], Config]:
    """The bounds of pixels, which few files state, are those of the published models."""
    return lambda given: {
        "patch_size": given.count("patch_size"),
        "merge_size": given.count("spatial_merge_size", _QWEN_MERGE),
        "temporal_patch_size": _QWEN_FRAMES,
        "min_pixels": given.count("image_min_pixels", least),
        "max_pixels": given.count("image_max_pixels", most),
        **given.colours,
    }


def _square_rows(given: EncoderMetadata) -> int:
    """The rows of one picture for Gemma."""
    return (given.count("image_size") // given.count("patch_size") // given.count("projector.scale_factor", 4)) ** 2


def _gemma_processor(given: EncoderMetadata) -> Config:
    side = given.count("image_size")
    return {"size": {"height": side, "width": side}, "image_seq_length": _square_rows(given), **given.colours}


def _idefics_processor(given: EncoderMetadata) -> Config:
    side = given.count("image_size")
    longest = given.count("preproc_image_size", 4 * side)
    return {"size": {"longest_edge": longest}, "max_image_size": {"longest_edge": side}, **given.colours}


_QWEN2_PROCESSOR = _qwen_processor(3136, 12_845_056)
_QWEN_TOKEN = "<|image_pad|>"
PROJECTORS: dict[str, Projector] = {
    "qwen2vl_merger": Projector(
        {"qwen2vl": ("Qwen2VLForConditionalGeneration", "qwen2_vl")},
        _qwen2, _QWEN2_PROCESSOR, _QWEN_TOKEN, {"model_type": "qwen2_vl_text"}, {"rope_type": "default"},
    ),
    "qwen2.5vl_merger": Projector(
        {"qwen2vl": ("Qwen2_5_VLForConditionalGeneration", "qwen2_5_vl")},
        _qwen2_5, _QWEN2_PROCESSOR, _QWEN_TOKEN, {"model_type": "qwen2_5_vl_text"}, {"rope_type": "default"},
    ),
    "qwen3vl_merger": Projector(
        {
            "qwen3vl": ("Qwen3VLForConditionalGeneration", "qwen3_vl"),
            "qwen3vlmoe": ("Qwen3VLMoeForConditionalGeneration", "qwen3_vl_moe"),
            "qwen35": ("Qwen3_5ForConditionalGeneration", "qwen3_5"),
            "qwen35moe": ("Qwen3_5MoeForConditionalGeneration", "qwen3_5_moe"),
        },
        _qwen3, _qwen_processor(65_536, 16_777_216), _QWEN_TOKEN,
        sections={"rope_type": "default", "mrope_interleaved": True},
    ),
    "gemma3": Projector(
        {"gemma3": ("Gemma3ForConditionalGeneration", "gemma3")},
        _siglip, _gemma_processor, "<image_soft_token>",
        outer=lambda given: {"mm_tokens_per_image": _square_rows(given)},
    ),
    "idefics3": Projector(
        {"llama": ("Idefics3ForConditionalGeneration", "idefics3")},
        _siglip, _idefics_processor, "<image>",
        outer=lambda given: {"scale_factor": given.count("projector.scale_factor", 2)},
    ),
}  # fmt: skip
# Keys of the whole model, whatever its parts contain.
_OF_THE_WHOLE = ("tie_word_embeddings", "dtype", "quantization_config", "bos_token_id", "eos_token_id", "pad_token_id")


def may_see(metadata: Mapping[str, Any]) -> bool:
    """Whether any encoder could belong to this model; if not, no file needs to be opened."""
    return any(_fits_model(projector, metadata) for projector in PROJECTORS.values())


def _fits_model(projector: Projector, metadata: Mapping[str, Any]) -> bool:
    """Whether the model has an architecture that the projector belongs to, and a token for its rows."""
    tokens = metadata.get("tokenizer.ggml.tokens")
    is_known = metadata.get("general.architecture") in projector.classes
    return is_known and isinstance(tokens, list) and projector.token in tokens


def fitting_projector(given: EncoderMetadata, metadata: Mapping[str, Any]) -> Projector | None:
    """The row of the table that fits both the encoder and the model."""
    projector = PROJECTORS.get(given.projector or "")
    if projector is None or not _fits_model(projector, metadata):
        return None
    width = metadata.get(f"{metadata['general.architecture']}.embedding_length")
    return projector if given.count("projection_dim") == width else None


def with_vision(text: Config, given: EncoderMetadata, projector: Projector, metadata: Mapping[str, Any]) -> Config:
    """The config of model and encoder together."""
    architecture = str(metadata["general.architecture"])
    name, model_type = projector.classes[architecture]
    part = {key: value for key, value in text.items() if key not in (*_OF_THE_WHOLE, "architectures")} | projector.text
    if projector.sections is not None:
        part |= _with_sections(part, projector.sections, metadata.get(f"{architecture}.rope.dimension_sections"))
    whole = {key: text[key] for key in _OF_THE_WHOLE if key in text}
    return {
        "architectures": [name],
        "model_type": model_type,
        "text_config": part,
        "vision_config": projector.vision(given),
        **projector.outer(given),
        **whole,
    }


def _with_sections(text: Config, defaults: Config, sections: Any) -> Config:
    if not isinstance(sections, list) or len(sections) < 3 or not all(type(each) is int for each in sections):
        raise MalformedError(f"has sections of rotation that are {shown(sections)}")
    return {"rope_scaling": defaults | (text.get("rope_scaling") or {}) | {"mrope_section": sections[:3]}}
