"""Which groups of cards get memory that all of them see; what is in it needs cards (`tests/gpu/test_nccl.py`)."""

import pytest
import torch

from penstock.kernels.triton.launch.switches import Switch
from penstock.worker.backends.triton import peer_memory as module

pytestmark = pytest.mark.long  # as of all that is unproven

CARD = torch.device("cuda", 0)


@pytest.fixture(autouse=True)
def triton_that_computes(monkeypatch):
    monkeypatch.setattr(module.triton, "lack", lambda: "")
    monkeypatch.setattr(module, "PEER_MEMORY", Switch("PENSTOCK_UNHEARD_OF", True, ""))


def met(numbers: list[int]) -> list[list[int]]:
    """Of two ranks, the other of which has card 1, and everything else that this one has."""
    return [numbers, [1] if numbers == [CARD.index] else numbers]


def test_cards_that_do_not_see_each_other_get_none(monkeypatch):
    monkeypatch.setattr(torch.cuda, "can_device_access_peer", lambda one, other: False)
    monkeypatch.setattr(module, "_shared", pytest.fail)
    assert module.peer_memory(0, CARD, met) is None


def test_where_it_cannot_be_had_nobody_has_it_and_the_log_says_why(monkeypatch, caplog):
    def refused(rank: int, device: torch.device) -> None:
        raise RuntimeError("no fabric here")

    monkeypatch.setattr(torch.cuda, "can_device_access_peer", lambda one, other: True)
    monkeypatch.setattr(module, "_shared", refused)
    assert module.peer_memory(0, CARD, met) is None
    assert "no fabric here" in caplog.text


def test_one_rank_that_has_none_or_whose_sums_come_out_wrong_is_enough_for_nobody_to_have_it(monkeypatch):
    monkeypatch.setattr(torch.cuda, "can_device_access_peer", lambda one, other: True)
    monkeypatch.setattr(module, "_shared", lambda rank, device: "memory")
    monkeypatch.setattr(module, "_adds_up", lambda memory, device: memory == "memory")
    assert module.peer_memory(0, CARD, lambda numbers: [numbers, numbers]) == "memory"
    assert module.peer_memory(0, CARD, lambda numbers: [numbers, [0]]) is None
    monkeypatch.setattr(module, "_adds_up", lambda memory, device: False)
    assert module.peer_memory(0, CARD, lambda numbers: [numbers, [1]]) is None
