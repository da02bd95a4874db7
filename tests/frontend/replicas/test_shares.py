"""Each tree's share of the machine: its cores on pretended NUMA nodes, its cards, its memory and its threads."""

import os
from pathlib import Path

import pytest
from builders.cases import for_each

from penstock.frontend import machine
from penstock.frontend.replicas.shares import Share, on_cores, shares_of
from penstock.protocol.errors import ConfigError
from penstock.protocol.options.config import EngineConfig


def nodes(folder: Path, *lists: str) -> Path:
    for number, cores in enumerate(lists):
        (folder / f"node{number}").mkdir()
        (folder / f"node{number}" / "cpulist").write_text(f"{cores}\n")
    return folder


def shares(root: Path, **options: object) -> list[Share]:
    return shares_of(EngineConfig.from_options("m", **{"device": "cpu", **options}), root)


@for_each("lists, options, cores, threads", [
    # One node: the trees go wherever the caller may, unless ranks or nodes must keep apart.
    (["0-7"], {"data_parallel_size": 2}, [None, None], [4, 4]),
    (["0-7"], {"data_parallel_size": 3}, [None] * 3, [2, 2, 2]),
    (["0-7"], {"data_parallel_size": 2, "tensor_parallel_size": 2}, ["0123", "4567"], [4, 4]),
    (["0-7"], {"data_parallel_size": 2, "devices": [0]}, ["0123", "4567"], [4, 4]),
    # A node each, several trees a node, several nodes a tree.
    (["0-3", "4-7"], {"data_parallel_size": 2}, ["0123", "4567"], [4, 4]),
    (["0-1,4-5", "2-3,6-7"], {"data_parallel_size": 2}, ["0145", "2367"], [4, 4]),
    (["0-3", "4-7"], {"data_parallel_size": 4}, ["01", "23", "45", "67"], [2] * 4),
    (["0-3", "4-7"], {"data_parallel_size": 3}, ["01", "23", "4567"], [2, 2, 4]),
    (["0-5", "6-7"], {"data_parallel_size": 4}, ["01", "23", "45", "67"], [2] * 4),
    (["0-1", "2-3", "4-5", "6-7"], {"data_parallel_size": 2}, ["0123", "4567"], [4, 4]),
    (["0-1", "2-3", "4-7"], {"data_parallel_size": 2}, ["01", "234567"], [2, 6]),
    # A node without cores of this process's, and nodes that are chosen, for all trees or for each.
    (["8-15", "0-7"], {"data_parallel_size": 2}, [None, None], [4, 4]),
    (["0-3", "4-7"], {"data_parallel_size": 2, "devices": [1]}, ["45", "67"], [2, 2]),
    (["0-3", "4-7"], {"data_parallel_size": 2, "devices": [[1], [0]]}, ["4567", "0123"], [4, 4]),
    (["0-3", "4-7"], {"data_parallel_size": 2, "devices": [[1], [1]]}, ["45", "67"], [2, 2]),
    (["0-3", "4-7"], {"data_parallel_size": 2, "devices": [[0, 1], [1]]}, ["01234567", "4567"], [8, 4]),
    # Threads that are given are for all trees, and may be more than cores.
    (["0-3", "4-7"], {"data_parallel_size": 2, "num_threads": 6}, ["0123", "4567"], [3, 3]),
    (["0-3", "4-7"], {"data_parallel_size": 12, "num_threads": 12}, [*"0012334456", "6", "7"], [1] * 12),
])  # fmt: skip
def test_trees_keep_to_their_nodes(monkeypatch, tmp_path, lists, options, cores, threads):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)))
    found = shares(nodes(tmp_path, *lists), **options)
    assert [share.config.num_threads for share in found] == threads
    assert [share.config.devices for share in found] == [None] * len(found)
    if options["data_parallel_size"] == 12:
        assert all(share.cores is not None and len(share.cores) == 1 for share in found)
        assert set().union(*(share.cores or () for share in found)) == set(range(8))
    else:
        assert [share.cores and "".join(map(str, sorted(share.cores))) for share in found] == cores


@for_each("options, words", [
    ({"data_parallel_size": 9}, "data_parallel_size=9 needs 9 cores, one for each rank of each tree, and this process"),
    ({"data_parallel_size": 10**9}, "needs 1000000000 cores"),
    ({"data_parallel_size": 3, "tensor_parallel_size": 4}, "with tensor_parallel_size=4 needs 12 cores"),
    ({"data_parallel_size": 2, "devices": [2]}, "NUMA nodes"),
    ({"data_parallel_size": 2, "devices": [[0], [7]]}, "NUMA nodes"),
    ({"data_parallel_size": 5, "devices": [1]}, "may use 4"),
])  # fmt: skip
def test_what_the_machine_does_not_have_is_refused(monkeypatch, tmp_path, options, words):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)))
    with pytest.raises(ConfigError, match=words):
        shares(nodes(tmp_path, "0-3", "4-7"), **options)


def test_cards_are_dealt_out_in_groups(monkeypatch, tmp_path):
    monkeypatch.setattr(machine, "cards", list)

    def cards(**options: object) -> list[object]:
        return [share.config.devices for share in shares(tmp_path, device="cuda", **options)]

    assert cards(data_parallel_size=3) == [[0], [1], [2]]
    assert cards(data_parallel_size=2, tensor_parallel_size=2) == [[0, 1], [2, 3]]
    assert cards(data_parallel_size=2, devices=[4, 6]) == [[4], [6]]
    assert cards(data_parallel_size=2, tensor_parallel_size=2, devices=[[7, 1], [2, 3]]) == [[7, 1], [2, 3]]
    with pytest.raises(ConfigError, match="needs 4 cards"):
        cards(data_parallel_size=2, tensor_parallel_size=2, devices=[0, 1, 2])
    with pytest.raises(ConfigError, match="needs 1000000000 cards"):
        cards(data_parallel_size=10**9)


def test_memory_is_given_for_all_trees_and_only_one_shows_its_progress(monkeypatch, tmp_path):
    monkeypatch.setattr(machine, "has_visible_card", lambda: False)
    options = {"kv_cache_memory": 1001, "mm_cache": "1KiB", "swap_space": 2, "num_threads": 7, "device": "auto"}
    found = [share.config for share in shares(tmp_path, data_parallel_size=3, **options)]
    assert [(each.kv_cache_memory, each.mm_cache, each.swap_space, each.num_threads) for each in found] == [
        (333, 341, 2.0, 2)
    ] * 3
    assert [each.quiet for each in found] == [False, True, True]


def test_children_of_a_thread_keep_to_its_cores_and_the_thread_is_back_where_it_was():
    before = os.sched_getaffinity(0)
    one = min(before)
    with on_cores(frozenset({one})):
        assert os.sched_getaffinity(0) == {one}
    with on_cores(None):
        pass
    assert os.sched_getaffinity(0) == before
