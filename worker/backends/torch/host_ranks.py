"""A CPU's ranks for operations on tensors, whose memory its arrays share."""

from torch import Tensor

from ....kernels.operations import Ranks
from ....kernels.torch.arrays import array_of, tensor_of
from ....records import dataclass
from ...ranks.host_ranks import HostRanks
from ...ranks.parallel import Parallel
from .gloo_ranks import GlooRanks


@dataclass(frozen=True, kw_only=True)
class TensorRanks(Parallel):
    host: Parallel

    def exchange(self, numbers: list[int]) -> list[list[int]]:
        return self.host.exchange(numbers)

    def all_reduce(self, x: Tensor) -> Tensor:
        return tensor_of(self.host.all_reduce(array_of(x)))

    def all_gather(self, x: Tensor, total: int) -> Tensor:
        return tensor_of(self.host.all_gather(array_of(x), total))


def for_tensors(ranks: Parallel) -> Ranks:
    """The ranks as operations see them; tokens pass through the ranks of arrays themselves."""
    return TensorRanks(ranks.rank, ranks.size, host=ranks) if isinstance(ranks, (HostRanks, GlooRanks)) else ranks
