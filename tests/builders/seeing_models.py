"""Small random models that see, as transformers saves them, and pictures and videos for them.

`seeing_model` gives transformers' own model beside the folder. A `Scene` is a prompt with its media as a plan has them.
"""

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch
from builders.runner_harness import prompt
from torch import Tensor

from penstock.protocol.media import Encode, Medium, MediumKind
from penstock.protocol.messages import Prompt, column

IMAGE, VIDEO, START, END = 390, 391, 392, 393
TEXT: dict[str, Any] = dict(
    vocab_size=400, hidden_size=64, intermediate_size=96, num_hidden_layers=4, num_attention_heads=4,
    num_key_value_heads=2, max_position_embeddings=4096, initializer_range=0.2, pad_token_id=0, bos_token_id=1,
    eos_token_id=2,
)  # fmt: skip
_VISION: dict[str, Any] = dict(depth=4, num_heads=2, patch_size=4, initializer_range=0.2, spatial_merge_size=2)
_TOKENS = dict(image_token_id=IMAGE, video_token_id=VIDEO, vision_start_token_id=START, vision_end_token_id=END)
NO_CHANGES: Mapping[str, Any] = MappingProxyType({})


def _rope(theta: float, **figures: Any) -> dict[str, Any]:
    return dict(rope_type="default", rope_theta=theta, **figures)


# By transformers' prefix of a family's classes: the configs of its text part and its encoder, and of both together.
FAMILIES: dict[str, tuple[dict[str, Any], dict[str, Any], dict[str, Any]]] = {
    "Qwen3VL": (
        TEXT | dict(head_dim=32, rope_parameters=_rope(1e4, mrope_section=[6, 5, 5], mrope_interleaved=True)),
        _VISION | dict(hidden_size=48, intermediate_size=80, out_hidden_size=64, num_position_embeddings=36,
                       deepstack_visual_indexes=[0, 2]),
        {},
    ),
    "Qwen2_5_VL": (
        TEXT | dict(rope_parameters=_rope(1e4, mrope_section=[2, 3, 3])),
        _VISION | dict(hidden_size=64, intermediate_size=52, out_hidden_size=64, window_size=24,
                       fullatt_block_indexes=[1, 3], tokens_per_second=2),
        {},
    ),
    "Qwen2VL": (
        TEXT | dict(rope_parameters=_rope(1e4, mrope_section=[2, 3, 3])),
        _VISION | dict(embed_dim=48, hidden_size=64, mlp_ratio=2),
        {},
    ),
    "Qwen3_5": (
        TEXT | dict(head_dim=32, partial_rotary_factor=0.5, linear_num_key_heads=2, linear_num_value_heads=4,
                     linear_key_head_dim=16, linear_value_head_dim=16, full_attention_interval=2,
                     layer_types=["linear_attention", "full_attention"] * 2,
                     rope_parameters=_rope(1e4, mrope_section=[3, 3, 2], partial_rotary_factor=0.5)),
        _VISION | dict(hidden_size=48, intermediate_size=80, out_hidden_size=64, num_position_embeddings=49),
        {},
    ),
    "Qwen3VLMoe": (
        TEXT | dict(head_dim=32, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=40,
                     rope_parameters=_rope(1e4, mrope_section=[6, 5, 5], mrope_interleaved=True)),
        _VISION | dict(hidden_size=48, intermediate_size=80, out_hidden_size=64, num_position_embeddings=36,
                       deepstack_visual_indexes=[0, 1, 3]),
        {},
    ),
}  # fmt: skip


def seeing_model(
    folder: Path, family: str, seed: int = 0, vocab_size: int = 400, tokens: dict[str, int] = _TOKENS,
    text: Mapping[str, Any] = NO_CHANGES, **vision: Any,
) -> Any:  # fmt: skip
    """Written into the folder; `text` and `vision` go before what the table has of both parts."""
    import transformers

    decoder, encoder, both = FAMILIES[family]
    config = getattr(transformers, f"{family}Config")(
        text_config=decoder | {"vocab_size": vocab_size, **text}, vision_config=encoder | vision,
        tie_word_embeddings=False, **tokens, **both,
    )  # fmt: skip
    torch.manual_seed(seed)
    model = getattr(transformers, f"{family}ForConditionalGeneration")(config).eval()
    for name, weight in model.named_parameters():
        if weight.dim() == 1:  # norms and biases matter
            usual = 1 if "norm" in name or "ln_q" in name else 0
            weight.data = usual * weight.data + torch.randn_like(weight) / 5
    model.save_pretrained(folder)
    return model


@dataclass
class Picture:
    """One medium of a scene."""

    kind: MediumKind
    pixels: Tensor  # uint8 [frames, height, width, 3]
    grid: tuple[int, int, int]  # of patches
    spans: list[tuple[int, int]]  # start in the prompt, and length

    @property
    def num_rows(self) -> int:
        return sum(length for _, length in self.spans)

    @property
    def medium(self) -> Medium:
        pixels = self.pixels.numpy().tobytes()
        digest = hashlib.sha256(repr(self.pixels.shape).encode() + pixels).digest()
        spans = column(number for span in self.spans for number in span)
        frames, height, width, _ = self.pixels.shape
        return Medium(self.kind, digest, pixels, (frames, height, width), spans, math.prod(self.grid))

    def encode(self, entry: int, first: int, count: int, work: int) -> Encode:
        """So many parts of the work on it, which are `work` in all."""
        if first:
            return Encode(entry, first, count)
        frames, height, width, _ = self.pixels.shape
        pixels = self.pixels.numpy().tobytes()
        return Encode(entry, 0, count, self.kind, pixels, (frames, height, width), self.num_rows, work)


@dataclass
class Scene:
    """A prompt that is made piece by piece."""

    family: str
    patch: int = 4
    tokens: list[int] = field(default_factory=list)
    media: list[Picture] = field(default_factory=list)

    def text(self, *tokens: int) -> "Scene":
        self.tokens += tokens
        return self

    def picture(self, down: int, across: int, seed: int = 0) -> "Scene":
        """Of so many patches."""
        self._add("image", 1, (1, down, across), IMAGE, seed)
        return self

    def video(self, frames: int, down: int, across: int, seed: int = 0) -> "Scene":
        self._add("video", frames, (-(-frames // 2), down, across), VIDEO, seed)
        return self

    def _add(self, kind: MediumKind, frames: int, grid: tuple[int, int, int], token: int, seed: int) -> None:
        pixels = self._pixels(frames, grid, seed)
        rows, spans = grid[1] * grid[2] // 4, []
        # Some models have a video's frames apart, each behind its time.
        runs = grid[0] if kind == "video" and self.family.startswith("Qwen3") else 1
        for run in range(runs):
            self.tokens += [20 + run] * (runs > 1)
            self.tokens.append(START)
            length = rows * grid[0] // runs
            spans.append((len(self.tokens), length))
            self.tokens += [token] * length + [END]
        self.media.append(Picture(kind, pixels, grid, spans))

    def _pixels(self, frames: int, grid: tuple[int, int, int], seed: int) -> Tensor:
        size = (frames, grid[1] * self.patch, grid[2] * self.patch, 3)
        return torch.randint(0, 256, size, dtype=torch.uint8, generator=torch.Generator().manual_seed(seed))

    def prompt(self, request_id: int, reference: Any, **params: Any) -> Prompt:
        """For an engine."""
        made = prompt(request_id, self.tokens, **params)
        made.media, made.positions = [each.medium for each in self.media], self.positions(reference)
        return made

    def given(self, mean: Sequence[float], deviation: Sequence[float]) -> dict[str, Tensor]:
        """As transformers' models want media."""
        found: dict[str, Tensor] = {}
        for kind, name in (("image", "pixel_values"), ("video", "pixel_values_videos")):
            if own := [each for each in self.media if each.kind == kind]:
                found[name] = torch.cat([self.patches(each, mean, deviation) for each in own])
                found[f"{kind}_grid_thw"] = torch.tensor([each.grid for each in own])
        return found

    def inputs(self, colours: Any, num_tokens: int) -> dict[str, Tensor]:
        """Inputs of transformers' model, other than the ids, for so many tokens that begin with this prompt."""
        if not self.media:
            return {}
        return self.given(colours.mean, colours.deviation) | {"mm_token_type_ids": self.types(num_tokens)}

    def encoded(self, reference: Any, medium: Picture, colours: Any) -> Tensor:
        """The rows that transformers' encoder makes of a medium."""
        pixels, grid = type(self)(self.family, media=[medium]).given(colours.mean, colours.deviation).values()
        found = reference.model.visual(pixels, grid)
        return torch.cat((found.pooler_output, *(getattr(found, "deepstack_features", None) or ())), 1)

    def types(self, num_tokens: int) -> Tensor:
        """[1, tokens]: which of them are of pictures (1) and videos (2)."""
        kinds = {IMAGE: 1, VIDEO: 2}
        of_prompt = [kinds.get(token, 0) for token in self.tokens]
        return torch.tensor([of_prompt + [0] * (num_tokens - len(of_prompt))])

    def positions(self, reference: Any) -> bytes:
        """int32 [3, prompt], as transformers has them."""
        if not self.media:
            return b""
        grids = {name: grid for name, grid in self.given((0,) * 3, (1,) * 3).items() if name.endswith("thw")}
        found, _ = reference.model.get_rope_index(torch.tensor([self.tokens]), self.types(len(self.tokens)), **grids)
        return column(found[:, 0].flatten().tolist())

    def patches(self, picture: Picture, mean: Sequence[float], deviation: Sequence[float]) -> Tensor:
        """As transformers' processors cut pixels."""
        pixels = (picture.pixels.float() / 255 - torch.tensor(mean)) / torch.tensor(deviation)
        if len(pixels) % 2:
            pixels = torch.cat((pixels, pixels[-1:]))
        times, down, across = picture.grid
        cut = pixels.view(times, 2, down // 2, 2, self.patch, across // 2, 2, self.patch, 3)
        return cut.permute(0, 2, 5, 3, 6, 8, 1, 4, 7).reshape(times * down * across, -1)
