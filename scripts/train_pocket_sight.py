"""Trains pocket-sight, the bundled model that sees, from nothing: python scripts/train_pocket_sight.py [--resume].

Every picture that it learns from is drawn here, from one seed. Progress (loss, pace, accuracy by kind, in training and
held-out) is printed as it goes; `--resume` goes on from the last checkpoint. `scripts/measure_pocket_sight.py` measures
the result.
"""

import argparse
import os
from pathlib import Path

# Read when torch is imported. The process that draws needs the processor while this one waits.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

import torch
from pocket_sight.export import export, take
from pocket_sight.model import new_model
from pocket_sight.tokens import sight_tokenizer
from pocket_sight.trainer import Training

ROOT = Path(__file__).resolve().parent.parent
STEPS, SEEING_STEPS = 12_000, 4_000


def main() -> None:
    arguments = _arguments()
    torch.set_num_threads(arguments.threads)
    torch.manual_seed(arguments.seed)
    checkpoint = arguments.checkpoint
    checkpoint.parent.mkdir(parents=True, exist_ok=True)
    tokenizer = sight_tokenizer()
    model = new_model(tokenizer)
    if arguments.weights:
        take(model, arguments.weights)
    size = sum(parameter.numel() for parameter in model.parameters())
    seeing = sum(parameter.numel() for parameter in model.model.visual.parameters())
    print(f"pocket-sight: {size / 1e6:.2f} M parameters, {seeing / 1e6:.2f} M of them see", flush=True)

    def write() -> None:
        export(model.state_dict(), tokenizer, arguments.out)

    training = Training(model, tokenizer, arguments.seed, arguments.steps, arguments.seeing_steps, write)
    if arguments.resume:
        training.resume(torch.load(checkpoint, weights_only=True))
        print(f"resumed at step {training.done:,}", flush=True)
    training.run(checkpoint)
    print(f"written to {arguments.out}")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Train pocket-sight, the bundled model that sees, from nothing.")
    parser.add_argument("--out", type=Path, default=ROOT / "frontend" / "pocket_sight", help="folder of trained files")
    parser.add_argument("--resume", action="store_true", help="go on from the checkpoint")
    default = Path.home() / ".cache" / "penstock" / "pocket-sight-training.pt"
    parser.add_argument("--checkpoint", type=Path, default=default, help="file of the checkpoint")
    parser.add_argument("--weights", type=Path, help="folder of trained files to begin from, instead of from nothing")
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--seeing-steps", type=int, default=SEEING_STEPS, help="of them those without questions")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=2)
    return parser.parse_args()


if __name__ == "__main__":
    main()
