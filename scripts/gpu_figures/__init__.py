"""What `bench_gpu.py` measures on a card, a file for each kind of measurement.

Here is where a section measures, and what it gives: the device, the sizes, and figures with their share of the card's
limits. Imports no torch.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

BANDWIDTH, MATRIX_RATE = "copy bandwidth", "bf16 matrix rate"


@dataclass(frozen=True)
class Figure:
    """A number with its unit and, where something bounds it, its share of that."""

    name: str
    value: float
    unit: str
    share: float | None = None
    of: str = ""

    def __str__(self) -> str:
        value = f"{self.value:,.0f}" if self.value >= 1000 else f"{self.value:.3g}"
        share = "" if self.share is None else f"{self.share:.1%} of "
        return f"{self.name:<52} {value:>12} {self.unit:<9} {share}{self.of}"


@dataclass(frozen=True)
class Setting:
    device: str  # "cuda" or "cpu"
    is_small: bool  # sizes that a laptop computes: to try the code
    known: Mapping[str, float]  # values of the figures so far, by name
    folder: Path  # of this run, for models and what tuning finds

    def sized(self, full: Any, small: Any) -> Any:
        return small if self.is_small else full

    def of_bandwidth(self, name: str, seconds: float, num_bytes: float) -> Figure:
        """Figure of what reads so many bytes, with its share of the bandwidth."""
        return Figure(name, seconds * 1e6, "µs", self._share(num_bytes / seconds / 1e9, BANDWIDTH), BANDWIDTH)

    def of_matrix_rate(self, name: str, value: float, unit: str, operations_a_second: float) -> Figure:
        return Figure(name, value, unit, self._share(operations_a_second / 1e12, MATRIX_RATE), MATRIX_RATE)

    def _share(self, value: float, limit: str) -> float | None:
        return value / self.known[limit] if limit in self.known else None
