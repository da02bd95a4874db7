"""The collectives of ranks on cards: with one rank they change nothing, with several the answers are those of one."""

from collections.abc import Iterator

import pytest
import torch
import torch.distributed as dist
from builders.on_card import generated, mixed_prompts, pocket, usable

from penstock import SamplingParams
from penstock.worker.backends.triton.card_ranks import CardRanks


@pytest.fixture
def ranks(card, tmp_path) -> Iterator[CardRanks]:
    """One rank, which has met itself."""
    found = CardRanks.meet(0, 1, tmp_path / "ranks", torch.device("cuda", 0), is_ordered=True, sees_peers=False)
    yield found
    found.leave()


def test_one_rank_meets_itself(ranks):
    assert ranks.exchange([3, 4]) == [[3, 4]]
    x = torch.randn(5, 7, device=ranks.device)
    found = x.clone()
    dist.all_reduce(found)
    assert torch.equal(found, x)
    assert torch.equal(ranks.all_reduce(x.clone()), x)
    assert torch.equal(ranks.all_gather(x, 7), x)
    found = x.clone()
    ranks.broadcast(found)
    assert torch.equal(found, x)


def test_memory_that_cards_share_holds_a_sum(ranks):
    from penstock.worker.backends.triton.peer_sums import _adds_up, _shared

    sums = _shared(ranks.device)
    assert _adds_up(sums, 0, 1, ranks.device)
    part = torch.randn(3, 4096, device=ranks.device).bfloat16()
    assert sums.holds(part) and torch.equal(sums.all_reduce(part), part)


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
