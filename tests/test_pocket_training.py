"""A training that is resumed goes on as if nothing had happened."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from builders.bundled_model import FOLDER
from pocket import batches, trainer
from pocket.model import Decoder, Shape
from pocket.trainer import Training, rate_share
from tokenizers import Tokenizer

TOKENIZER = Tokenizer.from_file(str(FOLDER / "tokenizer.json"))


def small_training(steps: int = 2) -> Training:
    torch.manual_seed(0)
    shape = Shape(TOKENIZER.get_vocab_size(), hidden_size=32, intermediate_size=32, num_hidden_layers=1, head_dim=8)
    return Training(Decoder(shape), TOKENIZER, seed=0, steps=steps, device="cpu")


@pytest.fixture(autouse=True)
def uncompiled() -> Iterator[None]:
    """To compile takes longer than all that is computed here."""
    with torch.compiler.set_stance("force_eager"):
        yield


@pytest.fixture(autouse=True)
def unmeasured(monkeypatch):
    monkeypatch.setattr(trainer, "MEASURE_EVERY", 1)
    monkeypatch.setattr(batches, "TOKENS_PER_STEP", 2048)
    monkeypatch.setattr(Training, "held_out_accuracy", lambda _: {"nothing": 0.0})


def test_a_resumed_run_ends_with_the_weights_of_an_unbroken_one(tmp_path):
    whole, first, second = small_training(), small_training(), small_training()
    whole.run(tmp_path / "whole.pt")
    save = first._save

    def break_off(path: Path) -> None:
        save(path)
        raise KeyboardInterrupt

    first._save = break_off
    with pytest.raises(KeyboardInterrupt):
        first.run(tmp_path / "first.pt")
    state = torch.load(tmp_path / "first.pt", weights_only=True)
    assert state["done"] == 1
    second.resume(state)
    second.run(tmp_path / "second.pt")
    for name, tensor in whole.model.state_dict().items():
        assert torch.equal(tensor, second.model.state_dict()[name]), name


def test_a_checkpoint_holds_the_tokens_that_it_was_trained_on(tmp_path):
    training = small_training(steps=1)
    training.run(tmp_path / "checkpoint.pt")
    state = torch.load(tmp_path / "checkpoint.pt", weights_only=True)
    assert Tokenizer.from_str(state["tokenizer"]).get_vocab() == TOKENIZER.get_vocab()


def test_the_rate_ends_at_nothing():
    assert rate_share(0, 1000) < 0.02
    assert rate_share(300, 1000) == 1.0
    assert 0 < rate_share(999, 1000) < 0.01
