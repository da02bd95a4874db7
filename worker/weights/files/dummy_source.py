"""Makes up weights on the device, to measure a model from its config alone."""

import re
import zlib
from collections.abc import Iterable

import torch
from torch import Tensor

from ..piece import Part, index_of

_FACTORS = re.compile(r"norm(_\d)?\.weight$|\.norms\.|layer_scalar$|router\.(scale|per_expert_scale)$")  # set to 1


class DummySource:
    """A source of weights that depend only on the name, whatever the number of ranks."""

    def __init__(self, device: torch.device, absent: Iterable[str] = ()) -> None:
        self.device = device
        self.absent = tuple(absent)  # suffixes of names that this model does not have
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
        """Bytes for exponents of 2, such that values have a realistic size."""
        generator = torch.Generator().manual_seed(zlib.crc32(name.encode()))
        first, beyond = (119, 122) if name.endswith("_scales") else (0, 256)
        octets = torch.randint(first, beyond, shape, dtype=torch.uint8, generator=generator)[index_of(part)]
        self.bytes_read += octets.nbytes
        return octets

    def group_size(self, module: str) -> int:
        return 0

    def pass_over(self, name: str) -> None:
        """Do nothing: there are no leftovers."""

    def leftovers(self) -> list[str]:
        return []
