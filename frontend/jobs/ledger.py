"""The ledger of a job: tokens, time, memory, and money."""

import os
from contextlib import suppress

import psutil

from ...protocol.files.sizes import size
from .records import JobState


def memory_of_processes() -> int:
    """The memory of this process and of all that it has started."""
    own = psutil.Process(os.getpid())
    total = 0
    for process in [own, *own.children(recursive=True)]:
        with suppress(psutil.Error):
            total += process.memory_info().rss
    return total


def ledger(state: JobState, price: float | None = None) -> str:
    """One line for a job's end; `price` is that of a machine's hour."""
    share = f" ({100 * state.num_cached / state.num_prompt:.0f} % cached)" if state.num_prompt else ""
    parts = [
        f"tokens in {state.num_prompt:,}{share}, out {state.num_output:,}",
        f"{state.machine_seconds:,.1f} s of machine",
    ]
    if state.peak_bytes:
        parts.append(f"peak memory {size(state.peak_bytes)}")
    if price is not None:
        parts.append(f"cost {state.machine_seconds / 3600 * price:,.4f}")
    return ", ".join(parts)
