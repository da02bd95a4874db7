"""Which sums over ranks the cards make by themselves; the sums need cards (`tests/gpu/test_nccl.py`)."""

import pytest
import torch
from torch import Tensor

from penstock.worker.parallel import Parallel
from penstock.worker.peer_sums import PeerSums

TAKEN = torch.full((1,), 7.0)


class Peers(PeerSums):
    def all_reduce(self, x: Tensor) -> Tensor:
        return TAKEN


@pytest.mark.parametrize("x", [torch.ones(64, 4096, dtype=torch.bfloat16), torch.ones(4, dtype=torch.float32)])
def test_what_few_rows_add_up_is_added_by_the_cards(x):
    ranks = Parallel(0, 2, is_ordered=False, peers=Peers(torch.empty(0), "all"))
    assert ranks.all_reduce(x) is TAKEN


@pytest.mark.parametrize(
    "x", [torch.ones(65, 4096, dtype=torch.bfloat16), torch.ones(3), torch.ones(8, dtype=torch.float16), torch.ones(0)]
)
def test_what_is_large_or_odd_goes_another_way(x):
    assert not Peers(torch.empty(0), "all").fits(x)


@pytest.mark.parametrize("cards", [[0], [0, 1, 2]])
def test_groups_of_other_sizes_have_none(cards):
    assert PeerSums.join(torch.device("cuda", 0), lambda numbers: [[card] for card in cards]) is None
