"""Cards that don't fit a tree are refused, or planned with, in a sentence that says what to do."""

import re
import sys
from itertools import permutations, takewhile
from types import SimpleNamespace

import pytest
import torch
from builders.cases import for_each
from hypothesis import example, given, settings
from hypothesis import strategies as st

from penstock.protocol.errors import ConfigError
from penstock.protocol.fields.rules import shown
from penstock.protocol.options.config import EngineConfig
from penstock.worker.backends import select
from penstock.worker.backends.torch import card
from penstock.worker.backends.visible_cards import Card, chosen_cards, unequal, why_hidden

GIB = 1 << 30
UUIDS = [f"GPU-{digit * 8}-0000-0000-0000-000000000000" for digit in "0123"]
WHOLE = [Card(number, "NVIDIA H200", 140 * GIB, uuid) for number, uuid in enumerate(UUIDS)]
SLICE = "NVIDIA H200 MIG 3g.71gb"


def read_by_torch(variable: str) -> list[int] | list[str]:
    """The numbers or UUIDs that torch reads, of any length; a sign without digits, at which it fails, is no number."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CUDA_VISIBLE_DEVICES", re.sub(r"(^|,)(\s*)[+-](?!\d)", r"\1\2x", variable))
        limit = sys.get_int_max_str_digits()
        sys.set_int_max_str_digits(0)
        try:
            return torch.cuda._parse_visible_devices()
        finally:
            sys.set_int_max_str_digits(limit)


def seen_by_cuda(variable: str | None) -> list[Card]:
    """What is visible of four cards, by torch's own reading of the variable."""
    if variable is None:
        return WHOLE
    numbers = read_by_torch(variable)
    if numbers and isinstance(numbers[0], str):
        numbers = torch.cuda._transform_uuid_to_ordinals(numbers, UUIDS)
    found = list(takewhile(lambda number: number < len(WHOLE), numbers))
    return [WHOLE[number]._replace(number=visible) for visible, number in enumerate(found)]


def options(size: int, devices: list[int] | None) -> EngineConfig:
    given = {} if devices is None else {"devices": devices}
    return EngineConfig.from_options("model", tensor_parallel_size=size, device="cuda", **given)


NONE = "No CUDA GPUs are available"
ENTRIES = st.one_of(
    st.sampled_from(
        ["0", "1", "2", "3", " 2", "03", "+1", "4", "99", "-1", "-0", "-00", "-05", "+", "-", "", "x", "0x1"]
    ),
    st.sampled_from(
        ["GPU-1", "GPU-1111", "gpu-22222222", "GPU-", " GPU-0", "GPU-3 ", "MIG-a", "NoDevFiles", "1e9", "0-3"]
    ),
    st.sampled_from(
        [
            *UUIDS,
            "9" * 5000,
            "0" * 5000,
            "7" * 5000 + " 1",
            f"{'0' * 5000}1",
            "x" * 3000,
            "1gpu",
            "2 3",
            "0;1",
            "1\n2",
            "1\t",
        ]
    ),
    st.text("0123+-;: \t\n|/.x", max_size=4),
    st.integers(-5, 10**30).map(str),
)
VARIABLES = st.lists(ENTRIES, min_size=1, max_size=5).map(",".join)


@settings(max_examples=300)
@given(
    variable=st.none() | VARIABLES,
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
        if devices is None and variable is not None and len(seen) < len(variable.split(",")):  # nothing else is wrong
            assert "CUDA_VISIBLE_DEVICES" in sentence
    else:
        assert fits and [card.number for card in chosen] == named[:size]


@settings(max_examples=500)
@given(variable=VARIABLES)
@example("0 1")
@example("0;1")
@example("0\n1")
@example("-1")
@example("GPU-1,GPU-1111")
@example("GPU-0,0")
@example("1," + "9" * 5000)
def test_the_entry_at_which_cuda_stopped_is_named(variable):
    entries, seen = variable.split(","), seen_by_cuda(variable)
    hidden = why_hidden(variable, len(seen))
    cut = [entry for entry in entries[: len(seen)] if not re.fullmatch(r"\s*[+-]?\d+\s*|(GPU|MIG)-[^,]*", entry)]
    if not seen and not read_by_torch(entries[0]):
        assert "hides every card; unset it" in hidden
    elif not seen and "names" in hidden:
        alone = [names[0] for entry in entries if (names := read_by_torch(entry))]
        pairs = [pair for pair in permutations(alone, 2) if type(pair[0]) is type(pair[1])]
        assert any(one == other or (isinstance(one, str) and other.startswith(one)) for one, other in pairs), hidden
    elif len(seen) < len(entries):
        assert seen or not seen_by_cuda(entries[0]), "a card is named twice"
        assert f"CUDA stops at {shown(entries[len(seen)])}" in hidden.replace("and stops", "CUDA stops"), hidden
    else:
        assert bool(hidden) == bool(cut)
    assert not cut or f"reads {shown(cut[0])} as '{read_by_torch(cut[0])[0]}'" in hidden
    assert len(hidden) < 600 and "\n" not in hidden


@for_each("variable, num_seen, words", [
    (None, 4, ""), ("0,1,2,3", 4, ""), (UUIDS[2], 1, ""), ("+1,-0, 02 ", 3, ""),
    ("", 0, "hides every card; unset it"), (" , ", 0, "hides every card"), ("-1", 0, "hides every card; unset it"),
    ("NoDevFiles", 0, "hides every card"), ("-07,0", 0, "hides every card"), (" GPU-0", 0, "hides every card"),
    ("0,0", 0, "names '0' and '0'"), (f"{UUIDS[1]},{UUIDS[1]}", 0, "named twice"), ("1,01", 0, "names '01' and '1'"),
    ("9,x,9", 0, "stops at '9', which is no card's number"),
    ("GPU-1,GPU-11", 0, "names 'GPU-1' and 'GPU-11', and CUDA shows no card if one is named twice"),
    ("0,7,1", 1, "stops at '7', which is no card's number; nvidia-smi -L"), ("0,-1,1", 1, "stops at '-1'"),
    ("GPU-", 0, "stops at 'GPU-', with which no card's UUID begins, or several do"), ("0,,1", 1, "stops at ''"),
    ("0 1", 1, "CUDA reads '0 1' as '0'; put commas between cards"), ("0;1", 1, "reads '0;1' as '0'"),
    ("0\n1", 1, r"reads '0\n1' as '0'"), ("8 9", 0, "stops at '8 9' (read as '8'), which is no card's number"),
    ("1gpu,9", 1, "reads '1gpu' as '1' and stops at '9'"), ("0,GPU-1", 1, "stops at 'GPU-1', which names no card"),
    ("GPU-0, GPU-1", 1, "stops at ' GPU-1', which is no card's number or UUID"), ("9" * 5000, 0, "stops at '999"),
    ("MIG-a,MIG-b", 1, "names 2 slices, and CUDA shows a process the first alone"),
])  # fmt: skip
def test_what_hides_cards_is_named(variable, num_seen, words):
    hidden = why_hidden(variable, num_seen)
    assert words in hidden and bool(words) == bool(hidden), hidden


@for_each("variable, words, told", [
    (None, "", "check the driver (nvidia-smi)"), ("0", "", "CUDA stops at '0'"),
    ("0", NONE, "CUDA stops at '0'"), ("-1", NONE, "unset it"),
    (None, NONE, "check the driver (nvidia-smi); torch says: No CUDA GPUs"),
    ("0", "Unexpected error. Error 101: invalid device ordinal", "CUDA stops at '0'"),
    ("0", "Found no NVIDIA driver on your system", "check the driver (nvidia-smi); torch says: Found no NVIDIA driver"),
    ("0", "Unexpected error from cudaGetDeviceCount(). Error 802: system not yet initialized", "fabricmanager"),
    ("", "The NVIDIA driver on your system is too old (found version 11040)", "update it"),
])  # fmt: skip
def test_no_card_at_all_is_blamed_on_the_variable_only_where_cuda_itself_works(variable, words, told):
    with pytest.raises(ConfigError, match=r"torch finds no CUDA device here: .*\. Or use device='cpu'\.") as raised:
        chosen_cards(options(1, None), [], variable, words)
    assert told in str(raised.value)


@pytest.mark.parametrize("has_torch", [True, False])
@given(variable=st.none() | VARIABLES)
def test_without_a_torch_for_cuda_nothing_else_is_blamed(has_torch, variable):
    """This torch is a build for CPUs; a driver is there."""
    said = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(select, "_LOG", SimpleNamespace(warning=lambda text, *given: said.append(text % given)))
        patch.setattr(select, "has_driver", lambda: True)
        patch.setattr(torch.backends.cuda, "is_built", lambda: False)
        if not has_torch:
            patch.setattr(select, "find_spec", lambda name: None)
        patch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
        if variable is not None:
            patch.setenv("CUDA_VISIBLE_DEVICES", variable)
        what = f"this torch ({torch.__version__}) is a CPU build" if has_torch else "torch isn't installed"
        with pytest.raises(ConfigError) as raised:
            select.chosen_device(options(1, None), 0)
        assert str(raised.value).startswith(f"device='cuda', and {what}. For the GPU: pip ")
        assert "CUDA_VISIBLE" not in str(raised.value)
        device = select.chosen_device(EngineConfig.from_options("model", device="auto"), 0)
    is_meant = variable is not None and re.match(r"\s*(,|$|NoDevFiles|-0*[1-9])", variable)  # and needs no warning
    assert device.kind == "cpu" and len(said) == (0 if is_meant else 1)
    assert is_meant or said[0].startswith(f"There is a GPU, but {what}: computing on the CPU. For the GPU: pip ")


@for_each("variable, words, told", [
    (None, NONE, "check the driver"), ("9" * 5000, NONE, "stops at '99"), ("x", NONE, "hides every card; unset it"),
    ("0", "Unexpected error. Error 802: system not yet initialized", "fabricmanager"),
])  # fmt: skip
def test_a_torch_for_cuda_that_finds_no_card_says_why_in_every_place(variable, words, told, monkeypatch, caplog):
    def init() -> None:
        raise RuntimeError(f"{words}.\nmore")

    monkeypatch.setattr(torch.backends.cuda, "is_built", lambda: True)
    monkeypatch.setattr(torch.cuda, "init", init)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if variable is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", variable)
    caplog.clear()
    assert card.card_of_rank(EngineConfig.from_options("model", device="auto"), 0) is None
    assert "computing on the CPU" in caplog.text and told in caplog.text
    with pytest.raises(ConfigError, match="torch finds no CUDA device here") as raised:
        card.card_of_rank(options(1, None), 0)
    assert told in str(raised.value) and "more" not in str(raised.value)
    assert told in card.torch_survey(None).lack


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
