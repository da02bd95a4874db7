"""A small random ERNIE-4.5-VL as transformers saves it, and prompts for it."""

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from builders.other_layouts import paddle_model
from builders.seeing_models import NO_CHANGES, Picture
from builders.seeing_models import Scene as QwenScene
from torch import Tensor

from penstock.protocol.media import MediumKind

IMAGE, IMAGE_START, IMAGE_END, VIDEO, VIDEO_START, VIDEO_END = MARKS = tuple(range(390, 396))
_NAMES = ("image_token_id", "image_start_token_id", "image_end_token_id")
_TOKENS = (*_NAMES, *(name.replace("image", "video") for name in _NAMES))
_TEXT: dict[str, Any] = dict(
    vocab_size=400, hidden_size=64, intermediate_size=96, num_hidden_layers=3, num_attention_heads=4,
    num_key_value_heads=2, max_position_embeddings=4096, pad_token_id=0, bos_token_id=1, eos_token_id=2,
    moe_intermediate_size=[40, 24], moe_k=2, moe_num_experts=6, moe_num_shared_experts=1,
    mlp_layer_types=["dense", "sparse", "sparse"],
    rope_parameters=dict(rope_type="default", rope_theta=1e4, mrope_section=[3, 3, 2]),
)  # fmt: skip
_VISION: dict[str, Any] = dict(
    depth=3, hidden_size=48, intermediate_size=80, num_heads=2, patch_size=4, spatial_merge_size=2
)


def seeing_model(
    folder: Path, family: str = "", seed: int = 0, vocab_size: int = 400, marks: tuple[int, ...] = MARKS,
    text: Mapping[str, Any] = NO_CHANGES, **vision: Any,
) -> Any:  # fmt: skip
    """Written into the folder; `marks` are in the order of MARKS."""
    import transformers

    config = transformers.Ernie4_5_VLMoeConfig(
        text_config=_TEXT | {"vocab_size": vocab_size, **text}, vision_config=_VISION | vision,
        tie_word_embeddings=False,
        **dict(zip(_TOKENS, marks, strict=True)),
    )  # fmt: skip
    torch.manual_seed(seed)
    model = transformers.Ernie4_5_VLMoeForConditionalGeneration(config).eval()
    for name, weight in model.named_parameters():
        is_norm = weight.dim() == 1 and "norm" in name and "bias" not in name
        weight.data = is_norm + torch.randn_like(weight) / 5
    for name, bias in model.named_buffers():
        if "e_score_correction_bias" in name:
            bias.data = torch.randn_like(bias) / 20
    model.lm_head.weight.data[list(marks)] = 0  # an answer hardly has one
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


class Scene(QwenScene):
    def _add(self, kind: MediumKind, frames: int, grid: tuple[int, int, int], token: int, seed: int) -> None:
        pixels = self._pixels(frames, grid, seed)
        start, mark, end = (VIDEO_START, VIDEO, VIDEO_END) if kind == "video" else (IMAGE_START, IMAGE, IMAGE_END)
        self.tokens.append(start)
        length = -(-frames // 2) * grid[1] * grid[2] // 4
        spans = [(len(self.tokens), length)]
        self.tokens += [mark] * length + [end]
        self.media.append(Picture(kind, pixels, (frames, *grid[1:]), spans))

    def inputs(self, colours: Any, num_tokens: int) -> dict[str, Tensor]:
        if not self.media:
            return {}
        experts = self._of(dict.fromkeys(MARKS, 1), num_tokens)  # those of media have the marks around them too
        return super().inputs(colours, num_tokens) | {"moe_mm_token_type_ids": experts}

    def encoded(self, reference: Any, medium: Picture, colours: Any) -> Tensor:
        pixels, grid = Scene("", media=[medium]).given(colours.mean, colours.deviation).values()
        named = reference.model.get_video_features if medium.kind == "video" else reference.model.get_image_features
        return torch.cat(named(pixels, grid).pooler_output)

    def types(self, num_tokens: int) -> Tensor:
        return self._of({IMAGE: 1, VIDEO: 2}, num_tokens)

    def _of(self, kinds: dict[int, int], num_tokens: int) -> Tensor:
        of_prompt = [kinds.get(token, 0) for token in self.tokens]
        return torch.tensor([of_prompt + [0] * (num_tokens - len(of_prompt))])

    def patches(self, picture: Picture, mean: Any, deviation: Any) -> Tensor:
        """As transformers' processors cut pixels: each frame by itself."""
        pixels = (picture.pixels.float() / 255 - torch.tensor(mean)) / torch.tensor(deviation)
        frames, down, across = picture.grid
        cut = pixels.view(frames, down // 2, 2, self.patch, across // 2, 2, self.patch, 3)
        return cut.permute(0, 1, 4, 2, 5, 7, 3, 6).reshape(frames * down * across, -1)
