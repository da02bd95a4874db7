"""Weights that are made up on the device, for measurements of a model of which only the config is there."""

import re
import zlib
from collections.abc import Iterable

import torch
from torch import Tensor

from ..piece import Part, index_of

_FACTORS = re.compile(r"norm(_\d)?\.weight$|\.norms\.|layer_scalar$|router\.(scale|per_expert_scale)$")  # made 1


class DummySource:
    """A source of numbers that are the same for a name, whatever the number of ranks."""

    def __init__(self, device: torch.device, absent: Iterable[str] = ()) -> None:
        self.device = device
        self.absent = tuple(absent)  # endings of the names that this model does not have
        self.bytes_read = 0

    def has(self, name: str) -> bool:
        return not name.endswith(self.absent)

    @property
    def names(self) -> Iterable[str]:
        return ()

    def read(self, name: str, shape: tuple[int, ...], part: Part | None = None) -> Tensor:
        if _FACTORS.search(name):
            tensor = torch.ones(shape, device=self.device)
        else:
            generator = torch.Generator(self.device).manual_seed(zlib.crc32(name.encode()))
            tensor = torch.empty(shape, device=self.device).uniform_(-0.035, 0.035, generator=generator)
        tensor = tensor[index_of(part)]
        self.bytes_read += tensor.nbytes
        return tensor

    def matrix(self, name: str, shape: tuple[int, ...], part: Part | None = None) -> Tensor:
        return self.read(name, shape, part)

    def octets(self, name: str, shape: tuple[int, ...], part: Part | None = None) -> Tensor:
        """Of powers of 2, such that numbers are about as large as the others."""
        generator = torch.Generator().manual_seed(zlib.crc32(name.encode()))
        first, beyond = (119, 122) if name.endswith("_scales") else (0, 256)
        octets = torch.randint(first, beyond, shape, dtype=torch.uint8, generator=generator)[index_of(part)]
        self.bytes_read += octets.nbytes
        return octets

    def group_size(self, module: str) -> int:
        return 0

    def pass_over(self, name: str) -> None:
        """Nothing is left over here."""

    def leftovers(self) -> list[str]:
        return []
