"""The tensors of a loaded model, to compare two of them bit for bit."""

from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import Any

import torch

_LAYERS = ("penstock.worker.layers", "penstock.worker.models.decoder", "penstock.worker.media")


def held(value: Any, path: str = "decoder") -> Iterator[tuple[str, torch.Tensor]]:
    """Every tensor that a loaded model keeps, with the way to it."""
    if isinstance(value, torch.Tensor):
        yield path, value.to_dense() if value.is_mkldnn else value
    elif isinstance(value, (list, tuple)):
        for number, each in enumerate(value):
            yield from held(each, f"{path}[{number}]")
    elif is_dataclass(value):
        for field in fields(value):
            yield from held(getattr(value, field.name), f"{path}.{field.name}")
    elif type(value).__module__.startswith(_LAYERS):
        for name, each in vars(value).items():
            yield from held(each, f"{path}.{name}")


def check_equal(found: Any, right: Any) -> None:
    found, right = dict(held(found)), dict(held(right))
    assert found.keys() == right.keys() and len(right) > 15
    assert [name for name, tensor in right.items() if not torch.equal(found[name], tensor)] == []
