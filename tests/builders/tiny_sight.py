"""Folders of models that see, without weights: configs as published, and small tokenizers with each family's marks."""

import importlib
import importlib.util
import io
import json
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy
from PIL import Image
from tokenizers import AddedToken, Tokenizer

from penstock.frontend.media.families.frames import Video

from .tokenizer_kinds import byte_level

QWEN = ("<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>")

# What stands in the folder of each kind of model, less what nobody here reads.
SEEING: dict[str, dict[str, Any]] = {
    "qwen2_5_vl": {
        "config.json": {
            "model_type": "qwen2_5_vl",
            "vision_config": {"patch_size": 14, "spatial_merge_size": 2, "tokens_per_second": 2},
        },
        "preprocessor_config.json": {
            "min_pixels": 3136, "max_pixels": 12845056, "patch_size": 14, "temporal_patch_size": 2, "merge_size": 2,
            "image_processor_type": "Qwen2VLImageProcessor",
        },
    },
    "qwen3_vl": {
        "config.json": {"model_type": "qwen3_vl", "vision_config": {"patch_size": 16, "spatial_merge_size": 2}},
        "preprocessor_config.json": {
            "size": {"longest_edge": 16777216, "shortest_edge": 65536}, "patch_size": 16, "temporal_patch_size": 2,
            "merge_size": 2,
        },
        "video_preprocessor_config.json": {
            "size": {"longest_edge": 25165824, "shortest_edge": 4096}, "patch_size": 16, "temporal_patch_size": 2,
            "merge_size": 2,
        },
    },
    "ernie4_5_moe_vl": {
        "config.json": {
            "model_type": "ernie4_5_moe_vl", "im_patch_id": 100295,
            "vision_config": {"patch_size": 14, "spatial_merge_size": 2},
        },
        "preprocessor_config.json": {
            "min_pixels": 3136, "max_pixels": 4816896, "patch_size": 14, "merge_size": 2,
            "image_processor_type": "AdaptiveImageProcessor",
        },
    },
    "gemma3": {
        "config.json": {
            "model_type": "gemma3", "mm_tokens_per_image": 256, "vision_config": {"image_size": 896, "patch_size": 14},
        },
        "preprocessor_config.json": {
            "do_convert_rgb": None, "do_pan_and_scan": None, "image_seq_length": 256, "resample": 2,
            "size": {"height": 896, "width": 896},
        },
        "processor_config.json": {"image_seq_length": 256, "processor_class": "Gemma3Processor"},
    },
    "smolvlm": {
        "config.json": {
            "model_type": "smolvlm", "scale_factor": 4, "vision_config": {"image_size": 512, "patch_size": 16},
        },
        "preprocessor_config.json": {
            "do_image_splitting": True, "max_image_size": {"longest_edge": 512}, "resample": 1,
            "size": {"longest_edge": 2048},
        },
        "processor_config.json": {"image_seq_len": 64, "processor_class": "SmolVLMProcessor"},
    },
}  # fmt: skip
ERNIE = ("<|IMAGE_PLACEHOLDER|>", "<|IMAGE_START|>", "<|IMAGE_END|>", "<|VIDEO_START|>", "<|VIDEO_END|>")
GEMMA = ("<start_of_image>", "<end_of_image>", "<image_soft_token>")
SMOL = ("<fake_token_around_image>", "<global-img>", "<image>", "<end_of_utterance>", "<row_1_col_1>", "<row_2_col_3>")
MARKS = {"qwen2_5_vl": QWEN, "qwen3_vl": QWEN, "ernie4_5_moe_vl": ERNIE, "gemma3": GEMMA, "smolvlm": SMOL}


def seeing_folder(folder: Path, kind: str, **changed: dict[str, Any]) -> Path:
    """`changed` holds the content of files by their names without `.json`, in place of what is published."""
    folder.mkdir(parents=True, exist_ok=True)
    files = SEEING[kind] | {f"{name}.json": content for name, content in changed.items()}
    for name, content in files.items():
        (folder / name).write_text(json.dumps(content), encoding="utf-8")
    marked_tokenizer(kind).save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text("{}", encoding="utf-8")
    return folder


def marked_tokenizer(kind: str) -> Tokenizer:
    tokenizer = byte_level()
    tokenizer.add_special_tokens([AddedToken(mark, special=True, normalized=False) for mark in MARKS[kind]])
    return tokenizer


def noise(height: int, width: int, seed: int = 0) -> Image.Image:
    """Noise over a slope: what resizing gets wrong shows in it."""
    random = numpy.random.default_rng((seed, height, width))
    slope = numpy.linspace(0, 255, width)[None, :, None] * numpy.ones((height, 1, 3))
    levels = slope / 2 + random.integers(0, 128, (height, width, 3))
    return Image.fromarray(levels.astype(numpy.uint8))


def file_of(image: Image.Image, kind: str = "PNG", **options: Any) -> bytes:
    content = io.BytesIO()
    image.save(content, kind, **options)
    return content.getvalue()


class Clip(Video):
    """A video in which a picture and its mirror image alternate."""

    def __init__(self, num_frames: int, fps: float = 25.0, height: int = 120, width: int = 160):
        self.num_frames, self.fps, self.height, self.width = num_frames, fps, height, width

    def frames(self, indices: Iterable[int]) -> Iterator[tuple[int, Image.Image]]:
        picture = noise(self.height, self.width)
        pictures = [picture, picture.transpose(Image.Transpose.FLIP_LEFT_RIGHT)]
        return ((index, pictures[index % 2]) for index in indices)


def without_torchvision(name: str) -> ModuleType:
    """A module of transformers that imports torchvision, for its rules, which need none of it."""
    stand_ins = []
    importlib.import_module(name.partition(".")[0])  # which asks whether torchvision is there
    if importlib.util.find_spec("torchvision") is None:
        for part in ("", ".transforms", ".transforms.functional", ".transforms.v2", ".transforms.v2.functional"):
            module = ModuleType("torchvision" + part)
            module.__path__ = []
            # Of what is imported by name, only the two ways between a tensor and Pillow: here both are arrays.
            module.to_pil_image, module.pil_to_tensor = Image.fromarray, numpy.asarray
            sys.modules[module.__name__] = module
            stand_ins.append(module.__name__)
        sys.modules["torchvision.transforms.v2"].functional = sys.modules["torchvision.transforms.v2.functional"]
    try:
        return importlib.import_module(name)
    finally:
        for each in stand_ins:
            del sys.modules[each]
