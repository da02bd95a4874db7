"""Trains a bundled model from nothing: scripts/lab/train pocket | pocket-sight | experts [--resume].

Everything that it learns from is generated here, from one seed. Progress (loss, pace, held-out accuracy by kind) is
printed as it goes; `--resume` goes on from the last checkpoint, `--start` begins with exported weights instead of from
nothing. `scripts/lab/measure` measures the result through the package itself.
"""

import argparse
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tokenizers import Tokenizer
    from torch import nn

    from .training.training import Training

ROOT = Path(__file__).resolve().parents[2]
CHECKPOINTS = Path.home() / ".cache" / "penstock"
State = Mapping[str, Any] | None
EXPERTS_VOCABULARY = 1024
EXPERTS_SIZES = {
    "hidden_size": 64, "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16,
    "moe_intermediate_size": 64,
}  # fmt: skip


def pocket(arguments: argparse.Namespace, state: State) -> "Training":
    from .pocket.model import Decoder, Shape
    from .pocket.tokens import learnt_tokenizer
    from .pocket.training import Training

    tokenizer = kept_tokenizer(arguments, state) or learnt_tokenizer(arguments.seed)
    model = Decoder(Shape(tokenizer.get_vocab_size()))
    load(model, arguments.start, prefix="model.")
    for part in (model.embed_tokens, *model.layers[: arguments.frozen]) if arguments.frozen else ():
        part.requires_grad_(False)
    options = {name: getattr(arguments, name) for name in ("seed", "device", "tokens", "rate")}
    return Training(model, tokenizer, arguments.steps, **options)


def experts(arguments: argparse.Namespace, state: State) -> "Training":
    import torch

    from .pocket.experts import EXPERTS_KINDS, SparseShape
    from .pocket.model import Decoder
    from .pocket.tokens import learnt_tokenizer
    from .pocket.training import Training
    from .text.mixture import Mixture

    torch.compiler.set_stance("force_eager")  # to compile the layers takes longer than it would save
    mixture = Mixture(EXPERTS_KINDS, is_plain=True)
    tokenizer = kept_tokenizer(arguments, state) or learnt_tokenizer(
        arguments.seed, examples=10_000, vocabulary=EXPERTS_VOCABULARY, mixture=mixture
    )
    model = Decoder(SparseShape(tokenizer.get_vocab_size(), **EXPERTS_SIZES))
    load(model, arguments.start, prefix="model.")
    return Training(model, tokenizer, arguments.steps, seed=arguments.seed, mixture=mixture)


def pocket_sight(arguments: argparse.Namespace, state: State) -> "Training":
    from .sight.model import new_model, sight_tokenizer
    from .sight.training import Training

    tokenizer = sight_tokenizer()
    model = new_model(tokenizer)
    load(model, arguments.start)
    return Training(model, tokenizer, arguments.steps, arguments.seeing_steps, arguments.seed)


def kept_tokenizer(arguments: argparse.Namespace, state: State) -> "Tokenizer | None":
    """The tokenizer of the training that is continued, whatever has become of the text that it was learnt from."""
    from tokenizers import Tokenizer

    if state:
        return Tokenizer.from_str(state["tokenizer"])
    return Tokenizer.from_file(str(arguments.start / "tokenizer.json")) if arguments.start else None


def load(model: "nn.Module", folder: Path | None, prefix: str = "") -> None:
    """Weights that were exported to this folder; an output layer that is the embedding table isn't among them."""
    from safetensors.torch import load_file

    if folder:
        tensors = load_file(folder / "model.safetensors").items()
        model.load_state_dict({name.removeprefix(prefix): tensor.float() for name, tensor in tensors}, strict=False)


def main() -> None:
    arguments = parsed()
    # Read when torch is imported. Threads that spin keep a core that others use too; for pocket-sight another process
    # draws meanwhile.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive" if arguments.model == "pocket-sight" else "active")
    import torch

    if arguments.device == "auto":
        arguments.device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.set_num_threads(arguments.threads)
    torch.manual_seed(arguments.seed)
    checkpoint = arguments.checkpoint
    checkpoint.parent.mkdir(parents=True, exist_ok=True)
    state = torch.load(checkpoint, weights_only=True) if arguments.resume else None
    training = arguments.new_training(arguments, state)
    size = sum(parameter.numel() for parameter in training.model.parameters())
    print(f"{arguments.model}: {size / 1e6:.2f} M parameters, on {arguments.device}", flush=True)
    if state:
        training.resume(state)
        print(f"resumed at step {training.done:,}", flush=True)
    training.run(checkpoint)
    training.export(arguments.out)
    print(f"written to {arguments.out}")


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/lab/train", description="Train a bundled model from nothing.")
    models = parser.add_subparsers(dest="model", required=True)
    add_pocket(added(models, "pocket", pocket, ROOT / "frontend" / "pocket", 19_000))
    added(models, "experts", experts, ROOT / "tests" / "builders" / "trained_experts", 1_200)
    sight = added(models, "pocket-sight", pocket_sight, ROOT / "frontend" / "pocket_sight", 12_000)
    sight.add_argument("--seeing-steps", type=int, default=4_000, help="first steps, without questions")
    return parser.parse_args()


def added(models: Any, name: str, new_training: Any, out: Path, steps: int) -> argparse.ArgumentParser:
    parser = models.add_parser(name)
    parser.add_argument("--out", type=Path, default=out, help="folder of the trained files")
    parser.add_argument("--resume", action="store_true", help="go on from the checkpoint")
    parser.add_argument("--checkpoint", type=Path, default=CHECKPOINTS / f"{name}-training.pt")
    parser.add_argument("--start", type=Path, help="folder of trained files to begin with, instead of from nothing")
    parser.add_argument("--steps", type=int, default=steps)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=2, help="threads on a CPU")
    parser.set_defaults(new_training=new_training, device="cpu")
    return parser


def add_pocket(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--frozen", type=int, default=0, help="how many of the first layers stay as they are")
    parser.add_argument("--rate", type=float, default=1.0, help="share of the rates that a fresh model learns at")
    parser.add_argument("--tokens", type=int, help="tokens of a step")
    parser.add_argument("--device", default="auto", choices=["auto", "cpu", "cuda"])


if __name__ == "__main__":
    main()
