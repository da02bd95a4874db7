"""Chooses the GPU of each rank, and says why the cards that this process sees don't fit a tree.

Pure functions over a description of cards, which `torch/card.py` gets from torch. What `CUDA_VISIBLE_DEVICES` hides
can't be seen, so the sentences quote it and name the entry at which CUDA stopped.
"""

import re
from collections.abc import Sequence
from itertools import pairwise, takewhile
from typing import NamedTuple

from ...protocol.errors import ConfigError
from ...protocol.fields.rules import shown
from ...protocol.files.sizes import exact_size
from ...protocol.options.config import EngineConfig
from ...protocol.ranks.nccl_failures import explained
from ...protocol.survey import VISIBLE_DEVICES

_NUMBER = re.compile(r"\+?\d+|-0+(?!\d)", re.ASCII)
_UUID = re.compile(r"GPU-|MIG-")
_NO_CARD = {
    "number": "which is no card's number",
    "GPU-": "with which no card's UUID begins, or several do",
    "MIG-": "with which no slice's UUID begins",
    "": "which is no card's number or UUID",
}
# What torch says where CUDA works and shows no card, which the variable can bring about.
_NO_DEVICE = re.compile(r"No CUDA GPUs are available|Error 10[01]:")
_SAME = 0.02  # cards of one kind differ by less of their memory: pages that were retired, error correction


class Card(NamedTuple):
    number: int  # as CUDA counts what is visible
    name: str
    total_bytes: int
    uuid: str

    @property
    def is_slice(self) -> bool:
        """Whether it is a part of a card (multi-instance GPU)."""
        return " MIG " in self.name

    def __str__(self) -> str:
        return f"{self.name} ({exact_size(self.total_bytes)})"


def chosen_cards(config: EngineConfig, seen: Sequence[Card], variable: str | None, words: str = "") -> list[Card]:
    """The card of each rank of this machine. `variable` is the value of CUDA_VISIBLE_DEVICES, and `words` are torch's
    about finding no card."""
    if not seen:
        why = why_none(variable, words)
        raise ConfigError(f"device='cuda', and torch finds no CUDA device here: {why}. Or use device='cpu'.")
    size, hidden = config.ranks_per_node, why_hidden(variable, len(seen))
    wanted = config.own_devices or list(range(len(seen)))
    if absent := sorted({number for number in wanted if number >= len(seen)}):
        raise ConfigError(
            f"devices={config.devices} names card {absent[0]}, and {_visible(seen)}{_beside(hidden)}. Numbers count "
            "what is visible, from 0."
        )
    if twice := sorted({number for number in wanted if wanted.count(number) > 1}):
        raise ConfigError(f"devices={config.devices} names card {twice[0]} twice, and ranks can't share a card.")
    if len(wanted) < size:
        named = f"devices={config.devices} names {len(wanted)}" if config.own_devices else _visible(seen)
        raise ConfigError(
            f"{_ranks(config)} needs {size} here, a card for each rank, and {named}{_beside(hidden)}. Use a smaller "
            "tensor_parallel_size or more cards."
        )
    chosen = [seen[number] for number in wanted[:size]]
    if size > 1 and (part := next((card for card in chosen if card.is_slice), None)) is not None:
        raise ConfigError(
            f"{_ranks(config)} can't use {part.name}: slices of cards don't reach one another's memory, and "
            "NCCL takes two of one card for the same. Use tensor_parallel_size=1 for each slice "
            f"({VISIBLE_DEVICES}=MIG-… chooses it), or whole cards."
        )
    return chosen


def unequal(chosen: Sequence[Card]) -> str | None:
    """What follows if the cards of a tree differ, as a notice; None if they don't."""
    least, most = (choose(chosen, key=lambda card: card.total_bytes) for choose in (min, max))
    if len({card.name for card in chosen}) == 1 and least.total_bytes >= (1 - _SAME) * most.total_bytes:
        return None
    kinds = " and ".join(sorted({str(card) for card in chosen}))
    return (
        f"The cards of this tree differ: {kinds}. Every rank gets as many KV blocks as fit on the fullest, and a step "
        "takes as long as on the slowest. devices=… chooses others."
    )


def why_none(variable: str | None, words: str) -> str:
    """Why CUDA shows no card at all, as the end of a sentence; `words` are torch's."""
    if variable is not None and (not words or _NO_DEVICE.search(words)):
        return why_hidden(variable, 0)
    if (why := explained(f"CUDA: {words}")) is not None:
        return why.rstrip(".")
    return f"check the driver (nvidia-smi){f'; torch says: {words}' if words else ''}"


def why_hidden(variable: str | None, num_seen: int) -> str:
    """What CUDA_VISIBLE_DEVICES does if it hides cards, as the end of a sentence; "" if it hides none.

    CUDA takes what stands between commas in order, numbers or beginnings of UUIDs, up to the first that is no card; of
    an entry the number that it begins with. It shows no card if one repeats, and one slice at most.
    """
    if variable is None:
        return ""
    entries, value = variable.split(","), f"{VISIBLE_DEVICES}={shown(variable)}"
    kinds = [_kind(entry) for entry in entries]
    if not num_seen and not kinds[0]:
        return f"{value} hides every card; unset it, or name cards between commas (nvidia-smi -L lists them)"
    if not num_seen and (twice := _repeated(list(takewhile(lambda each: _kind(each) == kinds[0], entries)))):
        return f"{value} names {twice}, and CUDA shows no card if one is named twice; name each once"
    if 0 < num_seen < len(entries) and set(kinds) == {"MIG-"}:
        return f"{value} names {len(entries)} slices, and CUDA shows a process the first alone"
    does = [f"reads {shown(each)} as {shown(_number(each))}" for each in entries[:num_seen] if _is_cut(each)][:1]
    advice = "put commas between cards" if does else "nvidia-smi -L lists what there is"
    if num_seen < len(entries):
        entry, kind = entries[num_seen], kinds[num_seen]
        read = f" (read as {shown(_number(entry))})" if _is_cut(entry) else ""
        why = _NO_CARD[kind] if kind in ("", kinds[0]) else "which names no card beside entries of another kind"
        does.append(f"stops at {shown(entry)}{read}, {why}")
    return f"with {value} CUDA {' and '.join(does)}; {advice}" if does else ""


def _kind(entry: str) -> str:
    """How the entry names a card: by a "number", or by a UUID (its beginning); "" if in no way."""
    if found := _UUID.match(entry):
        return found[0]
    return "number" if _NUMBER.match(entry.strip()) else ""


def _number(entry: str) -> str:
    """The number that the entry begins with. It may have any length."""
    found = _NUMBER.match(entry.strip())
    return found[0].lstrip("+-0") or "0" if found else ""


def _is_cut(entry: str) -> bool:
    """Whether CUDA reads a number, and there is more."""
    return _kind(entry) == "number" and not _NUMBER.fullmatch(entry.strip())


def _repeated(entries: Sequence[str]) -> str:
    """Two entries of one kind that name one card, or may do so: UUIDs are beginnings. "" if there are none."""
    named = sorted((entry if _UUID.match(entry) else _number(entry), entry) for entry in entries)
    for (name, entry), (next_name, next_entry) in pairwise(named):  # what begins with a name comes right behind it
        if name == next_name or (_UUID.match(name) and next_name.startswith(name)):
            return f"{shown(entry)} and {shown(next_entry)}"
    return ""


def _ranks(config: EngineConfig) -> str:
    on = f" on nnodes={config.nnodes}" if config.nnodes > 1 else ""
    return f"tensor_parallel_size={config.tensor_parallel_size}{on}"


def _visible(seen: Sequence[Card]) -> str:
    return "1 is visible" if len(seen) == 1 else f"{len(seen)} are visible"


def _beside(hidden: str) -> str:
    return f" ({hidden})" if hidden else ""
