"""Trees of a GGUF file's blocks, of a mixture and with an adapter answer on a card as on a CPU, on small random models.

In float32, so that greedy tokens are the same; the blocks are rounded to numbers of the same bits on both.
"""

from pathlib import Path
from typing import Any

import pytest
from builders.adapters import adapter
from builders.cpu_answers import on_cpu
from builders.on_card import SMALL, generated
from builders.tiny_model import tiny_model

from penstock import LLM, SamplingParams

PROMPTS = [[(7 * place + length) % 300 + 10 for place in range(length)] for length in (3, 20, 70)]
_WIDE = {"hidden_size": 256, "intermediate_size": 512, "head_dim": 64}  # whole blocks


def in_blocks(folder: Path) -> dict[str, Any]:
    pytest.importorskip("gguf")
    from builders.gguf_models import as_gguf

    checkpoint = tiny_model(folder / "checkpoint", "qwen3", **_WIDE)
    return {"model": as_gguf(checkpoint, folder / "blocks", lambda name: "Q8_0")}


def mixture(folder: Path) -> dict[str, Any]:
    return {"model": tiny_model(folder / "model", "qwen3_moe")}


def with_an_adapter(folder: Path) -> dict[str, Any]:
    model = tiny_model(folder / "model", "llama")
    return {"model": model, "adapter": adapter(folder / "adapter", model, rank=5)}


@pytest.mark.parametrize("made", [in_blocks, mixture, with_an_adapter], ids=lambda made: made.__name__)
def test_small_trees_of_every_kind_answer_as_on_the_cpu(device, tmp_path, made):
    kept = made(tmp_path)

    def told(where: str) -> dict[str, Any]:
        options = {"enable_lora": True, "max_lora_rank": 8} if "adapter" in kept else {}
        params = SamplingParams(temperature=0, max_tokens=8, ignore_eos=True)
        with LLM(kept["model"], device=where, dtype="float32", **SMALL, **options) as llm:
            if "adapter" in kept:
                llm.load_lora("own", kept["adapter"])
                params.lora_name = "own"
            return {"tokens": [list(output.outputs.token_ids) for output in generated(llm, PROMPTS, params)]}

    assert told(device) == on_cpu(f"smoke-{made.__name__}", lambda: told("cpu"))
