"""Sums over ranks in memory that they share, by processes that wait for one another, in Triton's interpreter."""

from builders import interpreted  # noqa: F401  isort: skip  before anything that imports triton

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from builders.elsewhere import holds_addresses
from builders.operation_examples.ranks import memory_of
from builders.operation_examples.table import EXAMPLES

from penstock.kernels.reference.ranks import add_norm_of_ranks
from penstock.kernels.registry import OPS
from penstock.kernels.triton.unproven.operations import UnprovenOperations
from penstock.worker.backends.triton.card_ranks import CardRanks

pytestmark = pytest.mark.long  # as of all that is unproven

# A rank: many steps of as many rows as chance gives, some of which it comes to late.
_RANK = """
import random, sys, time
sys.path.insert(0, sys.argv[1])
from builders import interpreted
from builders.operation_examples.ranks import memory_of
import torch
from penstock.kernels.operands import ROOMS
from penstock.kernels.reference.ranks import add_norm_of_ranks
from penstock.kernels.reference.pointwise import add_rms_norm

folder, rank, size, steps = sys.argv[2], *map(int, sys.argv[3:])
ROWS, WIDTH, DTYPE = 3, 40, torch.bfloat16
rooms = [
    torch.from_file(f"{folder}/room{each}", True, ROOMS * ROWS * WIDTH, dtype=DTYPE).view(torch.uint8)
    for each in range(size)
]
flags = [
    torch.from_file(f"{folder}/flags{each}", True, ROWS * size, dtype=torch.int32).view(ROWS, size)
    for each in range(size)
]
peers = memory_of(rank, rooms, flags)
same, own = random.Random(0), random.Random(rank)
weight = torch.rand(WIDTH, generator=torch.Generator().manual_seed(0)).to(DTYPE)
for step in range(steps):
    rows = same.randint(1, ROWS)
    generator = torch.Generator().manual_seed(step)
    parts = torch.randn(size, rows, WIDTH, generator=generator).to(DTYPE)
    streams = torch.randn(rows, WIDTH, generator=generator).to(DTYPE).repeat(2, 1, 1)
    if own.random() < 0.2:
        time.sleep(own.random() / 50)
    found = add_norm_of_ranks.versions["triton"](parts[rank], peers, streams[0], weight, 1e-6)
    expected = add_rms_norm.reference(streams[1], parts.float().sum(0).to(DTYPE), weight, 1e-6)
    assert torch.equal(streams[0], streams[1]), step
    torch.testing.assert_close(found, expected, rtol=1e-2, atol=1e-2)
"""


@pytest.mark.parametrize(("size", "steps"), [(2, 150), (3, 150), (4, 150)])
def test_every_rank_has_the_sum_of_all_step_after_step(tmp_path, size, steps):
    tests = str(Path(__file__).parents[2])
    ranks = [
        subprocess.Popen(
            [sys.executable, "-P", "-c", _RANK, tests, str(tmp_path), *map(str, (rank, size, steps))],
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(size)
    ]
    try:
        told = [rank.communicate(timeout=300)[1] for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
    assert [rank.returncode for rank in ranks] == [0] * size, "\n".join(told)


def test_a_sum_waits_for_the_norm_behind_it_and_what_is_large_goes_another_way(monkeypatch):
    """One of two ranks has all the memory, so the sum is its own part."""
    cpu = torch.device("cpu")
    room, flags = torch.empty(1 << 12, dtype=torch.uint8), torch.zeros(4, 1, dtype=torch.int32)
    ranks = CardRanks(0, 2, device=cpu, is_ordered=False, peers=memory_of(0, [room], [flags]))
    ops = UnprovenOperations(cpu, torch.float32, ranks, False)
    part, stream, weight = torch.randn(3, 40), torch.randn(3, 40), torch.rand(40)
    expected = add_norm_of_ranks.reference(part, ranks.peers, stream.clone(), weight, 1e-6)
    summed = stream + part
    torch.testing.assert_close(ops.add_rms_norm(stream, ops.all_reduce(part), weight, 1e-6), expected)
    torch.testing.assert_close(stream, summed)
    monkeypatch.setattr(CardRanks, "all_reduce", lambda self, x: x + 1)
    for rows, width in ((5, 8), (4, 200)):
        assert torch.equal(ops.all_reduce(torch.zeros(rows, width)), torch.ones(rows, width))


def test_no_other_operation_is_given_addresses_of_the_host():
    """A card that is handed such addresses would be of no more use to the process."""
    holding = {name for name in OPS if any(map(holds_addresses, EXAMPLES[name](0)))}
    assert holding == {"ranks.add_norm_of_ranks"}
