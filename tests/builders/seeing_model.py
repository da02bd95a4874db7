"""A folder of a model that sees, for whole trees: without weights for the worker that stands in (`load_format`)."""

import base64
import io
import json
import random
import shutil
from pathlib import Path
from typing import Any

from builders.seeing_models import seeing_model as random_model
from PIL import Image

import penstock

# A picture of SIZE has so many rows.
SIZE, NUM_ROWS = (128, 96), 12
_MARKS = ("<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>")
_TEMPLATE = """\
{%- for message in messages %}
    {{- '<|im_start|>' + message.role + '\\n' }}
    {%- if message.content is string %}
        {{- message.content }}
    {%- else %}
        {%- for part in message.content %}
            {%- if part.type == 'image' or 'image' in part or 'image_url' in part %}
                {{- '<|vision_start|><|image_pad|><|vision_end|>' }}
            {%- elif part.type == 'video' or 'video' in part %}
                {{- '<|vision_start|><|video_pad|><|vision_end|>' }}
            {%- else %}
                {{- part.text }}
            {%- endif %}
        {%- endfor %}
    {%- endif %}
    {{- '<|im_end|>\\n' }}
{%- endfor %}
{{- '<|im_start|>assistant\\n' if add_generation_prompt }}
"""


def seeing_model(folder: Path) -> Path:
    pocket = Path(penstock.__file__).parent / "frontend" / "pocket"
    folder.mkdir(parents=True)
    for name in ("tokenizer_config.json", "generation_config.json"):
        shutil.copy(pocket / name, folder)
    tokenizer = json.loads((pocket / "tokenizer.json").read_text())
    first = 1 + max(*tokenizer["model"]["vocab"].values(), *(token["id"] for token in tokenizer["added_tokens"]))
    usual = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    tokenizer["added_tokens"] += [{"id": first + place, "content": mark, **usual} for place, mark in enumerate(_MARKS)]
    vision = {"patch_size": 16, "spatial_merge_size": 2, "temporal_patch_size": 2}
    text = {"vocab_size": first + 64, "max_position_embeddings": 1024}
    written = {
        "tokenizer.json": tokenizer,
        "config.json": {"model_type": "qwen3_vl", "vision_config": vision, "text_config": text},
        "preprocessor_config.json": {"size": {"shortest_edge": 32 * 32, "longest_edge": 512 * 512}, "patch_size": 16},
    }
    for name, value in written.items():
        (folder / name).write_text(json.dumps(value))
    (folder / "chat_template.jinja").write_text(_TEMPLATE)
    return folder


def answering_model(folder: Path, family: str = "Qwen3VL", **vision: Any) -> Path:
    """The same with random weights of a family of `seeing_models.py`, which real workers compute; `vision` as there."""
    seeing_model(folder)
    config = json.loads((folder / "config.json").read_text())
    first = config["text_config"]["vocab_size"] - 64
    names = ("vision_start_token_id", "vision_end_token_id", "image_token_id", "video_token_id")
    tokens = {name: first + place for place, name in enumerate(names)}
    vision["patch_size"] = config["vision_config"]["patch_size"]
    random_model(folder, family, vocab_size=first + 64, tokens=tokens, **vision)
    return folder


def noise(seed: int, size: tuple[int, int] = SIZE) -> Image.Image:
    """A picture that random weights tell from others."""
    return Image.frombytes("RGB", size, random.Random(seed).randbytes(3 * size[0] * size[1]))


def animation(*frames: Image.Image, rate: int = 10) -> bytes:
    """Encode a GIF."""
    file = io.BytesIO()
    frames[0].save(file, "GIF", save_all=True, append_images=frames[1:], duration=1000 // rate)
    return file.getvalue()


def picture(shade: int = 0, size: tuple[int, int] = SIZE) -> Image.Image:
    return Image.new("RGB", size, (shade, 100, 200))


def as_url(image: Image.Image) -> str:
    file = io.BytesIO()
    image.save(file, "PNG")
    return data_url("image/png", file.getvalue())


def data_url(media_type: str, file: bytes) -> str:
    return f"data:{media_type};base64," + base64.b64encode(file).decode()


def about(*parts: Any, text: str = "What is it?") -> list[dict[str, Any]]:
    return [{"role": "user", "content": [*parts, {"type": "text", "text": text}]}]
