"""Limits the memory that the daemon holds for its clients: one budget for all of them, and a share for each.

Anything that the daemon keeps for a client (a received body, a waiting request, an unread answer) is first charged to
the client's account, and the charge is released when the memory is really free again. A charge that doesn't fit is
refused with `BudgetError`, which ends that request alone. Safe from any thread. With glibc, freed memory is returned to
the system.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from ...protocol.errors import PenstockError
from ...protocol.files.sizes import exact_size
from ...protocol.processes.heap import trim_heap
from ..machine import memory_limit, total_memory

# A quarter of the total is reserved for clients that hold little, so that those that hold much never shut out the
# others: room for a thousand of them, or for as many as 64 KiB each allow.
_KEPT, _LITTLE, _LEAST_LITTLE = 4, 4096, 64 << 10
_GREATEST_DEFAULT, _LEAST_SHARE = 1 << 30, 64 << 20
# Once this much, and an eighth of the total, has been released, it is returned to the system.
_TRIM_BYTES, _TRIM_SHARE, _IDLE_TRIM_BYTES = 32 << 20, 8, 4 << 20


class BudgetError(PenstockError):
    """There is no room for a client's request; it may try again later."""

    def __init__(self, message: str, *, is_of_all: bool = False) -> None:
        """`is_of_all`: the clients' total is used up, not this client's share."""
        super().__init__(message)
        self.is_of_all = is_of_all


class Budget:
    def __init__(self, total: int, per_client: int) -> None:
        self.total, self.per_client = total, per_client
        self.used = 0
        self._given_back = 0  # since the heap was trimmed
        self._lock = threading.Lock()
        self._accounts: dict[str, int] = {}  # bytes, by client with a charge

    @classmethod
    def of_memory(cls, memory: int, total: int | None = None, per_client: int | None = None) -> "Budget":
        """The default budget: a sixteenth of the memory, 1 GiB at most, and a quarter of that for each client."""
        most = min(memory // 16, _GREATEST_DEFAULT) if total is None else total
        share = min(most, max(most // 4, _LEAST_SHARE)) if per_client is None else per_client
        return cls(most, share)

    @classmethod
    def of_machine(cls, total: int | None = None, per_client: int | None = None) -> "Budget":
        return cls.of_memory(min(total_memory(), memory_limit() or total_memory()), total, per_client)

    def take_over(self, other: "Budget") -> None:
        """Take over the limits, not the charges. Existing charges stay, even if they exceed the limits."""
        self.total, self.per_client = other.total, other.per_client

    def charge(self, client: str, num_bytes: int = 0) -> "Charge":
        """A new charge for this client, which is an API key, an address or a connection; raises `BudgetError`."""
        charge = Charge(self, client)
        charge.grow(num_bytes)
        return charge

    def used_by(self, client: str) -> int:
        with self._lock:
            return self._accounts.get(client, 0)

    def _change(self, charge: "Charge", num_bytes: int) -> None:
        with self._lock:
            if charge.is_released:
                if num_bytes > 0:  # by a thread that has not heard of it yet
                    raise BudgetError("The request that this belongs to has ended.")
                return
            self._add(charge, max(num_bytes, -charge.num_bytes))

    def _end(self, charge: "Charge") -> None:
        with self._lock:
            self._add(charge, -charge.num_bytes)
            charge.is_released = True

    def _add(self, charge: "Charge", num_bytes: int) -> None:
        used = self._accounts.get(charge.client, 0) + num_bytes
        if num_bytes > 0:
            self._check(used, self.used + num_bytes)
        charge.num_bytes += num_bytes
        self.used += num_bytes
        self._accounts[charge.client] = used
        if used == 0:  # every charge is released or empty
            del self._accounts[charge.client]
        if num_bytes < 0:
            self._note_given_back(-num_bytes)

    def _note_given_back(self, num_bytes: int) -> None:
        self._given_back += num_bytes
        # If nothing is held, as after refused bodies, even a little is worth a trim.
        if self._given_back > (max(_TRIM_BYTES, self.total // _TRIM_SHARE) if self.used else _IDLE_TRIM_BYTES):
            self._given_back = 0
            trim_heap()

    def _check(self, used_by_client: int, used: int) -> None:
        """Raise `BudgetError` if a client, or all together, would exceed their limit."""
        if used_by_client > self.per_client:
            raise BudgetError(
                f"This client's requests and unread answers would take {exact_size(used_by_client)}, and "
                f"one client may take {exact_size(self.per_client)} (max_client_bytes). Read what is ready, or ask for "
                "less at once."
            )
        holds_little = used_by_client <= max(self.total // _LITTLE, _LEAST_LITTLE)
        if used > (self.total if holds_little else self.total - self.total // _KEPT):
            raise BudgetError(
                f"All clients' requests and unread answers together would take {exact_size(used)}, and "
                f"{exact_size(self.total)} are set aside for them, a quarter of it for short requests alone "
                "(max_held_bytes). Ask again later.",
                is_of_all=True,
            )


class Charge:
    """Bytes held by one request, frame or answer. Also a context manager, which releases them at its end."""

    __slots__ = ("_budget", "client", "is_released", "num_bytes")

    def __init__(self, budget: Budget, client: str) -> None:
        self._budget = budget
        self.client = client
        self.num_bytes = 0
        self.is_released = False

    def grow(self, num_bytes: int) -> None:
        """Charge more bytes; raises `BudgetError`, and then the charge is unchanged."""
        self._budget._change(self, num_bytes)

    def shrink(self, num_bytes: int) -> None:
        self._budget._change(self, -num_bytes)

    @contextmanager
    def more(self, num_bytes: int) -> Iterator[None]:
        """Charge more for as long as the context is open."""
        self.grow(num_bytes)
        try:
            yield
        finally:
            self.shrink(num_bytes)

    def release(self) -> None:
        """Release all of it, for good. Safe to call twice."""
        self._budget._end(self)

    def __enter__(self) -> "Charge":
        return self

    def __exit__(self, *exception: object) -> None:
        self.release()
