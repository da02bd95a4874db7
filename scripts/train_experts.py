"""Trains the tiny mixture of experts that tests answer with: python scripts/train_experts.py [--out DIR] [--resume].

Qwen3-MoE's layout, 8 experts of which each token has 2, on some kinds of pocket's text; a few minutes on a CPU. Its
files stand in `tests/builders/trained_experts/`.
"""

import argparse
from pathlib import Path

import torch
from pocket.experts import EXPERTS_KINDS, SparseShape
from pocket.export import export
from pocket.kinds import Mixture
from pocket.model import Decoder
from pocket.tokens import learnt_tokenizer
from pocket.trainer import Training
from tokenizers import Tokenizer

OUT = Path(__file__).resolve().parent.parent / "tests" / "builders" / "trained_experts"
VOCABULARY = 1024
SIZES = {
    "hidden_size": 64,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "moe_intermediate_size": 64,
}


def main() -> None:
    arguments = _arguments()
    torch.set_num_threads(arguments.threads)
    torch.manual_seed(arguments.seed)
    arguments.checkpoint.parent.mkdir(parents=True, exist_ok=True)
    state = torch.load(arguments.checkpoint, weights_only=True) if arguments.resume else None
    mixture = Mixture(EXPERTS_KINDS, is_plain=True)
    tokenizer = (
        Tokenizer.from_str(state["tokenizer"])
        if state
        else learnt_tokenizer(arguments.seed, examples=10_000, vocabulary=VOCABULARY, mixture=mixture)
    )
    model = Decoder(SparseShape(tokenizer.get_vocab_size(), **SIZES))
    size = sum(parameter.numel() for parameter in model.parameters())
    print(f"{size / 1e6:.2f} M parameters, {tokenizer.get_vocab_size():,} tokens", flush=True)
    training = Training(model, tokenizer, arguments.seed, arguments.steps, "cpu", mixture)
    if state:
        training.resume(state)
    # To compile the layers takes longer than it would save.
    with torch.compiler.set_stance("force_eager"):
        training.run(arguments.checkpoint)
    export(model, tokenizer, arguments.out)
    print(f"written to {arguments.out}")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Train the tiny mixture of experts that tests answer with.")
    parser.add_argument("--out", type=Path, default=OUT, help="folder of the trained files")
    parser.add_argument("--resume", action="store_true", help="go on from the checkpoint")
    default = Path.home() / ".cache" / "penstock" / "experts-training.pt"
    parser.add_argument("--checkpoint", type=Path, default=default, help="file of the checkpoint")
    parser.add_argument("--steps", type=int, default=1_200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=2)
    return parser.parse_args()


if __name__ == "__main__":
    main()
