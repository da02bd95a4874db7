"""Starts the processes of a tree, on node 0 as on the others, and decides how many threads each may have."""

import os
import subprocess
from collections.abc import Iterable
from pathlib import Path

from ....protocol.files.cache_folder import caches_of_libraries
from ....protocol.options.config import EngineConfig
from ....protocol.processes.process import ChildProcess, open_log, start_child

QUIET_LIBRARIES = {"TOKENIZERS_PARALLELISM": "false", "RAYON_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}


def start_part(
    role: str, module: str, environment: dict[str, str], directory: Path, log: Path, page: int, *arguments: str
) -> ChildProcess:
    """Start one process; `page` is the descriptor of the heartbeats' page."""
    with open_log(log) as output:
        streams = {"stdin": subprocess.DEVNULL, "stdout": output, "stderr": output}
        return start_child(role, module, (str(directory), *arguments), env=environment, pass_fds=[page], **streams)


def start_ranks(
    config: EngineConfig, ranks: Iterable[int], directory: Path, log: Path, page: int
) -> Iterable[ChildProcess]:
    module = "penstock.worker.stand_in" if config.load_format == "stand-in" else "penstock.worker"
    environment = _worker_environment(threads_per_rank(config))
    for rank in ranks:
        yield start_part(f"worker {rank}", module, environment, directory, log, page, "--rank", str(rank))


def threads_per_rank(config: EngineConfig) -> int:
    cores = len(os.sched_getaffinity(0))
    return max(1, (config.num_threads or cores) // config.ranks_per_node)


def _worker_environment(threads: int) -> dict[str, str]:
    count = str(threads)
    # Passive: otherwise OpenMP's threads would spin through every gap between two operations.
    threading = {"OMP_NUM_THREADS": count, "MKL_NUM_THREADS": count, "OMP_WAIT_POLICY": "passive"}
    return {**threading, **caches_of_libraries()}
