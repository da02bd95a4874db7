"""Entries for the media whose rows are in the workers' memory: how far each is encoded, and who still needs it.

An entry has room for all its rows from the moment its encoding begins. Running sequences hold it while they have rows
of it to compute. After that it stays until room is needed; the least recently used goes first. No entry is dropped in a
step that uses it: workers apply a plan's drops first.

Only one entry at a time is half encoded, since workers can keep one unfinished medium between steps.
"""

from collections import OrderedDict
from collections.abc import Mapping

NEVER = -1

# A medium's digest, and the `cache_salt` of the requests that share its rows: others can't tell that they are cached.
Key = tuple[bytes, str | None]


class Entry:
    __slots__ = ("number", "key", "num_rows", "work", "done", "num_holders", "used_in", "looks_on_disk", "is_coming")

    def __init__(self, number: int, key: Key, num_rows: int, work: int) -> None:
        self.number = number
        self.key = key
        self.num_rows = num_rows
        self.work = work  # total work of encoding it
        self.done = 0  # the planned part of it
        self.num_holders = 0
        self.used_in = NEVER  # the newest step that encodes or fetches it, or uses its rows
        self.looks_on_disk = True  # for its rows, until that has been tried
        self.is_coming = False  # its rows are on their way from the disk

    @property
    def is_half_encoded(self) -> bool:
        return 0 < self.done < self.work


class Entries:
    def __init__(self, capacity: int) -> None:
        self.capacity = capacity  # in rows
        self.num_taken = 0
        self._by_key: dict[Key, Entry] = {}
        self._idle: OrderedDict[int, Entry] = OrderedDict()  # held by nobody, in the order in which they are dropped
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
            if not self.is_findable(entry):
                self._idle.move_to_end(entry.number, last=False)

    def advance(self, entry: Entry, count: int, step: int) -> None:
        """Count work on it that is planned in this step."""
        entry.done += count
        entry.used_in = step
        self.half_encoded = entry if entry.is_half_encoded else None

    def may_advance(self, entry: Entry, step: int) -> bool:
        """Whether this entry may be encoded in a step: not while another is half encoded, unless nobody holds that
        one."""
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
        """Make an entry unfindable, and the first to be dropped."""
        entry = self._by_key.pop(key, None)
        if entry is not None and entry.number in self._idle:
            self._idle.move_to_end(entry.number, last=False)

    def is_findable(self, entry: Entry) -> bool:
        return self._by_key.get(entry.key) is entry

    @property
    def has_dropped(self) -> bool:
        return bool(self._dropped)

    def take_dropped(self) -> list[int]:
        """Return the entries dropped since the last plan, for the next one."""
        dropped, self._dropped = self._dropped, []
        return dropped

    def _make_room(self, num_rows: int, step: int) -> bool:
        """Drop idle entries until this many rows fit; drop none if they would not fit even then."""
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
        if self.is_findable(entry):
            del self._by_key[entry.key]
        self.num_taken -= entry.num_rows
        entry.is_coming = False
        if entry is self.half_encoded:
            self.half_encoded = None
        if entry.used_in != NEVER:  # otherwise no worker knows it
            self._dropped.append(entry.number)

    def check(self, holders: Mapping[Entry, int]) -> None:
        """Raise unless rows are conserved and each entry has the counted holders or is idle."""
        kept = {*self._by_key.values(), *self._idle.values(), *holders}
        if not self.num_taken == sum(entry.num_rows for entry in kept) <= self.capacity:
            raise RuntimeError(f"{self.num_taken} rows of media are counted, {self.capacity} fit, {kept} have them.")
        if [entry for entry in kept if entry.is_half_encoded] != [self.half_encoded] * (self.half_encoded is not None):
            raise RuntimeError(f"{self.half_encoded} is half encoded, and others: {kept}.")
        for entry in kept:
            is_idle = entry.number in self._idle
            if entry.num_holders != holders.get(entry, 0) or (entry.num_holders == 0) != is_idle:
                raise RuntimeError(f"Entry {entry.number} has {holders.get(entry, 0)} holders: {entry.num_holders}.")
