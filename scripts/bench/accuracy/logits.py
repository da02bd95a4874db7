"""Logits, perplexity and likeliest tokens of GGUF files, next to llama.cpp's.

PYTHON is one in which llama-cpp-python is installed. Without `--files` pocket is written as GGUF and llama.cpp
quantizes it to every kind; its text is then held-out questions with their answers, else random tokens. Both engines
round rows to 8 bits before they multiply; both can also multiply floats: Penstock what the blocks mean, llama.cpp the
file that it widens to float32 itself, with keys and values in float32. Of each file the table has

- the largest difference of logits over the texts, each token's less their mean: of both in floats, of each from
  llama.cpp in floats, and of both as they are,
- the perplexity of the texts by both as they are, and
- how many of the first 64 tokens of 16 greedy answers of llama.cpp's are the likeliest here, too, given those before
  them: all, and those that lie more than 0.01 before the next one there.
"""

import json
import math
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy
import torch
from torch import Tensor

from penstock.frontend.models.conversion import convert_model
from penstock.frontend.models.model_files import find_model
from penstock.kernels.arrays import FLOAT32
from penstock.worker.backends.torch.backend import TorchBackend
from penstock.worker.backends.torch.device import TensorDevice, torch_device
from penstock.worker.device import Device
from penstock.worker.ranks.parallel import Parallel
from penstock.worker.start.load import load_model
from penstock.worker.start.model import Model

from ..formats.quantize_gguf import UD, WITHOUT_MATRIX
from ..machine import ROOT
from .float8 import held_out_tokens
from .formats import logits_of, model_with, random_tokens

NUM_ANSWERS, ANSWER_TOKENS, PROMPT_TOKENS = 16, 64, 24
MARGIN = 1e-2
POCKETS_VOCABULARY = 2048


class Compared(NamedTuple):
    floats: float  # the largest difference of logits, both multiplying floats
    from_floats: tuple[float, float]  # llama.cpp's, ours
    largest: float  # as they are
    perplexities: tuple[float, float]  # llama.cpp's, ours
    same: float  # of all tokens
    same_where_clear: float  # of those with a margin

    def row(self, file: Path) -> str:
        theirs, ours = self.perplexities
        growth, same = f"{ours / theirs - 1:+.2%}", f"{self.same:.1%} | {self.same_where_clear:.1%}"
        logits = " | ".join(f"{each:.1e}" for each in (self.floats, *self.from_floats, self.largest))
        return f"| {file.name} | {logits} | {theirs:.3f} | {ours:.3f} | {growth} | {same} |"


def run(
    python: str, files: tuple[Path, ...] = (), kinds: tuple[str, ...] = (*WITHOUT_MATRIX, UD), tokens: int = 512,
    texts: int = 3,
) -> None:  # fmt: skip
    print("| file | Δ in floats | llama.cpp from floats | here from floats | Δ between both |", end="")
    print(" perplexity, llama.cpp | here | | same likeliest | clear |\n" + "| --- " * 10 + "|")
    with TemporaryDirectory() as made:
        for file in files or pockets_files(Path(made), python, kinds):
            print(compared(file, python, tokens, texts).row(file), flush=True)


def pockets_files(folder: Path, python: str, kinds: Sequence[str]) -> Iterator[Path]:
    whole = convert_model("pocket", folder / "pocket.gguf", quantization=None).path
    for kind in kinds:
        yield quantized(python, whole, kind)


def quantized(python: str, file: Path, kind: str) -> Path:
    """Have llama.cpp quantize the file, next to it."""
    command = [python, "-m", "bench.formats.quantize_gguf", str(file), kind]
    subprocess.run(command, check=True, cwd=ROOT / "scripts", capture_output=True)
    return file.with_name(f"{file.stem}-{kind}.gguf")


def compared(file: Path, python: str, length: int, count: int) -> Compared:
    found = find_model(file)
    config = json.loads((found.folder / "config.json").read_text())
    is_pocket = config["vocab_size"] == POCKETS_VOCABULARY
    num_tokens = length * count
    tokens = held_out_tokens() if is_pocket else random_tokens(config["vocab_size"], num_tokens)
    texts, rest = tokens[:num_tokens].split(length), tokens[-NUM_ANSWERS * PROMPT_TOKENS :]
    prompts = [each.tolist() for each in rest.split(PROMPT_TOKENS)]
    theirs = asked_of_llama_cpp(python, file, texts, prompts)
    model = load_model(found.folder, num_threads=torch.get_num_threads())
    widened = widened_model(found.folder)
    ours, floats = (torch.cat([logits_of(each, "fp32", text) for text in texts]) for each in (model, widened))
    expected, truth = after_texts(theirs), after_texts(asked_of_llama_cpp(python, file, texts, [], is_float=True))
    likeliest, margins = [], []
    for number, prompt in enumerate(prompts):
        path, steps = (torch.from_numpy(theirs[f"{name}-{number}"]) for name in ("path", "steps"))
        after = logits_of(model, "fp32", torch.cat([torch.tensor(prompt), path[:-1]]))[len(prompt) - 1 :]
        likeliest.append(after.argmax(1) == path)
        best = steps.topk(2, 1).values
        margins.append(best[:, 0] - best[:, 1] > MARGIN)
    same, is_clear = torch.cat(likeliest), torch.cat(margins)
    return Compared(
        apart(floats, truth),
        (apart(expected, truth), apart(ours, truth)),
        apart(ours, expected),
        (perplexity(expected, texts), perplexity(ours, texts)),
        float(same.float().mean()),
        float(same[is_clear].float().mean()),
    )


def widened_model(folder: Path) -> Model:
    """The model without native kernels: torch multiplies the blocks' values in float32."""

    def backend(device: Device, ranks: Parallel) -> TorchBackend:
        return TorchBackend.create(TensorDevice(torch_device(device)), FLOAT32, ranks, False, "")

    return model_with(folder, backend)


def asked_of_llama_cpp(
    python: str, file: Path, texts: Sequence[Tensor], prompts: list[list[int]], is_float: bool = False
) -> dict[str, Any]:
    with TemporaryDirectory() as folder:
        if is_float:
            beside = Path(folder) / file.name
            beside.symlink_to(file.resolve())
            file = quantized(python, beside, "F32")
        asked, answered = Path(folder) / "asked.json", Path(folder) / "answered.npz"
        wanted = {"texts": [text.tolist() for text in texts], "prompts": prompts}
        wanted |= {"count": ANSWER_TOKENS, "floats": is_float}
        asked.write_text(json.dumps(wanted))
        command = [python, "-m", "bench.engines.llama_logits", str(file.resolve()), str(asked), str(answered)]
        done = subprocess.run(command, cwd=ROOT / "scripts", capture_output=True, text=True)
        if done.returncode:
            sys.exit(f"llama.cpp failed on {file}:\n{done.stderr[-2000:]}")
        with numpy.load(answered) as content:
            return dict(content)


def after_texts(answered: dict[str, Any]) -> Tensor:
    """The logits of all texts, one below the other."""
    return torch.cat([torch.from_numpy(logits) for name, logits in answered.items() if name.startswith("text")])


def apart(some: Tensor, others: Tensor) -> float:
    return float((centred(some) - centred(others)).abs().max())


def centred(logits: Tensor) -> Tensor:
    return logits - logits.mean(1, keepdim=True)


def perplexity(logits: Tensor, texts: Sequence[Tensor]) -> float:
    """Perplexity of each token after the first of each text."""
    pairs = zip(logits.split([len(text) for text in texts]), texts, strict=True)
    found = [after[:-1].log_softmax(1).gather(1, text[1:, None]) for after, text in pairs]
    return math.exp(-torch.cat(found).mean())
