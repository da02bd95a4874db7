"""Pins a rank to its share of the cores that this process may use, NUMA node by NUMA node.

A pinned rank has its memory nearby, since memory is allocated near the core that first touches it. A single rank shares
the cores with other processes and is not pinned.
"""

import os
from pathlib import Path

from ...protocol.errors import ConfigError

_NODES = Path("/sys/devices/system/node")


def pin(rank: int, size: int, nodes: list[int] | None, root: Path = _NODES) -> None:
    """Keep this process to its rank's share of the cores, or of those of the NUMA `nodes` asked for."""
    if size > 1 or nodes:
        os.sched_setaffinity(0, share(rank, size, cores_by_node(nodes, root)))


def cores_by_node(nodes: list[int] | None, root: Path = _NODES) -> list[int]:
    """Cores that this process may use, node by node."""
    allowed = os.sched_getaffinity(0)
    found = {int(path.name.removeprefix("node")): _cores(path) & allowed for path in root.glob("node[0-9]*")}
    found = {node: cores for node, cores in sorted(found.items()) if cores} or {0: allowed}
    unknown = sorted(set(nodes or ()) - set(found))
    if unknown:
        raise ConfigError(
            f"devices={nodes}: this machine lets the process use the NUMA nodes {list(found)}, not {unknown}. "
            "Name some of these, or leave devices out."
        )
    return [core for node in nodes or found for core in sorted(found[node])]


def share(rank: int, size: int, cores: list[int]) -> set[int]:
    """A rank's cores; with fewer cores than ranks, ranks share one."""
    first, last = rank * len(cores) // size, (rank + 1) * len(cores) // size
    return set(cores[first : max(last, first + 1)])


def _cores(node: Path) -> set[int]:
    """Parse the kernel's list of cores, such as "0-3,8"."""
    cores: set[int] = set()
    for part in (node / "cpulist").read_text().strip().split(","):
        if part:
            first, _, last = part.partition("-")
            cores.update(range(int(first), int(last or first) + 1))
    return cores
