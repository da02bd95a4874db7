"""Two models that should compute the same: their logits, the tensors they keep, their conversions, and their ranks;
and one against transformers' own.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import numpy
import torch
from builders.hand_driven import HandDriven
from safetensors.torch import load_file

from penstock.kernels.torch.arrays import tensor_of
from penstock.protocol.adapter_messages import NO_ADAPTER
from penstock.protocol.conversion import Conversion
from penstock.worker.convert import convert
from penstock.worker.description.config import read_config
from penstock.worker.ranks.host_ranks import HostRanks
from penstock.worker.start.model import Model
from penstock.worker.weights.files.checkpoint import Checkpoint

PROMPTS = [[7, 8, 9], list(range(20, 60)), [11] * 17]
_LAYERS = ("penstock.worker.layers", "penstock.worker.layers.decoder", "penstock.worker.media")


def logits_of(model: Model, tokens: Iterable[int] = range(5, 29), adapter: int = NO_ADAPTER) -> torch.Tensor:
    """The logits of every token of a prompt."""
    driven, prompt = HandDriven(model), list(tokens)
    return driven.step([(driven.add(prompt, adapter), len(prompt))], every_token=True)


def assert_alike(first: Model, second: Model) -> None:
    """Their greedy answers to a few prompts, computed in chunks and together, have the same bits."""
    assert second.report.leftovers == []
    (texts, logits), (other_texts, other_logits) = _answers(first), _answers(second)
    assert texts == other_texts
    assert torch.equal(logits, other_logits)


def _answers(model: Model) -> tuple[list[list[int]], torch.Tensor]:
    driven = HandDriven(model)
    logits = driven.greedy([driven.add(prompt) for prompt in PROMPTS], 6, budget=32)
    return driven.histories, torch.cat(logits)


def drawn(*lengths: int) -> list[list[int]]:
    """Prompts of these lengths."""
    draws = torch.Generator().manual_seed(7)
    return [torch.randint(5, 300, (length,), generator=draws).tolist() for length in lengths]


def check_answers(model: Model, reference: Any, prompts: list[list[int]], count: int, budget: int = 16) -> None:
    """Greedy answers, computed together and in chunks, have the tokens and log-probabilities of transformers' model,
    which sees each finished text alone."""
    driven = HandDriven(model)
    rows = [driven.add(prompt) for prompt in prompts]
    for row, logits in zip(rows, driven.greedy(rows, count, budget), strict=True):
        known, length = driven.histories[row], len(prompts[row])
        with torch.inference_mode():
            expected = reference(torch.tensor([known])).logits[0, length - 1 : -1].float()
        assert expected.argmax(-1).tolist() == known[length:], f"a prompt of {length}"
        difference = (expected.log_softmax(-1) - logits.log_softmax(-1)).abs().max().item()
        assert difference < 1e-3, f"a prompt of {length}: log-probabilities differ by {difference}"


# --- tensors ----------------------------------------------------------------------------------------------------------


def kept_tensors(value: Any, path: str = "decoder") -> Iterator[tuple[str, torch.Tensor]]:
    """Every tensor and array that a loaded model keeps, with the way to it."""
    if isinstance(value, torch.Tensor):
        yield path, value.to_dense() if value.is_mkldnn else value
    elif isinstance(value, numpy.ndarray):
        yield path, tensor_of(value)
    elif isinstance(value, (list, tuple)):
        for number, each in enumerate(value):
            yield from kept_tensors(each, f"{path}[{number}]")
    elif is_dataclass(value):
        for field in fields(value):
            yield from kept_tensors(getattr(value, field.name), f"{path}.{field.name}")
    elif type(value).__module__.startswith(_LAYERS):
        for name, each in vars(value).items():
            yield from kept_tensors(each, f"{path}.{name}")


def check_equal(found: Any, right: Any) -> None:
    found, right = dict(kept_tensors(found)), dict(kept_tensors(right))
    assert found.keys() == right.keys() and len(right) > 15
    assert [name for name, tensor in right.items() if not torch.equal(found[name], tensor)] == []


def assert_same_files(folders: Sequence[Path]) -> None:
    """Two folders' safetensors hold the same tensors, file by file."""
    paths = [sorted(path.relative_to(folder) for path in folder.rglob("*.safetensors")) for folder in folders]
    assert paths[0] == paths[1] and paths[0]
    for path in paths[0]:
        first, second = (load_file(folder / path) for folder in folders)
        assert first.keys() == second.keys()
        other = [name for name in first if first[name].dtype != second[name].dtype]
        assert other + [name for name in first if not torch.equal(first[name], second[name])] == [], path


def opened(folder: Path) -> Checkpoint:
    config = read_config(folder)
    return Checkpoint(folder, config.quantization, config)


def converted(source: Path, target: Path, quantization: str | None = None, **options: Any) -> Path:
    """The checkpoint as `penstock convert` writes it."""
    asked = Conversion(str(source), str(source), str(target), quantization, **options)
    convert.convert(asked, lambda progress: None)
    return target


# --- ranks ------------------------------------------------------------------------------------------------------------


def found_by_ranks(
    size: int, path: Path, task: Callable[[HostRanks], Any], kind: type[HostRanks] = HostRanks
) -> list[Any]:
    """What each rank makes of a task; a thread is a rank here. Processes are ranks in tests/tree/test_ranks.py."""

    def one(rank: int) -> Any:
        ranks = kind.meet(rank, size, path)
        found = task(ranks)
        ranks.leave()
        return found

    with ThreadPoolExecutor(size) as threads:
        return list(threads.map(one, range(size)))
