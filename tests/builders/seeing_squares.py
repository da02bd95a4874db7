"""Small random models that see squares of one size (Gemma 3, Idefics3, SmolVLM), and prompts with such pictures.

A picture is one square or several, each with a span of its own, as crops and tiles have them.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from builders import seeing_models as scenes
from builders.seeing_models import NO_CHANGES, TEXT, Picture
from torch import Tensor

IMAGE = 390
SIDE = 26  # of a square, in pixels, of which the last ones make no whole patch
# Heads of 12 numbers, which kernels want filled up.
_VISION: dict[str, Any] = dict(
    hidden_size=48, intermediate_size=80, num_hidden_layers=3, num_attention_heads=4, image_size=SIDE, patch_size=4
)
_SMALL_WINDOW = dict(
    head_dim=16, sliding_window=6, query_pre_attn_scalar=16,
    layer_types=["sliding_attention", "full_attention"] * 2,
)  # fmt: skip
_LLAMA = TEXT | {"model_type": "llama"}
# By transformers' prefix of a family's classes: the configs of its text part, its encoder, and both together.
FAMILIES: dict[str, tuple[dict[str, Any], dict[str, Any], dict[str, Any]]] = {
    "Gemma3": (TEXT | _SMALL_WINDOW, _VISION | {"vision_use_head": False}, {"mm_tokens_per_image": 9}),
    "Idefics3": (_LLAMA, _VISION, {"scale_factor": 3}),
    "SmolVLM": (_LLAMA, _VISION, {"scale_factor": 2}),
}


def seeing_model(
    folder: Path, family: str, seed: int = 0, vocab_size: int = 400, image_token: int = IMAGE,
    text: Mapping[str, Any] = NO_CHANGES, **vision: Any,
) -> Any:  # fmt: skip
    """Written into the folder; `text` and `vision` go before what the table has of both parts."""
    import transformers

    decoder, encoder, both = FAMILIES[family]
    config = getattr(transformers, f"{family}Config")(
        text_config=decoder | {"vocab_size": vocab_size, **text}, vision_config=encoder | vision,
        tie_word_embeddings=False, image_token_id=image_token, **both,
    )  # fmt: skip
    torch.manual_seed(seed)
    model = getattr(transformers, f"{family}ForConditionalGeneration")(config).eval()
    for name, weight in model.named_parameters():
        if weight.dim() == 1:  # norms and biases matter
            usual = 1 if "norm" in name and "bias" not in name and family != "Gemma3" else 0
            weight.data = usual + torch.randn_like(weight) / 5
        else:
            weight.data = torch.randn_like(weight) / 5
    model.lm_head.weight.data[image_token] = 0  # an answer hardly has one
    model.save_pretrained(folder)
    return model


@dataclass
class Scene(scenes.Scene):
    """A prompt that is made piece by piece."""

    @property
    def rows(self) -> int:
        """Number of rows that a square becomes."""
        return {"Gemma3": 9, "Idefics3": 4, "SmolVLM": 9}[self.family]

    def picture(self, squares: int = 1, seed: int = 0) -> "Scene":
        generator = torch.Generator().manual_seed(seed)
        pixels = torch.randint(0, 256, (squares, SIDE, SIDE, 3), dtype=torch.uint8, generator=generator)
        spans = []
        for number in range(squares):
            self.tokens.append(20 + number)
            spans.append((len(self.tokens), self.rows))
            self.tokens += [IMAGE] * self.rows + [30 + number]
        self.media.append(Picture("image", pixels, (squares, SIDE // 4, SIDE // 4), spans))
        return self

    def positions(self, reference: Any) -> bytes:
        return b""

    def inputs(self, colours: Any, num_tokens: int) -> dict[str, Tensor]:
        if not self.media:
            return {}
        pixels = torch.cat([plain(each, colours) for each in self.media])
        if self.family != "Gemma3":
            return {"pixel_values": pixels[None]}
        types = [int(token == IMAGE) for token in self.tokens]
        return {"pixel_values": pixels, "token_type_ids": torch.tensor([types + [0] * (num_tokens - len(types))])}

    def encoded(self, reference: Any, medium: Picture, colours: Any) -> Tensor:
        is_gemma, pixels = self.family == "Gemma3", plain(medium, colours)
        found = reference.model.get_image_features(pixels if is_gemma else pixels[None]).pooler_output
        return (found if is_gemma else torch.cat(found)).flatten(0, -2)


def plain(picture: Picture, colours: Any) -> Tensor:
    """[squares, 3, side, side]"""
    pixels = (picture.pixels.float() / 255 - torch.tensor(colours.mean)) / torch.tensor(colours.deviation)
    return pixels.permute(0, 3, 1, 2)
