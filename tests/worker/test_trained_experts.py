"""A mixture that has learnt text: its answers are right because each token meets the experts that learnt for it."""

from pathlib import Path
from typing import Any

import torch
from builders.cases import for_each
from builders.hand_driven import HandDriven
from builders.trained_mixture import FOLDER, LONGEST, changed, ended, questions, share_right
from torch import Tensor

from penstock.worker.start.load import load_model

ASKED = questions(per_kind=24)


def answers(folder: Path, **options: Any) -> list[list[int]]:
    """In one crowd, prompts in chunks."""
    driven = HandDriven(load_model(folder, **options))
    rows = [driven.add(question.prompt) for question in ASKED]
    driven.greedy(rows, LONGEST, budget=64)
    return [ended(driven.histories[row][len(question.prompt) :]) for row, question in zip(rows, ASKED, strict=True)]


def test_it_answers_questions_that_it_was_not_shown_as_transformers_does():
    from transformers import AutoModelForCausalLM

    reference = AutoModelForCausalLM.from_pretrained(FOLDER, dtype=torch.float32).eval()
    right = answers(FOLDER, dtype="float32")
    assert share_right(ASKED, right) > 0.85
    for question, tokens in zip(ASKED, right, strict=True):
        with torch.inference_mode():
            logits = reference(torch.tensor([question.prompt + tokens])).logits[0, len(question.prompt) - 1 : -1]
        assert logits.argmax(-1).tolist() == tokens, question


@for_each("quantization, share", [("int8", 0.85), ("int4", 0.8)])
def test_it_answers_with_quantized_experts(quantization, share):
    assert share_right(ASKED, answers(FOLDER, quantization=quantization)) > share


def routed_alike(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Every token meets the same experts, equally."""
    return {name: torch.zeros_like(tensor) for name, tensor in tensors.items() if name.endswith("mlp.gate.weight")}


def test_its_answers_are_wrong_where_tokens_meet_other_experts(tmp_path):
    assert share_right(ASKED, answers(changed(tmp_path / "model", routed_alike), dtype="float32")) < 0.2
