"""What llama.cpp's own converter made of tiny checkpoints (`tiny_model.py`) of all families that it knows.

`converted_gguf.json` was recorded with llama.cpp 0.5.0 (`convert_hf_to_gguf.py`): of each case the family and the keys
of its config that differ, the metadata of the architecture, which tensors there are (by the layers that have them), and
the factors of rotation. `write_converted` writes a file that is the same but for its weights.
"""

import json
from array import array
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from .gguf_file import Octets, write_gguf, zeros


class Converted(NamedTuple):
    family: str
    overrides: dict[str, Any]  # keys of the checkpoint's config, and `rope` as `tiny_model` takes it
    metadata: dict[str, Any]
    tensors: dict[str, list[int]]  # those of no layer, with their shapes
    layers: dict[str, str]  # by the layers that have them: names below the layer's
    factors: dict[str, list[float]]

    def of_layers(self) -> list[str]:
        """Names of the layers' tensors."""
        runs = ((number, names) for run, names in self.layers.items() for number in run.split(","))
        return [f"blk.{number}.{name}" for number, names in runs for name in names.split()]

    def stored_factors(self) -> dict[str, Octets]:
        of_each = {name: array("f", factors) for name, factors in self.factors.items()}
        return {name: Octets((len(factors),), "F32", factors.tobytes()) for name, factors in of_each.items()}


@cache
def converted() -> dict[str, Converted]:
    recorded = json.loads(Path(__file__).with_suffix(".json").read_text(encoding="utf-8"))
    return {case: Converted(**each) for case, each in recorded.items()}


def write_converted(path: Path, case: str, **metadata: Any) -> Path:
    """The case's file, with other metadata; None takes a key away."""
    each = converted()[case]
    tensors = {name: zeros(tuple(shape)) for name, shape in each.tensors.items()}
    tensors |= each.stored_factors() | {name: zeros((1,)) for name in each.of_layers()}
    said = each.metadata | metadata
    return write_gguf(path, {key: value for key, value in said.items() if value is not None}, tensors)
