"""Shows experts that share one tensor of floats as separate matrices, like most families' experts.

A conversion to integers needs them: the layouts of quantized checkpoints have a name for each expert's matrix.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from torch import Tensor

from ...description.config import ModelConfig
from ...description.parts.mixtures import ExpertsConfig, Stack
from ..piece import slices_of
from .find_layout import layout_of
from .layout import Layout


class _Every(NamedTuple):
    """Every `step`-th output of a matrix, beginning with `first`."""

    first: int
    step: int


_GATE, _UP, _ALL = _Every(0, 2), _Every(1, 2), _Every(0, 1)


@dataclass(frozen=True)
class ExpertMatrix:
    """One expert's [outputs, inputs] in the file's tensor, to be sliced like a separate tensor."""

    stored: Any  # [experts, outputs, inputs], or transposed [experts, inputs, outputs]
    is_transposed: bool
    expert: int
    outputs: _Every

    def get_dtype(self) -> str:
        return str(self.stored.get_dtype())

    def get_shape(self) -> list[int]:
        _, *shape = self.stored.get_shape()
        outputs, inputs = reversed(shape) if self.is_transposed else shape
        return [outputs // self.outputs.step, inputs]

    def __getitem__(self, index: Any) -> Tensor:
        rows, columns = slices_of(index, self.get_shape())
        step = self.outputs.step
        spans = [slice(rows.start * step, rows.stop * step), columns]
        if self.is_transposed:
            spans.reverse()
        [matrix] = self.stored[(slice(self.expert, self.expert + 1), *spans)]
        if self.is_transposed:
            matrix = matrix.t()
        return matrix[self.outputs.first :: step]


class ExpertsApart:
    """A layout with separate experts; `others` shows all other tensors."""

    def __init__(self, experts: ExpertsConfig, stack: Stack, others: Layout) -> None:
        self._others, self._is_transposed, self._count = others, stack.is_transposed, experts.num_experts
        gate, up, down = experts.names.gate_up_down
        self._parts = {stack.gate_up: {gate: _GATE, up: _UP}, stack.down: {down: _ALL}}
        names = "|".join(map(re.escape, self._parts))
        self._stacked = re.compile(rf"(.*\.{re.escape(experts.names.experts)}\.)({names})")
        self._shown: dict[str, tuple[int, _Every]] = {}

    def names(self, stored: Iterable[str]) -> dict[str, str]:
        return dict(self._named(stored))

    def view(self, name: str, stored: Any) -> Any:
        if name not in self._shown:
            return self._others.view(name, stored)
        return ExpertMatrix(stored, self._is_transposed, *self._shown[name])

    def _named(self, stored: Iterable[str]) -> Iterator[tuple[str, str]]:
        for name, own in self._others.names(stored).items():
            match = self._stacked.fullmatch(name)
            if match is None:
                yield name, own
                continue
            for part, outputs in self._parts[match[2]].items():
                for expert in range(self._count):
                    shown = f"{match[1]}{expert}.{part}.weight"
                    self._shown[shown] = expert, outputs
                    yield shown, own


def layout_with_experts_apart(stored: Iterable[str], config: ModelConfig | None) -> Layout:
    """The layout of tensors with these names, with separate experts."""
    found = layout_of(stored, config)
    experts = config.experts if config is not None else None
    if experts is None or experts.names.stack is None:
        return found
    return ExpertsApart(experts, experts.names.stack, found)
