"""The cores that this process may use, by NUMA node (option `devices`).

Memory is allocated near the core that first touches it, so a process that keeps to one node has its memory nearby.
"""

import os
from collections.abc import Sequence
from pathlib import Path

from ..errors import ConfigError

NODES = Path("/sys/devices/system/node")
NodeCores = dict[int, list[int]]  # cores by node, both ascending


def cores_of_nodes(nodes: Sequence[int] | None, root: Path = NODES) -> NodeCores:
    """The cores of these nodes, or of all; raises for a node on which the process may use none."""
    allowed = os.sched_getaffinity(0)
    found = {int(path.name.removeprefix("node")): _cores(path) & allowed for path in root.glob("node[0-9]*")}
    found = {node: cores for node, cores in sorted(found.items()) if cores} or {0: allowed}
    unknown = sorted(set(nodes or ()) - set(found))
    if unknown:
        raise ConfigError(
            f"devices={nodes}: this machine lets the process use the NUMA nodes {list(found)}, not {unknown}. "
            "Name some of these, or leave devices out."
        )
    return {node: sorted(found[node]) for node in nodes or found}


def _cores(node: Path) -> set[int]:
    """Parse the kernel's list of cores, such as "0-3,8"."""
    cores: set[int] = set()
    for part in (node / "cpulist").read_text().strip().split(","):
        if part:
            first, _, last = part.partition("-")
            cores.update(range(int(first), int(last or first) + 1))
    return cores
