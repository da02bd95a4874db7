"""Pictures and videos for the models of `seeing_models.py`: a `Scene` is a prompt with its media as a plan has them."""

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from builders.runner_harness import prompt
from builders.seeing_models import END, ERNIE, IMAGE, SIDE, SQUARES, START, VIDEO, VIDEO_END, VIDEO_START
from torch import Tensor

from penstock.protocol.media import Encode, Medium, MediumKind
from penstock.protocol.messages import Prompt
from penstock.protocol.wire import column


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

    def levels(self, mean: Sequence[float], deviation: Sequence[float]) -> Tensor:
        return (self.pixels.float() / 255 - torch.tensor(mean)) / torch.tensor(deviation)

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
        """Which of them are of pictures (1) and videos (2)."""
        return self._kinds({IMAGE: 1, VIDEO: 2}, num_tokens)

    def _kinds(self, kinds: dict[int, int], num_tokens: int) -> Tensor:
        """[1, tokens]"""
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
        pixels = picture.levels(mean, deviation)
        if len(pixels) % 2:
            pixels = torch.cat((pixels, pixels[-1:]))
        times, down, across = picture.grid
        cut = pixels.view(times, 2, down // 2, 2, self.patch, across // 2, 2, self.patch, 3)
        return cut.permute(0, 2, 5, 3, 6, 8, 1, 4, 7).reshape(times * down * across, -1)


@dataclass
class Squares(Scene):
    """A picture is one square or several, each with a span of its own, as crops and tiles have them."""

    @property
    def rows(self) -> int:
        """Number of rows that a square becomes."""
        return {"Gemma3": 9, "Idefics3": 4, "SmolVLM": 9}[self.family]

    def picture(self, squares: int = 1, seed: int = 0) -> "Squares":
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
        return {"pixel_values": pixels, "token_type_ids": self.types(num_tokens)}

    def encoded(self, reference: Any, medium: Picture, colours: Any) -> Tensor:
        is_gemma, pixels = self.family == "Gemma3", plain(medium, colours)
        found = reference.model.get_image_features(pixels if is_gemma else pixels[None]).pooler_output
        return (found if is_gemma else torch.cat(found)).flatten(0, -2)


def plain(picture: Picture, colours: Any) -> Tensor:
    """[squares, 3, side, side]"""
    return picture.levels(colours.mean, colours.deviation).permute(0, 3, 1, 2)


class Ernies(Scene):
    def _add(self, kind: MediumKind, frames: int, grid: tuple[int, int, int], token: int, seed: int) -> None:
        pixels = self._pixels(frames, grid, seed)
        start, mark, end = (VIDEO_START, VIDEO, VIDEO_END) if kind == "video" else (START, IMAGE, END)
        self.tokens.append(start)
        length = -(-frames // 2) * grid[1] * grid[2] // 4
        spans = [(len(self.tokens), length)]
        self.tokens += [mark] * length + [end]
        self.media.append(Picture(kind, pixels, (frames, *grid[1:]), spans))

    def inputs(self, colours: Any, num_tokens: int) -> dict[str, Tensor]:
        if not self.media:
            return {}
        marks = range(IMAGE, VIDEO_END + 1)  # the experts of media take those around them too
        experts = self._kinds(dict.fromkeys(marks, 1), num_tokens)
        return super().inputs(colours, num_tokens) | {"moe_mm_token_type_ids": experts}

    def encoded(self, reference: Any, medium: Picture, colours: Any) -> Tensor:
        pixels, grid = Ernies("", media=[medium]).given(colours.mean, colours.deviation).values()
        named = reference.model.get_video_features if medium.kind == "video" else reference.model.get_image_features
        return torch.cat(named(pixels, grid).pooler_output)

    def patches(self, picture: Picture, mean: Any, deviation: Any) -> Tensor:
        """As transformers' processors cut pixels: each frame by itself."""
        pixels = picture.levels(mean, deviation)
        frames, down, across = picture.grid
        cut = pixels.view(frames, down // 2, 2, self.patch, across // 2, 2, self.patch, 3)
        return cut.permute(0, 1, 4, 2, 5, 7, 3, 6).reshape(frames * down * across, -1)


def scene(family: str) -> Any:
    """An empty one, as the family wants it."""
    return (Ernies if family == ERNIE else Squares if family in SQUARES else Scene)(family)
