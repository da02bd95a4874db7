"""Gathers the rows of pooled prompts over the steps, and makes vectors of them when a prompt ends."""

from collections.abc import Callable, Sequence

import numpy

from ...kernels.arrays import Array, DeviceArray
from ...protocol.messages import NewSlot, StepPlan
from ...protocol.pooling.form import PoolingForm, Vectors, WantedVectors
from ...records import dataclass
from ..steps.batch import Batch
from ..steps.step_rows import StepRows
from .head import Layer
from .modes import MODES, Mode

# Normed rows of the stream at these tokens of the step.
StatesOf = Callable[[DeviceArray, Array], Array]


@dataclass
class _Prompt:
    """A pooled prompt in a slot: what was gathered of it so far."""

    wanted: WantedVectors
    length: int
    modes: list[Mode]
    rows: list[Array]  # of each token's vector, if these are wanted


class Pooling:
    def __init__(self, form: PoolingForm, head: Sequence[Layer], states_of: StatesOf) -> None:
        self.form = form
        self._head = head
        self._states_of = states_of
        self._prompts: dict[int, _Prompt] = {}  # by slot

    def enter(self, plan: StepPlan) -> None:
        """Begin the prompts that enter slots; those that were there before have ended or given way."""
        for new in plan.new:
            self._enter(new)

    def _enter(self, new: NewSlot) -> None:
        self._prompts.pop(new.slot, None)
        if new.pooled is not None:
            self._prompts[new.slot] = _Prompt(
                new.pooled, new.num_prompt, [MODES[mode]() for mode in self.form.modes], []
            )

    def vectors(self, rows: StepRows, batch: Batch, hidden: DeviceArray) -> list[Vectors]:
        """Take in the step's rows; return the vectors of the prompts that it ends."""
        pooled = [row for row, slot in enumerate(rows.slots.tolist()) if slot in self._prompts]
        spans = [self._span(row, rows, batch) for row in pooled]
        if not any(len(span) for span in spans):
            return []
        states = self._states_of(hidden, numpy.concatenate(spans))
        found, start = [], 0
        for row, span in zip(pooled, spans, strict=True):
            prompt = self._prompts[int(rows.slots[row])]
            if len(span):
                self._take_in(prompt, states[start : start + len(span)])
            start += len(span)
            if rows.ends[row] == prompt.length:
                found.append(self._ended(row, prompt))
                del self._prompts[int(rows.slots[row])]
        return found

    def _span(self, row: int, rows: StepRows, batch: Batch) -> Array:
        """The row's tokens of the step whose states count."""
        start, end = batch.query_starts[row], batch.query_starts[row + 1]
        prompt = self._prompts[int(rows.slots[row])]
        if not (prompt.wanted.by_token or self.form.reads_all):
            start = end - bool(rows.ends[row] == prompt.length)
        return numpy.arange(start, end)

    def _take_in(self, prompt: _Prompt, states: Array) -> None:
        if prompt.wanted.by_token:
            prompt.rows += [self._through_head(state) for state in states]
        else:
            for mode in prompt.modes:
                mode.add(states)

    def _ended(self, row: int, prompt: _Prompt) -> Vectors:
        if prompt.wanted.by_token:
            values = numpy.stack(prompt.rows)
        else:
            values = self._through_head(numpy.concatenate([mode.pooled() for mode in prompt.modes]))[None]
        return Vectors(row, values.shape[1], values.astype(numpy.float32).tobytes())

    def _through_head(self, state: Array) -> Array:
        for layer in self._head:
            state = layer(state)
        return state
