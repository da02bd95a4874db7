"""The rows that the workers' memory keeps of media: which media they are, how far encoded, and who still needs them.

An entry has room for all its rows from the moment in which its encoding begins. It is held by running sequences that
have rows of it to compute, and while nobody holds it, it stays until room is needed; the one unused for longest goes
first. Nothing leaves in a step that uses it: workers apply what a plan drops before anything else of it.

One entry at a time is half encoded, since workers have memory for one medium between two steps.
"""

from collections import OrderedDict
from collections.abc import Mapping

NEVER = -1

# A medium's digest, and the `cache_salt` of the requests that share its rows: others can't tell that it was here.
Key = tuple[bytes, str | None]


class Entry:
    __slots__ = ("number", "key", "num_rows", "work", "done", "num_holders", "used_in")

    def __init__(self, number: int, key: Key, num_rows: int, work: int) -> None:
        self.number = number
        self.key = key
        self.num_rows = num_rows
        self.work = work  # that encoding it takes
        self.done = 0  # of it, as planned
        self.num_holders = 0
        self.used_in = NEVER  # the newest step that has work on it or rows of it

    @property
    def is_half_encoded(self) -> bool:
        return 0 < self.done < self.work


class Entries:
    def __init__(self, capacity: int) -> None:
        self.capacity = capacity  # in rows
        self.num_taken = 0
        self._by_key: dict[Key, Entry] = {}
        self._idle: OrderedDict[int, Entry] = OrderedDict()  # that nobody holds, in the order in which they are dropped
        self.half_encoded: Entry | None = None
        self._dropped: list[int] = []  # since the last plan
        self._next_number = 0

    def hold(self, key: Key, num_rows: int, work: int, step: int) -> Entry | None:
        """Hold the entry of a medium, a new one if there is none; None if there is no room for it yet."""
        entry = self._by_key.get(key)
        if entry is None:
            if not self._make_room(num_rows, step):
                return None
            entry = Entry(self._next_number, key, num_rows, work)
            self._next_number += 1
            self._by_key[key] = entry
            self.num_taken += num_rows
        self._idle.pop(entry.number, None)
        entry.num_holders += 1
        return entry

    def release(self, entry: Entry) -> None:
        entry.num_holders -= 1
        if entry.num_holders == 0:
            self._idle[entry.number] = entry
            if not self._is_findable(entry):
                self._idle.move_to_end(entry.number, last=False)

    def advance(self, entry: Entry, count: int, step: int) -> None:
        """So much of the work on it is planned in this step."""
        entry.done += count
        entry.used_in = step
        self.half_encoded = entry if entry.is_half_encoded else None

    def may_advance(self, entry: Entry, step: int) -> bool:
        """Whether this entry may be encoded in a step: not amid another, unless nobody holds that one."""
        other = self.half_encoded
        if other is None or other is entry:
            return entry.used_in != step
        if other.num_holders or other.used_in == step:
            return False
        self.give_up(other)
        return True

    def give_up(self, entry: Entry) -> None:
        """Drop the half-encoded entry, which nobody holds."""
        self._drop(entry)

    def forget(self, key: Key) -> None:
        """Let nobody find it any more; it is the first to be dropped."""
        entry = self._by_key.pop(key, None)
        if entry is not None and entry.number in self._idle:
            self._idle.move_to_end(entry.number, last=False)

    @property
    def has_dropped(self) -> bool:
        return bool(self._dropped)

    def take_dropped(self) -> list[int]:
        """The entries dropped since the last plan, for the next one."""
        dropped, self._dropped = self._dropped, []
        return dropped

    def _is_findable(self, entry: Entry) -> bool:
        return self._by_key.get(entry.key) is entry

    def _make_room(self, num_rows: int, step: int) -> bool:
        """Drop idle entries until so many rows fit; none if they don't fit even then."""
        idle = [entry for entry in self._idle.values() if entry.used_in != step]
        if self.num_taken - sum(entry.num_rows for entry in idle) + num_rows > self.capacity:
            return False
        for entry in idle:
            if self.num_taken + num_rows <= self.capacity:
                break
            self._drop(entry)
        return True

    def _drop(self, entry: Entry) -> None:
        del self._idle[entry.number]
        if self._is_findable(entry):
            del self._by_key[entry.key]
        self.num_taken -= entry.num_rows
        if entry is self.half_encoded:
            self.half_encoded = None
        if entry.done:  # else no worker has heard of it
            self._dropped.append(entry.number)

    def check(self, holders: Mapping[Entry, int]) -> None:
        """Raise unless rows are conserved, and each entry has so many holders or is idle."""
        kept = {*self._by_key.values(), *self._idle.values(), *holders}
        if not self.num_taken == sum(entry.num_rows for entry in kept) <= self.capacity:
            raise RuntimeError(f"{self.num_taken} rows of media are counted, {self.capacity} fit, {kept} have them.")
        if [entry for entry in kept if entry.is_half_encoded] != [self.half_encoded] * (self.half_encoded is not None):
            raise RuntimeError(f"{self.half_encoded} is half encoded, and others: {kept}.")
        for entry in kept:
            is_idle = entry.number in self._idle
            if entry.num_holders != holders.get(entry, 0) or (entry.num_holders == 0) != is_idle:
                raise RuntimeError(f"Entry {entry.number} has {holders.get(entry, 0)} holders: {entry.num_holders}.")
