"""What pocket's trainer computes: mixtures as transformers do, and a resumed training as if nothing had happened."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from builders.bundled_model import FOLDER
from pocket import batches, trainer
from pocket.experts import Experts, SparseShape
from pocket.model import Decoder, Shape
from pocket.trainer import Training
from tokenizers import Tokenizer

TOKENIZER = Tokenizer.from_file(str(FOLDER / "tokenizer.json"))


def small_training(steps: int = 2) -> Training:
    torch.manual_seed(0)
    shape = Shape(TOKENIZER.get_vocab_size(), hidden_size=32, intermediate_size=32, num_hidden_layers=1, head_dim=8)
    return Training(Decoder(shape), TOKENIZER, seed=0, steps=steps, device="cpu")


@pytest.fixture(autouse=True)
def uncompiled_and_unmeasured(monkeypatch) -> Iterator[None]:
    """To compile takes longer than all that is computed here."""
    monkeypatch.setattr(trainer, "MEASURE_EVERY", 1)
    monkeypatch.setattr(batches, "TOKENS_PER_STEP", 2048)
    monkeypatch.setattr(Training, "held_out_accuracy", lambda _: {"nothing": 0.0})
    with torch.compiler.set_stance("force_eager"):
        yield


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


SHAPE = SparseShape(64, hidden_size=32, num_hidden_layers=2, head_dim=8, num_experts=6, moe_intermediate_size=24)


def test_a_sparse_layer_computes_what_transformers_does():
    torch.manual_seed(0)
    layer = Experts(SHAPE)
    from transformers import Qwen3MoeConfig
    from transformers.models.qwen3_moe.modeling_qwen3_moe import Qwen3MoeSparseMoeBlock

    config = Qwen3MoeConfig(**{key: value for key, value in SHAPE.config().items() if key != "architectures"})
    block = Qwen3MoeSparseMoeBlock(config)
    block.gate.weight.data = layer.gate.weight.data
    experts = list(layer.experts)
    block.experts.gate_up_proj.data = torch.stack(
        [torch.cat((expert.gate_proj.weight, expert.up_proj.weight)) for expert in experts]
    )
    block.experts.down_proj.data = torch.stack([expert.down_proj.weight for expert in experts])
    x = torch.randn(40, 32)
    with torch.no_grad():
        assert torch.allclose(layer(x), block(x[None])[0], atol=1e-5)
