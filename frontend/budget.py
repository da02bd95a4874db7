"""How many bytes the daemon holds for its clients: one budget for all of them, and a share for each.

Whatever a client makes the daemon keep (a body that was read, a request that waits, an answer that nobody has taken
yet) is charged to the client's account first, and the charge is released when the memory is really free again. A charge
that doesn't fit is refused with `BudgetError`, which ends that request alone. Safe from any thread.
"""

import threading
from collections.abc import Hashable

from ..protocol.errors import PenstockError


class BudgetError(PenstockError):
    """There is no room for what a client sends or asks for; it may try again later."""


class Budget:
    def __init__(self, total: int, per_client: int) -> None:
        self.total, self.per_client = total, per_client
        self.used = 0
        self._lock = threading.Lock()
        self._accounts: dict[Hashable, Account] = {}  # of the clients that have a charge

    def charge(self, client: Hashable, num_bytes: int = 0) -> "Charge":
        """A new charge of that client, which is an API key, an address or a connection; raises `BudgetError`."""
        charge = Charge(self, client)
        charge.grow(num_bytes)
        return charge

    def used_by(self, client: Hashable) -> int:
        with self._lock:
            account = self._accounts.get(client)
            return account.used if account is not None else 0

    def _change(self, client: Hashable, num_bytes: int) -> None:
        with self._lock:
            account = self._accounts.setdefault(client, Account())
            if num_bytes > 0:
                self._check(account, num_bytes)
            account.used += num_bytes
            self.used += num_bytes
            if account.used == 0:  # every charge is released or empty
                del self._accounts[client]

    def _check(self, account: "Account", num_bytes: int) -> None:
        if account.used + num_bytes > self.per_client:
            raise BudgetError(
                f"This client's requests and unread answers would take {_mib(account.used + num_bytes)}, and one "
                f"client may take {_mib(self.per_client)}. Read what is ready, or ask for less at once."
            )
        if self.used + num_bytes > self.total:
            raise BudgetError(
                f"All clients' requests and unread answers together would take {_mib(self.used + num_bytes)}, and "
                f"{_mib(self.total)} are set aside for them. Ask again later."
            )


class Account:
    """What one client has been charged."""

    __slots__ = ("used",)

    def __init__(self) -> None:
        self.used = 0


class Charge:
    """Bytes that one request, frame or answer takes. Also a context: left, it is released."""

    __slots__ = ("_budget", "_client", "num_bytes")

    def __init__(self, budget: Budget, client: Hashable) -> None:
        self._budget, self._client = budget, client
        self.num_bytes = 0

    def grow(self, num_bytes: int) -> None:
        """Charge so many more; raises `BudgetError`, and then the charge is as it was."""
        self._budget._change(self._client, num_bytes)
        self.num_bytes += num_bytes

    def shrink(self, num_bytes: int) -> None:
        self.grow(-min(num_bytes, self.num_bytes))

    def release(self) -> None:
        """Nothing of it is held any more. Safe to call twice."""
        self.shrink(self.num_bytes)

    def __enter__(self) -> "Charge":
        return self

    def __exit__(self, *exception: object) -> None:
        self.release()


def _mib(num_bytes: int) -> str:
    return f"{num_bytes / 2**20:,.1f} MiB"
