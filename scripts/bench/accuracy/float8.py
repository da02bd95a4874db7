"""Accuracy of a checkpoint in 8-bit floats, by the form in which it is computed.

The bundled model over its held-out questions with their answers, and a model of random weights over random tokens, are
written in 8-bit floats by the formulas of llm-compressor (a scale for each row, or for the matrix) and of DeepSeek
(blocks of 128 × 128). "float32" is the exact product of value and scale, which the rows below it are compared with;
itself it is compared with the model that the checkpoint was made of. "8-bit rows" quantizes what meets a matrix, too,
as GPUs with such products do: e4m3, a scale for each token, or for each 128 of its numbers where weights have blocks.
Prints the KL divergence of the next token's distribution in nats, and how much perplexity grew.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from penstock.frontend.models.model_names import BUNDLED
from penstock.kernels.arrays import FLOAT32
from penstock.kernels.torch.operations import TorchOperations
from penstock.kernels.torch.packed.torch_weights import PackedWeight
from penstock.worker.backends.torch.backend import TorchBackend
from penstock.worker.backends.torch.device import TensorDevice, torch_device
from penstock.worker.device import Device
from penstock.worker.ranks.parallel import Parallel
from penstock.worker.start.load import load_model
from penstock.worker.start.model import Model

from ..models import tensor_shapes, write_config
from .formats import distributions, divergence_of, model_with, perplexity, random_tokens

E4M3_MOST = 448.0
NUM_TOKENS, BLOCK = 2048, 128
RANDOM = {
    "hidden_size": 1024, "intermediate_size": 3072, "num_hidden_layers": 6, "num_attention_heads": 16,
    "num_key_value_heads": 8, "head_dim": 64, "vocab_size": 4096, "tie_word_embeddings": True,
}  # fmt: skip


class Form(NamedTuple):
    """How a matrix gets its scales."""

    name: str
    block: tuple[int, int]  # rows, columns; 0: all of them
    config: dict[str, Any]
    scale_name: str


def _compressed(strategy: str) -> dict[str, Any]:
    weights = {"num_bits": 8, "type": "float", "strategy": strategy, "symmetric": True, "dynamic": False}
    group = {"targets": ["Linear"], "weights": weights}
    return {"quant_method": "compressed-tensors", "format": "float-quantized", "config_groups": {"group_0": group}}


FORMS = (
    Form("a scale per row", (1, 0), _compressed("channel"), "weight_scale"),
    Form("blocks of 128 × 128", (BLOCK, BLOCK), {"quant_method": "fp8", "weight_block_size": [BLOCK, BLOCK]},
         "weight_scale_inv"),
    Form("a scale per matrix", (0, 0), _compressed("tensor"), "weight_scale"),
)  # fmt: skip
_READERS = {  # of what stands behind a norm
    "input_layernorm": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    "post_attention_layernorm": ("mlp.gate_proj", "mlp.up_proj"),
}
OUTLIERS, EXCESS = 8, 30.0  # channels of the random model that are larger, and how many times
_FLOATS = json.dumps({"*": None})


def run(forms: tuple[str, ...] = tuple(form.name for form in FORMS), tokens: int = NUM_TOKENS) -> None:
    with TemporaryDirectory() as made:
        folder = Path(made)
        chosen = [form for form in FORMS if form.name in forms]
        compare("the bundled model", BUNDLED["pocket"], held_out_tokens(tokens), folder / "pocket", chosen)
        others = random_tokens(RANDOM["vocab_size"], 256)
        write_random(folder / "random", 1.0)
        compare("random weights", folder / "random", others, folder / "of-random", chosen)
        write_random(folder / "outliers", EXCESS)
        name = f"random weights, {OUTLIERS} of {RANDOM['hidden_size']:,} channels {EXCESS:g} times as large"
        compare(name, folder / "outliers", others, folder / "of-outliers", chosen)


def compare(name: str, original: Path, tokens: Tensor, made: Path, forms: list[Form]) -> None:
    print(f"{name}, {len(tokens):,} tokens\n")
    print("| 8-bit floats with | computed as | mean KL | largest KL | perplexity |\n| --- | --- | --- | --- | --- |")
    first = of(load_model(original, dtype="float32"), tokens)
    for form in forms:
        folder = made.with_name(f"{made.name}-{len(form.name)}")
        write_float8(original, folder, form)
        exact = of(load_model(folder, dtype="float32", quantization=_FLOATS), tokens)
        report(form.name, "float32", first, exact, tokens)
        for label, model in computed(folder, form):
            report("", label, exact, of(model(), tokens), tokens)
    print()


def computed(folder: Path, form: Form) -> list[tuple[str, Callable[[], Model]]]:
    return [
        ("bfloat16", lambda: load_model(folder, dtype="bfloat16", quantization=_FLOATS)),
        ("int8, a scale per row", lambda: load_model(folder, dtype="float32")),
        ("int4, groups of 64", lambda: load_model(folder, dtype="float32", quantization="int4")),
        ("8-bit rows", lambda: with_float8_rows(folder, BLOCK if form.block[0] > 1 else 0)),
    ]


def of(model: Model, tokens: Tensor) -> Tensor:
    return distributions(model, "fp32", tokens)


def report(form: str, label: str, exact: Tensor, found: Tensor, tokens: Tensor) -> None:
    divergence = divergence_of(exact, found)
    growth = perplexity(found, tokens) / perplexity(exact, tokens) - 1
    print(f"| {form} | {label} | {divergence.mean():.1e} | {divergence.max():.1e} | {growth:+.2%} |", flush=True)


# --- checkpoints ------------------------------------------------------------------------------------------------------


def write_float8(original: Path, folder: Path, form: Form) -> None:
    folder.mkdir()
    written: dict[str, Tensor] = {}
    for name, tensor in load_file(original / "model.safetensors").items():
        written[name] = tensor
        if name.endswith("_proj.weight"):
            written[name], scales = quantized(tensor.float(), form.block)
            written[name.removesuffix("weight") + form.scale_name] = scales
    save_file(written, folder / "model.safetensors", {"format": "pt"})
    config = json.loads((original / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"quantization_config": form.config}))


def quantized(weight: Tensor, block: tuple[int, int]) -> tuple[Tensor, Tensor]:
    """e4m3 values, and the scale of each block: its largest magnitude / 448."""
    rows, columns = (size or whole for size, whole in zip(block, weight.shape, strict=True))
    missing = (0, -weight.shape[1] % columns, 0, -weight.shape[0] % rows)
    blocks = torch.nn.functional.pad(weight, missing).unflatten(1, (-1, columns)).unflatten(0, (-1, rows))
    scales = blocks.abs().amax((1, 3)) / E4M3_MOST  # [blocks of rows, blocks of columns]
    values = (blocks / scales[:, None, :, None]).to(torch.float8_e4m3fn).flatten(2).flatten(0, 1)
    return values[: weight.shape[0], : weight.shape[1]].contiguous(), scales


def write_random(folder: Path, excess: float) -> None:
    """Normal weights; some channels behind each norm are so many times larger, and their weights as much smaller."""
    folder.mkdir()
    write_config(folder, RANDOM)
    config = json.loads((folder / "config.json").read_text())
    generator = torch.Generator().manual_seed(5)
    tensors = {
        name: torch.ones(shape)
        if len(shape) == 1
        else torch.randn(shape, generator=generator) * (0.05 if "embed" in name else shape[1] ** -0.5)
        for name, shape in tensor_shapes(config)
    }
    for layer in range(config["num_hidden_layers"]):
        prefix = f"model.layers.{layer}."
        for norm, readers in _READERS.items():
            tensors[f"{prefix}{norm}.weight"][:OUTLIERS] *= excess
            for reader in readers:
                tensors[f"{prefix}{reader}.weight"][:, :OUTLIERS] /= excess
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})


def held_out_tokens(count: int = NUM_TOKENS) -> Tensor:
    """Questions of all kinds with their answers, one after another."""
    from lab.text.example import LETTER_GAP, rendered_answer, rendered_prompt
    from lab.text.mixture import KINDS, held_out
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(BUNDLED["pocket"] / "tokenizer.json"))
    examples = [example for some in zip(*(held_out(kind, 12) for kind in KINDS), strict=True) for example in some]
    text = "".join(rendered_prompt(each) + rendered_answer(each).replace(LETTER_GAP, "") + "\n" for each in examples)
    return torch.tensor(tokenizer.encode(text).ids[:count])


# --- products of 8-bit rows -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Float8Rows(TorchOperations):
    """Rows become 8-bit floats before each product but the head's."""

    group: int = 0  # of a row's numbers that share a scale; 0: all
    head: int = 0  # outputs of the head

    def linear(self, x: Tensor, weight: PackedWeight, bias: Tensor | None) -> Tensor:
        if weight.out_features == self.head:
            return super().linear(x, weight, bias)
        values, scales = quantized(x, (1, self.group))
        columns = self.group or x.shape[1]
        return super().linear(values.float() * scales.repeat_interleave(columns, 1)[:, : x.shape[1]], weight, bias)


def with_float8_rows(folder: Path, group: int) -> Model:
    vocabulary = json.loads((folder / "config.json").read_text())["vocab_size"]

    def backend(device: Device, ranks: Parallel) -> TorchBackend:
        made = TorchBackend.create(TensorDevice(torch_device(device)), FLOAT32, ranks, False, "")
        ops = Float8Rows(torch_device(device), torch.float32, ranks, group=group, head=vocabulary)
        return TorchBackend(**(vars(made) | {"ops": ops}))

    return model_with(folder, backend)
