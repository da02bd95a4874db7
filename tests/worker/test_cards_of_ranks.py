"""Cards that don't fit a tree are refused, or planned with, in a sentence that says what to do.

Which groups of cards add few rows up in memory that all of them see, and what torch's operation is asked for; what is
in that memory needs cards (`tests/gpu/test_nccl.py`). Every rank on a card waits for its own steps, and says itself if
its device fails.
"""

import queue
from types import SimpleNamespace

import pytest
import torch
from builders.cases import for_each
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.kernels.triton.launch.switches import Switch
from penstock.protocol.errors import ConfigError
from penstock.protocol.options.config import EngineConfig
from penstock.worker.__main__ import ResultSender, _forget, _with_heartbeat
from penstock.worker.backends.triton import peer_sums as module
from penstock.worker.backends.triton.card_ranks import CardRanks
from penstock.worker.backends.triton.peer_sums import PeerSums
from penstock.worker.backends.visible_cards import Card, chosen_cards, unequal, why_hidden

GIB = 1 << 30
UUIDS = [f"GPU-{digit * 8}-0000-0000-0000-000000000000" for digit in "0123"]
WHOLE = [Card(number, "NVIDIA H200", 140 * GIB, uuid) for number, uuid in enumerate(UUIDS)]
SLICE = "NVIDIA H200 MIG 3g.71gb"


def seen_by_cuda(variable: str | None) -> list[Card]:
    """What CUDA shows of four cards: entries in order, up to the first that is no card; none if one repeats."""
    if variable is None:
        return WHOLE
    found: list[int] = []
    for entry in map(str.strip, variable.split(",")):
        fits = [n for n, uuid in enumerate(UUIDS) if uuid.lower().startswith(entry.lower()) and len(entry) > 4]
        number = int(entry) if entry.isdecimal() else fits[0] if len(fits) == 1 else -1
        if not 0 <= number < len(WHOLE):
            break
        if number in found:
            return []
        found.append(number)
    return [WHOLE[number]._replace(number=visible) for visible, number in enumerate(found)]


def options(size: int, devices: list[int] | None) -> EngineConfig:
    given = {} if devices is None else {"devices": devices}
    return EngineConfig.from_options("model", tensor_parallel_size=size, device="cuda", **given)


ENTRIES = st.sampled_from(["0", "1", "2", "3", " 2", "03", "4", "99", "-1", "", "GPU-1", "gpu-22222222", "GPU-", "x"])


@settings(max_examples=200, deadline=None)
@given(
    variable=st.none() | st.lists(ENTRIES, max_size=5).map(",".join),
    size=st.integers(1, 5),
    devices=st.none() | st.lists(st.integers(0, 5), min_size=1, max_size=4),
)
def test_every_rank_has_a_card_of_its_own_or_a_sentence_says_why_not(variable, size, devices):
    seen, config = seen_by_cuda(variable), options(size, devices)
    named = devices or list(range(len(seen)))
    fits = len(named) >= size and len(set(named)) == len(named) and all(number < len(seen) for number in named)
    try:
        chosen = chosen_cards(config, seen, variable)
    except ConfigError as error:
        sentence = str(error)
        assert not (fits and seen), sentence
        does = ("Or use device='cpu'", "Use a smaller", "Numbers count", "can't share")
        assert sentence.endswith(".") and any(words in sentence for words in does), sentence
        if devices is None and variable is not None:  # nothing else is wrong
            hides = len(seen) < len(variable.split(","))
            assert ("CUDA_VISIBLE_DEVICES" in sentence) == hides, sentence
    else:
        assert fits and [card.number for card in chosen] == named[:size]


@for_each("variable, shown, words", [
    (None, 4, ""), ("0,1,2,3", 4, ""), (UUIDS[2], 1, ""),
    ("", 0, "hides every card"), (" , ", 0, "hides every card"),
    ("0,0", 0, "names 0 twice"), (f"{UUIDS[1]},{UUIDS[1].upper()}", 0, "twice"), ("1,01", 0, "twice"),
    ("0,7,1", 1, "ends for CUDA at '7'"), ("-1", 0, "ends for CUDA at '-1'"), ("GPU-", 0, "ends for CUDA at 'GPU-'"),
    ("MIG-a,MIG-b", 1, "names 2 slices, and CUDA shows a process the first alone"),
])  # fmt: skip
def test_what_hides_cards_is_named(variable, shown, words):
    assert words in why_hidden(variable, shown) and bool(words) == bool(why_hidden(variable, shown))


def test_cards_that_differ_are_planned_with_and_said():
    other = Card(1, "NVIDIA A100", 79 * GIB, "GPU-a")
    notice = unequal([WHOLE[0], other])
    assert "NVIDIA A100 (79 GiB) and NVIDIA H200 (140 GiB)" in notice and "fit on the fullest" in notice
    assert chosen_cards(options(2, None), [WHOLE[0], other], None) == [WHOLE[0], other]
    assert unequal(WHOLE) is None and unequal([WHOLE[0], WHOLE[1]._replace(total_bytes=139 * GIB)]) is None
    assert unequal([WHOLE[0], WHOLE[1]._replace(total_bytes=70 * GIB)]) is not None


def test_a_slice_serves_one_rank():
    parts = [Card(0, SLICE, 70 * GIB, "MIG-a"), Card(1, SLICE, 70 * GIB, "MIG-b")]
    assert chosen_cards(options(1, None), parts, "MIG-a") == parts[:1]
    with pytest.raises(ConfigError, match="3g.71gb: slices .* Use tensor_parallel_size=1 for each slice"):
        chosen_cards(options(2, None), parts, "0,1")


# --- sums in memory that all cards see --------------------------------------------------------------------------------


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


# --- a device that fails ----------------------------------------------------------------------------------------------


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
