"""Machines of one tree try one another's addresses before anything is loaded, and NCCL is told this machine's."""

import json
import socket
import threading
from collections import defaultdict
from concurrent.futures import Future, ThreadPoolExecutor
from types import SimpleNamespace

import pytest
from builders.cases import for_each
from builders.nodes import FIRST, SECOND, THIRD
from builders.watching import BOUND_SECONDS

from penstock.protocol.errors import ConfigError
from penstock.protocol.ranks.node_sockets import drop_packets
from penstock.worker.ranks import contact
from penstock.worker.ranks.contact import require_contact
from penstock.worker.ranks.interfaces import interface_of


class Store:
    """What ranks tell one another, as torch's store has it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._values: defaultdict[str, Future[bytes]] = defaultdict(Future)

    def _value(self, key: str) -> "Future[bytes]":
        with self._lock:
            return self._values[key]

    def set(self, key: str, value: str) -> None:
        self._value(key).set_result(value.encode())

    def get(self, key: str) -> bytes:
        return self._value(key).result(BOUND_SECONDS)


def test_machines_that_reach_one_another_go_on_and_leave_nobody_listening():
    store, addresses = Store(), (FIRST, FIRST, SECOND, SECOND, THIRD, THIRD)
    with ThreadPoolExecutor(6) as pool:
        tries = [pool.submit(require_contact, store, rank, 6, 2, where) for rank, where in enumerate(addresses)]
        assert [each.result(BOUND_SECONDS) for each in tries] == [None] * 6
    for rank in (0, 2, 4):
        _, address, port = json.loads(store.get(f"address of {rank}"))
        with socket.socket() as probe, pytest.raises(ConnectionRefusedError):
            probe.connect((address, port))


def refused(address: str, port: int) -> str:
    """What node 0 says if node 1 has told this address."""
    store = Store()
    store.set("address of 1", json.dumps(["host-b", address, port]))
    with pytest.raises(ConfigError) as told:
        require_contact(store, 0, 2, 1, FIRST)
    return str(told.value)


def test_an_address_without_a_way_is_told_with_its_machine_and_what_to_do(monkeypatch):
    with socket.socket() as deaf:
        deaf.bind((SECOND, 0))
        told = refused(*deaf.getsockname())
    words = (f"Node 1 (host-b) can't be reached at {SECOND} from node 0", "Connection refused", "PENSTOCK_HOST_IP")
    assert all(each in told for each in (*words, "firewall")), told
    monkeypatch.setattr(contact, "_SECONDS", 0.2)
    with socket.create_server((SECOND, 0)) as silent:
        try:
            drop_packets(silent)
        except OSError:
            pytest.skip("this user may not have the kernel drop packets")
        assert "nothing has answered for 0.2 s" in refused(*silent.getsockname())


def test_a_machine_whose_ranks_use_another_network_neither_tries_nor_is_tried():
    store = Store()
    with ThreadPoolExecutor(2) as pool:
        tries = [pool.submit(require_contact, store, rank, 2, 1, where) for rank, where in enumerate((FIRST, None))]
        assert [each.result(BOUND_SECONDS) for each in tries] == [None] * 2


@for_each("address, name", [
    ("10.0.0.1", "eth0"), ("10.0.0.2", "eth0"), ("10.1.0.1", "eth1"), ("fe80::1%eth1", "eth1"), ("10.2.0.1", "eth2"),
    ("127.0.0.9", "lo"), ("10.9.9.9", None),
])  # fmt: skip
def test_an_interface_is_found_by_any_of_its_addresses(monkeypatch, address, name):
    found = {
        "lo": ["127.0.0.1"], "eth0": ["10.0.0.1", "10.0.0.2", "02:00:00:00:00:01"],
        "eth1": ["10.1.0.1", "fe80::1%eth1"], "eth2:1": ["10.2.0.1"],
    }  # fmt: skip
    table = {label: [SimpleNamespace(address=each) for each in every] for label, every in found.items()}
    monkeypatch.setattr("penstock.worker.ranks.interfaces.psutil.net_if_addrs", lambda: table)
    assert interface_of(address) == name
