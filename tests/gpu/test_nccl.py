"""The collectives of ranks on cards: with one rank they change nothing, with several the answers are those of one."""

import pytest
import torch
import torch.distributed as dist
from builders.on_card import generated, mixed_prompts, pocket, usable

from penstock import SamplingParams
from penstock.worker.parallel import Parallel
from penstock.worker.peer_sums import PeerSums, _shared_room


def test_one_rank_meets_itself(card, tmp_path):
    device = torch.device("cuda", 0)
    ranks = Parallel(device=device)
    ranks.meet(tmp_path / "ranks")
    try:
        assert ranks.exchange([3, 4]) == [[3, 4]]
        x = torch.randn(5, 7, device=device)
        found = x.clone()
        dist.all_reduce(found)
        assert torch.equal(found, x)
        assert torch.equal(ranks.all_reduce(x.clone()), x)
        assert torch.equal(ranks.all_gather(x, 7), x)
        assert torch.equal(ranks.broadcast(x.clone()), x)
        peers = PeerSums(_shared_room(device), dist.group.WORLD.group_name)
        for small in (torch.randn(3, 64, device=device), torch.randn(2, 8, device=device).bfloat16()):
            assert peers.fits(small)
            assert torch.equal(peers.all_reduce(small), small)
    finally:
        ranks.leave()


@pytest.mark.parametrize("size", [2, 4])
def test_ranks_together_give_the_tokens_of_one(device, size):
    if usable(device) == "cuda" and torch.cuda.device_count() < size:
        pytest.skip(f"there are {torch.cuda.device_count()} cards, and this wants {size}")
    params = SamplingParams(temperature=0, max_tokens=32, ignore_eos=True)
    found = []
    for ranks in (1, size):
        with pocket(device, dtype="float32", tensor_parallel_size=ranks, num_threads=size) as llm:
            found.append([list(output.outputs.token_ids) for output in generated(llm, mixed_prompts(12), params)])
    assert found[0] == found[1]
