"""Small random models that see, as transformers saves them: Qwen's, those of squares of one size, and ERNIE-4.5-VL.

`seeing_model` gives transformers' own model beside the folder; `seeing_scenes.py` has pictures and videos for them.
"""

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from types import MappingProxyType
from typing import Any

import torch
from builders.other_layouts import paddle_model

IMAGE, VIDEO, START, END, VIDEO_START, VIDEO_END = range(390, 396)
SIDE = 26  # of a square, in pixels, of which the last ones make no whole patch
ERNIE = "Ernie4_5_VLMoe"
TEXT: dict[str, Any] = dict(
    vocab_size=400, hidden_size=64, intermediate_size=96, num_hidden_layers=4, num_attention_heads=4,
    num_key_value_heads=2, max_position_embeddings=4096, initializer_range=0.2, pad_token_id=0, bos_token_id=1,
    eos_token_id=2,
)  # fmt: skip
_VISION: dict[str, Any] = dict(depth=4, num_heads=2, patch_size=4, initializer_range=0.2, spatial_merge_size=2)
# Heads of 12 numbers, which kernels want filled up.
_SQUARES: dict[str, Any] = dict(
    hidden_size=48, intermediate_size=80, num_hidden_layers=3, num_attention_heads=4, image_size=SIDE, patch_size=4
)
_LLAMA = TEXT | {"model_type": "llama"}
_TOKENS = dict(image_token_id=IMAGE, video_token_id=VIDEO, vision_start_token_id=START, vision_end_token_id=END)
_ERNIES_TOKENS = dict(
    image_token_id=IMAGE, image_start_token_id=START, image_end_token_id=END, video_token_id=VIDEO,
    video_start_token_id=VIDEO_START, video_end_token_id=VIDEO_END,
)  # fmt: skip
NO_CHANGES: Mapping[str, Any] = MappingProxyType({})


def _rope(**figures: Any) -> dict[str, Any]:
    return dict(rope_type="default", rope_theta=1e4, **figures)


# By transformers' prefix of a family's classes: the configs of its text part and its encoder, and of both together.
FAMILIES: dict[str, tuple[dict[str, Any], dict[str, Any], dict[str, Any]]] = {
    "Qwen3VL": (
        TEXT | dict(head_dim=32, rope_parameters=_rope(mrope_section=[6, 5, 5], mrope_interleaved=True)),
        _VISION | dict(hidden_size=48, intermediate_size=80, out_hidden_size=64, num_position_embeddings=36,
                       deepstack_visual_indexes=[0, 2]),
        _TOKENS,
    ),
    "Qwen2_5_VL": (
        TEXT | dict(rope_parameters=_rope(mrope_section=[2, 3, 3])),
        _VISION | dict(hidden_size=64, intermediate_size=52, out_hidden_size=64, window_size=24,
                       fullatt_block_indexes=[1, 3], tokens_per_second=2),
        _TOKENS,
    ),
    "Qwen2VL": (
        TEXT | dict(rope_parameters=_rope(mrope_section=[2, 3, 3])),
        _VISION | dict(embed_dim=48, hidden_size=64, mlp_ratio=2),
        _TOKENS,
    ),
    "Qwen3_5": (
        TEXT | dict(head_dim=32, partial_rotary_factor=0.5, linear_num_key_heads=2, linear_num_value_heads=4,
                     linear_key_head_dim=16, linear_value_head_dim=16, full_attention_interval=2,
                     layer_types=["linear_attention", "full_attention"] * 2,
                     rope_parameters=_rope(mrope_section=[3, 3, 2], partial_rotary_factor=0.5)),
        _VISION | dict(hidden_size=48, intermediate_size=80, out_hidden_size=64, num_position_embeddings=49),
        _TOKENS,
    ),
    "Qwen3VLMoe": (
        TEXT | dict(head_dim=32, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=40,
                     rope_parameters=_rope(mrope_section=[6, 5, 5], mrope_interleaved=True)),
        _VISION | dict(hidden_size=48, intermediate_size=80, out_hidden_size=64, num_position_embeddings=36,
                       deepstack_visual_indexes=[0, 1, 3]),
        _TOKENS,
    ),
    "Gemma3": (
        TEXT | dict(head_dim=16, sliding_window=6, query_pre_attn_scalar=16,
                    layer_types=["sliding_attention", "full_attention"] * 2),
        _SQUARES | {"vision_use_head": False},
        {"image_token_id": IMAGE, "mm_tokens_per_image": 9},
    ),
    "Idefics3": (_LLAMA, _SQUARES, {"image_token_id": IMAGE, "scale_factor": 3}),
    "SmolVLM": (_LLAMA, _SQUARES, {"image_token_id": IMAGE, "scale_factor": 2}),
    ERNIE: (
        TEXT | dict(num_hidden_layers=3, moe_intermediate_size=[40, 24], moe_k=2, moe_num_experts=6,
                    moe_num_shared_experts=1, mlp_layer_types=["dense", "sparse", "sparse"],
                    rope_parameters=_rope(mrope_section=[3, 3, 2])),
        _VISION | dict(depth=3, hidden_size=48, intermediate_size=80),
        _ERNIES_TOKENS,
    ),
}  # fmt: skip
SQUARES = ("Gemma3", "Idefics3", "SmolVLM")


_MOST_KEPT = 16
_KEPT: dict[str, tuple[Any, dict[str, bytes]]] = {}  # by what was asked for, a model and its files


def seeing_model(
    folder: Path, family: str, seed: int = 0, vocab_size: int = 400, tokens: Mapping[str, int] = NO_CHANGES,
    text: Mapping[str, Any] = NO_CHANGES, **vision: Any,
) -> Any:  # fmt: skip
    """Written into the folder; `tokens`, `text` and `vision` go before what the table has. The next caller may get the
    same model, so nobody changes it."""
    key = repr((family, seed, vocab_size, sorted(tokens.items()), sorted(text.items()), sorted(vision.items())))
    if key not in _KEPT:
        with TemporaryDirectory() as made:
            model = _made(Path(made), family, seed, vocab_size, tokens, text, vision)
            _KEPT[key] = model, {path.name: path.read_bytes() for path in Path(made).iterdir()}
        if len(_KEPT) > _MOST_KEPT:
            del _KEPT[next(iter(_KEPT))]
    model, files = _KEPT[key]
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / name).write_bytes(content)
    return model


def _made(
    folder: Path, family: str, seed: int, vocab_size: int, tokens: Mapping[str, int], text: Mapping[str, Any],
    vision: Mapping[str, Any],
) -> Any:  # fmt: skip
    import transformers

    decoder, encoder, both = FAMILIES[family]
    config = getattr(transformers, f"{family}Config")(
        text_config=decoder | {"vocab_size": vocab_size, **text}, vision_config=encoder | dict(vision),
        tie_word_embeddings=False, **both | dict(tokens),
    )  # fmt: skip
    torch.manual_seed(seed)
    model = getattr(transformers, f"{family}ForConditionalGeneration")(config).eval()
    for name, weight in model.named_parameters():
        is_norm = weight.dim() == 1 and ("norm" in name or "ln_q" in name) and "bias" not in name
        weight.data = is_norm * weight.data + torch.randn_like(weight) / 5  # norms and biases matter
    for name, bias in model.named_buffers():
        if "e_score_correction_bias" in name:
            bias.data = torch.randn_like(bias) / 20
    marks = [token for name, token in (both | dict(tokens)).items() if name.endswith("token_id")]
    model.lm_head.weight.data[marks] = 0  # an answer hardly has one
    model.save_pretrained(folder)
    return model


def paddle_ernie(folder: Path, original: Path) -> Path:
    """Written over again as Paddle's are published: one list of keys, some with a number for text and one for media."""
    config = json.loads((original / "config.json").read_text())
    text = config.pop("text_config")
    text.pop("mlp_layer_types")
    text.pop("model_type")
    vision = config["vision_config"]
    vision |= {"embed_dim": vision["hidden_size"], "attn_sep": True, "vit_first_fwd_bsz": 128}
    flat = original.with_name("flat")
    shutil.copytree(original, flat)
    lists = {"moe_num_experts": [6, 6], "moe_layer_start_index": [1, 1], "moe_layer_end_index": [3, 2]}
    own = {"rope_3d": True, "freq_allocation": 2, "moe_layer_interval": 1, "pixel_hidden_size": 48}
    (flat / "config.json").write_text(json.dumps(config | text | lists | own))
    return paddle_model(folder, flat)
