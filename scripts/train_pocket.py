"""Trains pocket, the bundled model: python scripts/train_pocket.py [--out DIR] [--resume] [--start DIR].

Everything it learns from is generated here, from one seed. Progress (loss, pace, held-out accuracy by kind) is printed
as it goes; `--resume` goes on from the last checkpoint, `--start` begins with exported weights instead of from nothing.
`scripts/measure_pocket.py` measures the result through the package itself.
"""

import argparse
import os
from pathlib import Path

# Threads that spin while they wait starve one another on a machine that others use too. Read when torch is imported.
os.environ.setdefault("OMP_WAIT_POLICY", "active")

import torch
from pocket.export import export, imported
from pocket.model import Decoder, Shape
from pocket.tokens import learnt_tokenizer
from pocket.trainer import Training
from tokenizers import Tokenizer

ROOT = Path(__file__).resolve().parent.parent
STEPS = 19_000


def main() -> None:
    arguments = _arguments()
    torch.set_num_threads(arguments.threads)
    torch.manual_seed(arguments.seed)
    arguments.out.mkdir(parents=True, exist_ok=True)
    checkpoint = arguments.checkpoint
    checkpoint.parent.mkdir(parents=True, exist_ok=True)
    state = torch.load(checkpoint, weights_only=True) if arguments.resume else None
    # What is gone on with keeps its tokens, whatever has become of the text that they were learnt from.
    tokenizer = (
        Tokenizer.from_str(state["tokenizer"])
        if state
        else Tokenizer.from_file(str(arguments.start / "tokenizer.json"))
        if arguments.start
        else learnt_tokenizer(arguments.seed)
    )
    model = Decoder(Shape(tokenizer.get_vocab_size()))
    size = sum(parameter.numel() for parameter in model.parameters())
    tokens = tokenizer.get_vocab_size()
    print(f"pocket: {size / 1e6:.2f} M parameters, {tokens:,} tokens, on {arguments.device}", flush=True)
    if arguments.start:
        imported(model, arguments.start)
    if arguments.frozen:
        for part in (model.embed_tokens, *model.layers[: arguments.frozen]):
            part.requires_grad_(False)
    training = Training(
        model,
        tokenizer,
        arguments.seed,
        arguments.steps,
        arguments.device,
        tokens=arguments.tokens,
        rate=arguments.rate,
    )
    if state:
        training.resume(state)
        print(f"resumed at step {training.done:,}", flush=True)
    training.run(checkpoint)
    export(model, tokenizer, arguments.out)
    print(f"written to {arguments.out}")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Train pocket, the bundled model, from nothing.")
    parser.add_argument("--out", type=Path, default=ROOT / "frontend" / "pocket", help="folder of the trained files")
    parser.add_argument("--resume", action="store_true", help="go on from the checkpoint")
    default = Path.home() / ".cache" / "penstock" / "pocket-training.pt"
    parser.add_argument("--checkpoint", type=Path, default=default, help="file of the checkpoint")
    parser.add_argument("--start", type=Path, help="folder of trained files whose weights and tokens to begin with")
    parser.add_argument("--frozen", type=int, default=0, help="how many of the first layers stay as they are")
    parser.add_argument("--rate", type=float, default=1.0, help="share of the rates that a fresh model learns at")
    parser.add_argument("--tokens", type=int, help="tokens of a step")
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=2, help="threads on a CPU")
    device = "cuda" if torch.cuda.is_available() else "cpu"
    parser.add_argument("--device", default=device, choices=["cpu", "cuda"])
    return parser.parse_args()


if __name__ == "__main__":
    main()
