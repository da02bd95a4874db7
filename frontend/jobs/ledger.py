"""The ledger of a job: tokens, time, memory, energy, and money."""

import os
from contextlib import suppress
from pathlib import Path

import psutil

from ...protocol.files.sizes import size
from .journal.records import JobState


def memory_of_processes() -> int:
    """The memory of this process and of all that it has started."""
    own = psutil.Process(os.getpid())
    total = 0
    for process in [own, *own.children(recursive=True)]:
        with suppress(psutil.Error):
            total += process.memory_info().rss
    return total


class EnergyMeter:
    """The energy of the machine's processors and memory since the meter was made, where the kernel lets us read it."""

    def __init__(self, powercap: Path = Path("/sys/class/powercap")) -> None:
        self._joules = 0.0
        self._zones = [zone for zone in powercap.glob("intel-rapl:*") if _is_counted(zone)]  # AMD's, too
        self._before = [_microjoules(zone / "energy_uj") for zone in self._zones]

    def joules(self) -> float:
        """Counters begin again at 0 after some minutes at least, so this must be called more often."""
        for number, (zone, before) in enumerate(zip(self._zones, self._before, strict=True)):
            now = self._before[number] = _microjoules(zone / "energy_uj")
            if before is None or now is None:
                continue
            spent = now - before if now >= before else now - before + (_microjoules(zone / "max_energy_range_uj") or 0)
            self._joules += max(0, spent) / 1e6
        return self._joules


def _is_counted(zone: Path) -> bool:
    """Not the zones that are parts of others, or the sum of others."""
    with suppress(OSError):
        return (zone / "name").read_text().startswith(("package", "dram"))
    return False


def _microjoules(counter: Path) -> int | None:
    with suppress(OSError, ValueError):
        return int(counter.read_text())
    return None


def ledger(state: JobState, price: float | None = None) -> str:
    """One line for a job's end; `price` is that of a machine's hour."""
    share = f" ({100 * state.num_cached / state.num_prompt:.0f} % cached)" if state.num_prompt else ""
    parts = [
        f"tokens in {state.num_prompt:,}{share}, out {state.num_output:,}",
        f"{state.machine_seconds:,.1f} s of machine",
    ]
    if state.num_draft_tokens:
        accepted = 100 * state.num_accepted_tokens / state.num_draft_tokens
        parts.insert(1, f"drafts {state.num_draft_tokens:,} ({accepted:.0f} % accepted)")
    if state.peak_bytes:
        parts.append(f"peak memory {size(state.peak_bytes)}")
    if state.joules:
        parts.append(f"energy {state.joules / 3600:,.2f} Wh")
    if price is not None:
        parts.append(f"cost {state.machine_seconds / 3600 * price:,.4f}")
    return ", ".join(parts)
