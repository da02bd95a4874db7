"""A mixture that has learnt text: its answers are right because each token meets the experts that learnt for it."""

from pathlib import Path
from typing import Any

import pytest
import torch
from builders.hand_driven import HandDriven
from builders.trained_mixture import FOLDER, LONGEST, changed, ended, questions, share_right
from torch import Tensor

from penstock.worker.models.load import load_model

ASKED = questions(per_kind=24)


def answers(folder: Path, **options: Any) -> list[list[int]]:
    """In one crowd, prompts in chunks."""
    driven = HandDriven(load_model(folder, **options))
    rows = [driven.add(question.prompt) for question in ASKED]
    driven.greedy(rows, LONGEST, budget=64)
    return [ended(driven.histories[row][len(question.prompt) :]) for row, question in zip(rows, ASKED, strict=True)]


@pytest.fixture(scope="module")
def right_ones() -> list[list[int]]:
    return answers(FOLDER, dtype="float32")


def test_it_answers_questions_that_it_was_not_shown(right_ones):
    assert share_right(ASKED, right_ones) > 0.85


def test_its_answers_are_those_of_transformers(right_ones):
    from transformers import AutoModelForCausalLM

    reference = AutoModelForCausalLM.from_pretrained(FOLDER, dtype=torch.float32).eval()
    for question, tokens in zip(ASKED, right_ones, strict=True):
        with torch.inference_mode():
            logits = reference(torch.tensor([question.prompt + tokens])).logits[0, len(question.prompt) - 1 : -1]
        assert logits.argmax(-1).tolist() == tokens, question


@pytest.mark.parametrize(("quantization", "share"), [("int8", 0.85), ("int4", 0.8)])
def test_it_answers_with_quantized_experts(quantization, share):
    assert share_right(ASKED, answers(FOLDER, quantization=quantization)) > share


def exchanged(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Each expert has its neighbour's weights."""
    experts = [name for name in tensors if ".experts." in name]
    number = {name: int(name.split(".experts.")[1].split(".")[0]) for name in experts}
    count = max(number.values()) + 1
    return {
        name.replace(f".experts.{number[name]}.", f".experts.{(number[name] + 1) % count}."): tensors[name]
        for name in experts
    }


def routed_alike(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Every token meets the same experts, equally."""
    return {name: torch.zeros_like(tensor) for name, tensor in tensors.items() if name.endswith("mlp.gate.weight")}


def exchanged_with_their_routes(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    routers = {name: tensor.roll(1, 0) for name, tensor in tensors.items() if name.endswith("mlp.gate.weight")}
    return exchanged(tensors) | routers


@pytest.mark.parametrize("change", [exchanged, routed_alike])
def test_its_answers_are_wrong_where_tokens_meet_other_experts(tmp_path, change):
    assert share_right(ASKED, answers(changed(tmp_path / "model", change), dtype="float32")) < 0.2


def test_its_answers_stay_where_experts_change_places_together_with_their_routes(tmp_path, right_ones):
    folder = changed(tmp_path / "model", exchanged_with_their_routes)
    assert answers(folder, dtype="float32") == right_ones
