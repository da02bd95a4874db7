"""Each tree's share of the machine: its options, and the cores that it runs on.

`kv_cache_memory`, `mm_cache` and `num_threads` are given for all trees. Where a machine has several NUMA nodes, a tree
keeps to the cores of one, or of as many as it needs, so that its memory is nearby. GPUs are dealt out in groups.
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from ...protocol.errors import ConfigError
from ...protocol.options.config import EngineConfig, sized
from ...protocol.options.cores import NODES, NodeCores, cores_of_nodes
from .. import machine

_MOST_CARDS = 1024  # where nothing tells how many there are


class Share(NamedTuple):
    config: EngineConfig  # of one tree
    cores: frozenset[int] | None  # that its processes keep to; None: they go wherever the caller's may


def shares_of(config: EngineConfig, root: Path = NODES) -> list[Share]:
    """The share of each tree; raises if there are too few cores or cards."""
    count, threads = config.data_parallel_size, config.num_threads
    lists = [each for each in config.devices or () if isinstance(each, list)]  # given for each tree
    has_cards = config.device == "cuda" or (config.device == "auto" and machine.has_visible_card())
    if has_cards:
        devices: list[Any] = [(cards, None) for cards in _cards(config, lists)]
    else:
        devices = [(None, cores) for cores in _cores(config, lists, root)]
    found = []
    for tree, (cards, own) in enumerate(devices):
        num_cores = len(os.sched_getaffinity(0)) // count if own is None else len(own)
        share = msgspec.structs.replace(
            config,
            kv_cache_memory=_part(config.kv_cache_memory, count),
            mm_cache=_part(config.mm_cache, count),
            num_threads=max(1, num_cores if threads is None else threads // count),
            devices=cards,
            kv_events_config=None if config.kv_events_config is None else config.kv_events_config.of_rank(tree),
            quiet=config.quiet or tree > 0,  # one progress bar is enough
        )
        found.append(Share(share, own))
    return found


def _part(amount: int | None, count: int) -> int | None:
    return None if amount is None else max(1, amount // count)


def _cards(config: EngineConfig, lists: list[list[int]]) -> list[list[int]]:
    """The cards of each tree."""
    ranks = config.tensor_parallel_size
    num_cards = ranks * config.data_parallel_size
    most = len(machine.cards()) or _MOST_CARDS
    if not config.devices and num_cards > most:
        raise ConfigError(f"{sized(config)} needs {num_cards} cards, and there are {most} at most. Use fewer trees.")
    given = config.own_devices or list(range(num_cards))
    cards = lists or [given[first : first + ranks] for first in range(0, num_cards, ranks)]
    if any(len(each) < ranks for each in cards):
        raise ConfigError(
            f"devices={config.devices}: {sized(config)} needs {num_cards} cards, one for each rank of each tree. Name "
            "more cards, or leave devices out."
        )
    return cards


def _cores(config: EngineConfig, lists: list[list[int]], root: Path) -> list[frozenset[int] | None]:
    """The cores of each tree. Only with several nodes or ranks is it worth keeping processes to theirs."""
    count = config.data_parallel_size
    nodes = cores_of_nodes(config.own_devices, root)
    num_cores, ranks = sum(map(len, nodes.values())), count * config.tensor_parallel_size
    if config.num_threads is None and num_cores < ranks:
        raise ConfigError(
            f"{sized(config)} needs {ranks} cores, one for each rank of each tree, and this process may use "
            f"{num_cores}. Use fewer trees; with num_threads, trees share cores."
        )
    if lists:
        same = ((lists.count(each), lists[:tree].count(each)) for tree, each in enumerate(lists))
        return [_part_of([nodes[node] for node in each], *part) for each, part in zip(lists, same)]
    if len(nodes) == 1 and config.tensor_parallel_size == 1 and not config.devices:
        return [None] * count
    return list(dealt(nodes, count))


def dealt(nodes: NodeCores, count: int) -> Iterator[frozenset[int]]:
    """Deal the cores out: whole nodes to each tree, or whole trees to each node, as evenly as that goes.

    A tree crosses the border between two nodes only if it has all the cores of one of them.
    """
    every = list(nodes.values())
    if count <= len(every):
        for tree in range(count):
            yield _part_of(every[tree * len(every) // count : (tree + 1) * len(every) // count], 1, 0)
        return
    left = dict.fromkeys(range(len(every)), 1)  # trees of each node: one, and each further one where cores are most
    for _ in range(count - len(every)):
        left[max(left, key=lambda node: (len(every[node]) / (left[node] + 1), -node))] += 1
    for node, trees in left.items():
        for tree in range(trees):
            yield _part_of([every[node]], trees, tree)


def _part_of(nodes: Sequence[Sequence[int]], parts: int, part: int) -> frozenset[int]:
    """One of several equal parts of these nodes' cores; with fewer cores than parts, parts share one."""
    cores = [core for node in nodes for core in node]
    first, last = part * len(cores) // parts, (part + 1) * len(cores) // parts
    return frozenset(cores[first : max(last, first + 1)])


@contextmanager
def on_cores(cores: frozenset[int] | None) -> Iterator[None]:
    """Let processes that this thread starts keep to these cores. The thread itself is back where it was afterwards."""
    before = os.sched_getaffinity(0)
    try:
        if cores is not None:
            os.sched_setaffinity(0, cores)
        yield
    finally:
        if cores is not None:
            os.sched_setaffinity(0, before)
