"""Which groups of cards add few rows up in memory that all of them see, and what torch's operation is asked for.

What is in that memory needs cards (`tests/gpu/test_nccl.py`).
Every rank on a card waits for its own steps, and says itself if its device fails.
"""

import queue
from types import SimpleNamespace

import pytest
import torch
from builders.cases import for_each

from penstock.kernels.triton.launch.switches import Switch
from penstock.worker.__main__ import ResultSender, _forget, _with_heartbeat
from penstock.worker.backends.triton import peer_sums as module
from penstock.worker.backends.triton.card_ranks import CardRanks
from penstock.worker.backends.triton.peer_sums import PeerSums

CARD = torch.device("cuda", 0)


@pytest.fixture
def cards_that_see_each_other(monkeypatch):
    monkeypatch.setattr(torch.cuda, "can_device_access_peer", lambda one, other: True)
    monkeypatch.setattr(module, "PEER_MEMORY", Switch("PENSTOCK_UNHEARD_OF", True, ""))


def refused(device: torch.device) -> None:
    raise RuntimeError("no fabric here")


@for_each("theirs, is_seen, shared, adds_up", [
    (1, False, pytest.fail, None), (1, True, refused, None), (0, True, lambda device: "memory", None),
    (1, True, lambda device: "memory", False),
])  # fmt: skip
@pytest.mark.usefixtures("cards_that_see_each_other")
def test_one_rank_that_cannot_is_enough_for_nobody_to_have_it(monkeypatch, caplog, theirs, is_seen, shared, adds_up):
    """Of two ranks; the other one says `theirs` whenever it is asked."""
    caplog.clear()
    monkeypatch.setattr(torch.cuda, "can_device_access_peer", lambda one, other: is_seen)
    monkeypatch.setattr(module, "_shared", shared)
    monkeypatch.setattr(module, "_adds_up", lambda *given: adds_up)
    assert module.peer_sums(0, CARD, lambda numbers: [numbers, [theirs]]) is None
    assert (shared is refused) == ("no fabric here" in caplog.text)
    monkeypatch.setattr(torch.cuda, "can_device_access_peer", lambda one, other: True)
    monkeypatch.setattr(module, "_shared", lambda device: "memory")
    monkeypatch.setattr(module, "_adds_up", lambda *given: True)
    assert module.peer_sums(0, CARD, lambda numbers: [numbers, [1]]) == "memory"


@pytest.mark.usefixtures("cards_that_see_each_other")
def test_sums_that_fit_are_added_by_torch_s_operation_and_others_by_the_collective(monkeypatch):
    schema = str(torch.ops.symm_mem.one_shot_all_reduce_copy.default._schema)
    assert "(Tensor symm_buffer, Tensor local_input, str reduce_op, str group_name) -> Tensor" in schema
    asked = []

    def of_two_ranks(room: torch.Tensor, x: torch.Tensor, operation: str, group: str) -> torch.Tensor:
        asked.append((room.shape, room.dtype, operation, group))
        return 2 * room.copy_(x)

    monkeypatch.setattr(torch.ops.symm_mem, "one_shot_all_reduce_copy", of_two_ranks)
    monkeypatch.setattr(torch.distributed, "all_reduce", lambda x: x.fill_(7))
    sums = PeerSums(torch.empty(512, dtype=torch.uint8), "0")
    ranks = CardRanks(0, 2, device=torch.device("cpu"), is_ordered=False, sums=sums)
    for shape, dtype, is_held in (
        ((3, 40), torch.float32, True), ((16, 16), torch.bfloat16, True), ((3, 43), torch.float32, False),
        ((1, 3), torch.float32, False), ((2, 16), torch.float16, False), ((0, 16), torch.float32, False),
    ):  # fmt: skip
        x = torch.randn(shape).to(dtype)
        expected = 2 * x if is_held else torch.full_like(x, 7)
        assert torch.equal(ranks.all_reduce(x.T.contiguous().T), expected), (shape, dtype)
        assert not is_held or asked.pop() == (x.shape, dtype, "sum", "0")
    assert not asked


def test_what_fails_on_a_device_behind_a_launch_is_told_by_its_own_rank_and_its_step_never_ends():
    ended, failed = [], queue.SimpleQueue()
    heartbeat = SimpleNamespace(end_step=lambda: ended.append("step"))
    results = ResultSender(_forget, failed.put, in_thread=True)

    def lost() -> None:
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    results.take(_with_heartbeat(lambda: None, heartbeat))
    results.take(_with_heartbeat(lost, heartbeat))
    assert "illegal memory access" in str(failed.get(timeout=60))
    assert ended == ["step"]
