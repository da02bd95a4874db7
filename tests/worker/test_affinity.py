"""Ranks on a CPU share its cores out among them, node by node."""

import os

import pytest

from penstock.protocol.errors import ConfigError
from penstock.worker.start.affinity import cores_by_node, share


@pytest.fixture
def nodes(tmp_path, monkeypatch):
    """Two nodes of four cores each, of which core 5 is not ours."""
    for node, cores in enumerate(("0-3", "4-5,8-9")):
        (tmp_path / f"node{node}").mkdir()
        (tmp_path / f"node{node}" / "cpulist").write_text(cores + "\n")
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2, 3, 4, 8, 9})
    return tmp_path


def test_cores_of_one_node_stand_beside_each_other(nodes):
    assert cores_by_node(None, nodes) == [0, 1, 2, 3, 4, 8, 9]
    assert cores_by_node([1, 0], nodes) == [4, 8, 9, 0, 1, 2, 3]


def test_a_node_that_is_not_there_is_named(nodes):
    with pytest.raises(ConfigError, match=r"NUMA nodes \[0, 1\], not \[2\]"):
        cores_by_node([0, 2], nodes)


def test_a_machine_that_tells_no_nodes_has_one(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {2, 7})
    assert cores_by_node(None, tmp_path) == [2, 7]


def test_ranks_share_no_core_while_there_are_enough():
    parts = [share(rank, 3, [0, 1, 2, 3, 4, 8, 9]) for rank in range(3)]
    assert set.union(*parts) == {0, 1, 2, 3, 4, 8, 9} and sum(map(len, parts)) == 7


def test_more_ranks_than_cores_share_them():
    assert [share(rank, 3, [4, 5]) for rank in range(3)] == [{4}, {4}, {5}]
