"""A card says of pictures what a CPU says: encoders, positions in three, pictures that see themselves, experts by kind.

In float32, on random models of a few layers with small tokenizers.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from builders.cpu_answers import on_cpu
from builders.on_card import SMALL, generated
from builders.seeing_model import answering_model, noise
from builders.seeing_models import ERNIE, seeing_model
from builders.tiny_sight import ERNIE as ERNIES_TOKENS
from builders.tiny_sight import seeing_folder
from tokenizers import Tokenizer

from penstock import LLM, SamplingParams

_SIDE = 24  # of Gemma 3's squares, in pixels: of as many patches as `seeing_models` has


def gemma_folder(folder: Path) -> Path:
    sizes = {"image_seq_length": 9, "size": {"height": _SIDE, "width": _SIDE}}
    seeing_folder(folder, "gemma3", preprocessor_config=sizes, processor_config={"image_seq_length": 9})
    vocab_size, [image] = _ids(folder, "<image_soft_token>")
    seeing_model(folder, "Gemma3", vocab_size=vocab_size, tokens={"image_token_id": image}, image_size=_SIDE)
    return folder


def ernie_folder(folder: Path) -> Path:
    """Videos have the placeholders of pictures, as in the published models."""
    sizes = {"patch_size": 4, "merge_size": 2, "min_pixels": 64, "max_pixels": 4096}
    seeing_folder(folder, "ernie4_5_moe_vl", preprocessor_config=sizes)
    (folder / "tokenizer_config.json").write_text(json.dumps({"video_token": ERNIES_TOKENS[0]}))
    vocab_size, (image, start, end, video_start, video_end) = _ids(folder, *ERNIES_TOKENS)
    tokens = dict(image_token_id=image, image_start_token_id=start, image_end_token_id=end, video_token_id=image)
    tokens |= dict(video_start_token_id=video_start, video_end_token_id=video_end)
    seeing_model(folder, ERNIE, vocab_size=vocab_size, tokens=tokens)
    return folder


def _ids(folder: Path, *tokens: str) -> tuple[int, list[int]]:
    """How many tokens there are, and the numbers of these."""
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    return tokenizer.get_vocab_size(), [tokenizer.token_to_id(token) for token in tokens]


# By family: what writes a folder, and how a prompt marks a picture.
FOLDERS: dict[str, tuple[Callable[[Path], Path], str]] = {
    "Gemma3": (gemma_folder, "<start_of_image>"),
    "Ernie": (ernie_folder, "<|IMAGE_START|><|image@placeholder|><|IMAGE_END|>"),
    "Qwen3VL": (answering_model, "<|vision_start|><|image_pad|><|vision_end|>"),
}


def questions(family: str) -> list[dict[str, Any]]:
    """About one picture, about two, of which one is that again, and about none."""
    _, mark = FOLDERS[family]
    first, second = noise(1, (32, 24)), noise(2, (24, 24))
    return [
        {"prompt": f"hello {mark} world", "multimodal_data": {"image": [first]}},
        {"prompt": f"{mark}{mark} fox", "multimodal_data": {"image": [second, first]}},
        {"prompt": "the quick brown fox jumps over the lazy dog"},
    ]


@pytest.mark.parametrize("family", FOLDERS)
def test_questions_about_pictures_get_the_cpus_answers(device: str, tmp_path: Path, family: str):
    write, _ = FOLDERS[family]
    folder = write(tmp_path / "model")
    params = SamplingParams(temperature=0, max_tokens=8, ignore_eos=True)

    def told(where: str) -> dict[str, Any]:
        with LLM(folder, device=where, dtype="float32", **{**SMALL, "max_num_batched_tokens": 40}) as llm:
            return {"tokens": [list(each.outputs.token_ids) for each in generated(llm, questions(family), params)]}

    assert told(device) == on_cpu(f"pictures-{family}", lambda: told("cpu"))
