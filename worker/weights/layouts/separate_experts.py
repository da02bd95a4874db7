"""Shows experts that share one tensor of floats as separate matrices, like most families' experts.

A conversion to integers needs them: the layouts of quantized checkpoints have a name for each expert's matrix.
"""

import re
from collections.abc import Iterable, Iterator

from ....kernels.arrays import Array
from ...description.config import ModelConfig
from ...description.parts.mixtures import ExpertsConfig, Stack
from .find_layout import layout_of
from .layout import Layout, Sliceable

# The outputs of gate and up, which alternate.
_GATE, _UP, _ALL = slice(0, None, 2), slice(1, None, 2), slice(None)


class ExpertsApart:
    """A layout with separate experts; `others` shows all other tensors."""

    def __init__(self, experts: ExpertsConfig, stack: Stack, others: Layout) -> None:
        self._others, self._is_transposed, self._count = others, stack.is_transposed, experts.num_experts
        gate, up, down = experts.names.gate_up_down
        self._parts = {stack.gate_up: {gate: _GATE, up: _UP}, stack.down: {down: _ALL}}
        names = "|".join(map(re.escape, self._parts))
        self._stacked = re.compile(rf"(.*\.{re.escape(experts.names.experts)}\.)({names})")
        self._shown: dict[str, tuple[int, slice]] = {}

    def names(self, stored: Iterable[str]) -> dict[str, str]:
        return dict(self._named(stored))

    def view(self, name: str, stored: Array) -> Sliceable:
        if name not in self._shown:
            return self._others.view(name, stored)
        expert, outputs = self._shown[name]
        matrix = stored[expert].T if self._is_transposed else stored[expert]  # [outputs, inputs]
        return matrix[outputs]

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
