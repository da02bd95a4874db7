"""Has the machines of one tree connect to one another once, before their ranks do.

Gloo and NCCL take minutes to give up an address to which there is no way, and don't say whose it is.
"""

import json
import socket
from typing import Any, Protocol

from ...protocol.errors import ConfigError
from ...protocol.options.nodes import ADDRESS_VARIABLE

_SECONDS = 5.0  # for a connection; the kernel has asked three times by then


class Store(Protocol):
    """The part of torch's `Store` that is used here. `get` waits until there is a value."""

    def set(self, key: str, value: str) -> None: ...
    def get(self, key: str) -> bytes: ...


def require_contact(store: Store, rank: int, size: int, per_node: int, address: str | None) -> None:
    """Raise if this machine can't reach one of the others. The first rank of each machine tries, for all of them. A
    machine without an address, whose ranks use another network, neither tries nor is tried."""
    if rank % per_node:
        return
    if address is None:
        store.set(f"address of {rank}", "null")
        store.set(f"contact of {rank}", "all")
        return
    others = [first for first in range(0, size, per_node) if first != rank]
    family = socket.getaddrinfo(address, 0)[0][0]
    # Nobody has to accept: the kernel completes the connections.
    with socket.create_server((address, 0), family=family, backlog=size) as listener:
        own_host = socket.gethostname()
        store.set(f"address of {rank}", json.dumps([own_host, *listener.getsockname()[:2]]))
        for other in others:
            if (found := json.loads(store.get(f"address of {other}"))) is not None:
                host, *there = found
                _try(there, f"Node {other // per_node} ({host})", f"node {rank // per_node} ({own_host})")
        store.set(f"contact of {rank}", "all")
        for other in others:
            store.get(f"contact of {other}")


def _try(there: list[Any], name: str, own_name: str) -> None:
    address, port = there
    try:
        socket.create_connection((address, port), _SECONDS).close()
    except OSError as error:
        is_silent = isinstance(error, TimeoutError)
        reason = f"nothing has answered for {_SECONDS:g} s" if is_silent else error.strerror or error
        raise ConfigError(
            f"{name} can't be reached at {address} from {own_name}: {reason}. If another address leads to it, set "
            f"{ADDRESS_VARIABLE} to that one there; otherwise a firewall is between the machines, which have to accept "
            "one another's connections at all TCP ports."
        ) from error
