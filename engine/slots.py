"""Slots 0..n-1 of the workers' tables: who may take which, and which were given back since the last plan.

A slot may be taken again in the plan that frees it, since workers apply `freed` before `new`.
Knows nothing of what stands in a slot.
"""


class Slots:
    def __init__(self, num_slots: int) -> None:
        self.num_slots = num_slots
        self._free = list(range(num_slots - 1, -1, -1))
        self._freed: list[int] = []

    @property
    def num_free(self) -> int:
        return len(self._free)

    @property
    def num_taken(self) -> int:
        return self.num_slots - len(self._free)

    def take(self) -> int:
        return self._free.pop()

    def give_back(self, slot: int) -> None:
        self._free.append(slot)
        self._freed.append(slot)

    def take_freed(self) -> list[int]:
        """Those that the next plan must name."""
        freed, self._freed = self._freed, []
        return freed
