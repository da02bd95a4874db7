"""Accuracy of number formats: the distributions of every format against float32, on random tokens.

For each format of weights and of keys and values: the mean and the largest KL divergence (in nats) from the float32
model's distribution of the next token, and how often the likeliest token is the same. Without `--model` a Qwen3 of
random parameters is made. Random weights give flat distributions, so the figures compare formats with each other; what
a format costs in answers, `scripts/lab/measure pocket quantization=int4` measures.
"""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
import torch
from torch import Tensor

from penstock.worker.backends.torch.backend import TorchBackend
from penstock.worker.device import Device
from penstock.worker.ranks.parallel import Parallel
from penstock.worker.start import load
from penstock.worker.start.load import load_model
from penstock.worker.start.model import Model
from penstock.worker.steps.batch import Batch
from penstock.worker.steps.block_tables import BlockRows

from ..batches import BLOCK_SIZE
from ..harness import ShapeName, random_model

CHUNK = 128
# Of weights (None: as the model's dtype says), the dtype, and of keys and values.
FORMATS = (
    (None, "float32", "fp32"),
    (None, "float16", "fp16"),
    (None, "bfloat16", "bf16"),
    (None, "float32", "int8"),
    (None, "float32", "uint4"),
    ("int8", "float32", "fp32"),
    ("int8", "bfloat16", "int8"),
    ("int4", "float32", "fp32"),
    ("int4", "bfloat16", "uint4"),
)


def run(model: Path | None = None, shape: ShapeName = "0.6b", tokens: int = 512) -> Any:
    with random_model(shape, dtype="float32") as made:
        return compare(model or made, "auto" if model else "dummy", tokens)


def compare(folder: Path, load_format: str, num_tokens: int) -> dict[str, Any]:
    print(f"{num_tokens} random tokens in chunks of {CHUNK}\n")
    print("| weights | KV | mean KL | largest KL | same likeliest token |\n| --- | --- | --- | --- | --- |")
    exact, rows = None, {}
    for quantization, dtype, kind in FORMATS:
        form = {"dtype": dtype, "quantization": quantization}
        model = load_model(folder, load_format=load_format, num_threads=torch.get_num_threads(), **form)
        found = distributions(model, kind, random_tokens(model.vocab_size, num_tokens))
        if exact is None:
            exact = found
            continue
        divergence = divergence_of(exact, found)
        same = (exact.argmax(-1) == found.argmax(-1)).float().mean()
        weights = quantization or dtype
        print(f"| {weights} | {kind} | {divergence.mean():.2e} | {divergence.max():.2e} | {same:.1%} |", flush=True)
        rows[f"{weights}, {kind}"] = [float(divergence.mean()), float(divergence.max()), float(same)]
    return rows


def divergence_of(exact: Tensor, found: Tensor) -> Tensor:
    """KL divergence of each token's distribution in nats."""
    return (exact.exp() * (exact - found)).sum(-1)


def random_tokens(vocabulary: int, count: int) -> Tensor:
    """The same for every model."""
    return torch.randint(0, vocabulary, (count,), generator=torch.Generator().manual_seed(7))


def distributions(model: Model, kind: str, token_ids: Tensor) -> Tensor:
    """Log-probabilities [tokens, vocabulary] after each of these tokens."""
    return logits_of(model, kind, token_ids).log_softmax(-1)


def model_with(folder: Path, backend_of: Callable[[Device, Parallel], TorchBackend]) -> Model:
    """The model in float32, on a backend of the caller's own."""
    usual = load.select_backend
    load.select_backend = lambda config, device, number, ranks, options: backend_of(device, ranks)
    try:
        return load.load_model(folder, dtype="float32", num_threads=torch.get_num_threads())
    finally:
        load.select_backend = usual


def perplexity(found: Tensor, tokens: Tensor) -> float:
    """Perplexity of tokens, from the log-probabilities after each of them."""
    return math.exp(-found[:-1].gather(1, tokens[1:, None]).mean())


def logits_of(model: Model, kind: str, token_ids: Tensor) -> Tensor:
    """[tokens, vocabulary] after each of these tokens."""
    num_tokens = len(token_ids)
    num_blocks = -(-num_tokens // BLOCK_SIZE)
    memory = model.plain_memory(num_blocks, BLOCK_SIZE, kind)
    found, device = [], model.backend.device
    for start in range(0, num_tokens, CHUNK):
        positions = device.put(numpy.arange(start, min(start + CHUNK, num_tokens)))
        batch = Batch(
            token_ids=device.put(token_ids[start : start + CHUNK].numpy()),
            positions=positions,
            query_starts=[0, len(positions)],
            context_lengths=[int(positions[-1]) + 1],
            groups=[BlockRows(device.put(numpy.arange(num_blocks, dtype=numpy.int32)[None]), positions)],
            logit_rows=device.put(numpy.arange(len(positions))),
            memory=memory,
        )
        # A copy: the next chunk's lie in the same memory.
        logits = model.forward_pass.logits(model.forward_pass.forward(batch), batch.logit_rows)
        found.append(torch.from_numpy(device.host_copy(logits)().copy()))
    return torch.cat(found)
