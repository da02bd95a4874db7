"""Pins a rank to its share of the cores that this process may use, NUMA node by NUMA node.

A pinned rank has its memory nearby, since memory is allocated near the core that first touches it. A single rank shares
the cores with other processes and is not pinned.
"""

import os
from pathlib import Path

from ...protocol.options.cores import NODES, cores_of_nodes


def pin(rank: int, size: int, nodes: list[int] | None, root: Path = NODES) -> None:
    """Keep this process to its rank's share of the cores, or of those of the NUMA `nodes` asked for."""
    if size > 1 or nodes:
        os.sched_setaffinity(0, share(rank, size, cores_by_node(nodes, root)))


def cores_by_node(nodes: list[int] | None, root: Path = NODES) -> list[int]:
    """Cores that this process may use, node by node."""
    return [core for cores in cores_of_nodes(nodes, root).values() for core in cores]


def share(rank: int, size: int, cores: list[int]) -> set[int]:
    """A rank's cores; with fewer cores than ranks, ranks share one."""
    first, last = rank * len(cores) // size, (rank + 1) * len(cores) // size
    return set(cores[first : max(last, first + 1)])
