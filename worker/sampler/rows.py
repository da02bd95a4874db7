"""The rows that sample a token in this step, with their parameters and histories, as the sampler reads them."""

from dataclasses import dataclass, field
from functools import cached_property

import numpy
import torch
from torch import Tensor

from ...kernels.sampling import DeviceDraws, Draws
from ..device import on_device
from .parameters import ParameterTable


@dataclass
class SamplingRows:
    parameters: ParameterTable
    slots: numpy.ndarray  # int64, one per row of logits
    positions: numpy.ndarray  # of the token to sample, which is the number of tokens before it
    num_prompt: numpy.ndarray
    histories: Tensor  # [slots, max_model_len] int32, on the device
    errors: dict[int, str] = field(default_factory=dict)  # by slot: what went wrong beside the logits themselves

    def __len__(self) -> int:
        return len(self.slots)

    @cached_property
    def wants(self) -> numpy.ndarray:
        """Bits: which work each row wants."""
        return self.parameters.wants[self.slots]

    @property
    def are_greedy(self) -> bool:
        return not self.parameters.kinds[self.slots].any()

    def wanting(self, bit: int) -> numpy.ndarray:
        """Indices of the rows that want this piece of work."""
        return numpy.flatnonzero(self.wants & bit)

    def only(self, indices: numpy.ndarray) -> "SamplingRows":
        if len(indices) == len(self):
            return self
        columns = (self.slots[indices], self.positions[indices], self.num_prompt[indices])
        return SamplingRows(self.parameters, *columns, self.histories, self.errors)

    def column(self, values: numpy.ndarray) -> Tensor:
        """Host values, one per row, shaped to act on rows of logits."""
        return on_device(values, self.parameters.device)[:, None]

    @cached_property
    def device_slots(self) -> Tensor:
        return on_device(self.slots, self.parameters.device)

    def real(self, name: str) -> Tensor:
        """A parameter, one per row."""
        return self.parameters.device_real(name, self.device_slots)

    def draws(self) -> Draws:
        """How each row's token is sampled."""
        positions = on_device(self.positions, self.parameters.device)
        return self.parameters.draws(self.slots, self.device_slots, positions)

    def device_draws(self) -> DeviceDraws:
        """The same in tensors that the host does not read."""
        positions = on_device(self.positions, self.parameters.device)
        return self.parameters.device_draws(self.histories, self.device_slots, positions, self.are_greedy)

    def keep(self, token_ids: Tensor) -> None:
        """Write the rows' next tokens into their histories."""
        self.histories[self.device_slots, on_device(self.positions, self.parameters.device)] = token_ids.to(torch.int32)

    def history(self, start: numpy.ndarray, length: int) -> Tensor:
        """`length` tokens of every row's history, from `start` on, as int64 ids."""
        positions = self.column(start) + torch.arange(length, device=self.histories.device)
        return self.histories[self.device_slots[:, None], positions].to(torch.int64)
