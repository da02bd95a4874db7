"""Machines of one tree: their options and key, the connection between them, and the file by which their ranks meet."""

import os
import random
import socket
import struct
import time
from pathlib import Path
from typing import Any

import pytest
from builders.cases import for_each
from builders.nodes import FIRST, KEY, free_port, messages_to
from builders.watching import BOUND_SECONDS, wait_until

from penstock.protocol.errors import ConfigError
from penstock.protocol.options.config import EngineConfig
from penstock.protocol.options.nodes import node_key, own_address
from penstock.protocol.processes.heartbeat import CopiedLines, Heartbeat, HeartbeatLine, Heartbeats, Vitals, aged
from penstock.protocol.ranks.meeting_file import MeetingFile
from penstock.protocol.ranks.node_sockets import LinkSocket, NodeSocket, drop_packets


def options(**given: Any) -> EngineConfig:
    return EngineConfig.from_options("model", **given)


@for_each("given, words", [
    ({"node_rank": 1}, "node_rank=1 and nnodes=1"),
    ({"nnodes": 2, "node_rank": 2}, "numbered from 0 to nnodes - 1"),
    ({"nnodes": 2, "tensor_parallel_size": 3}, "can't be shared evenly by nnodes=2"),
    ({"nnodes": 2}, "Use a multiple of 2"),
    ({"nnodes": 0}, "nnodes"), ({"nnodes": 1.5}, "nnodes"), ({"nnodes": "two"}, "nnodes"),
    ({"node_rank": -1}, "node_rank"),
    ({"master_port": 0}, "1 to 65535"), ({"master_port": 65536}, "1 to 65535"), ({"master_port": "x"}, "1 to 65535"),
    ({"nnodes": 2, "tensor_parallel_size": 2, "master_addr": ""}, "master_addr"),
    ({"nnodes": 2, "tensor_parallel_size": 2, "master_addr": "tcp://a"}, "master_addr"),
    ({"nnodes": 2, "tensor_parallel_size": 2, "master_addr": "0.0.0.0"}, "by which others reach node 0"),
    ({"nnodes": 2, "tensor_parallel_size": 2, "data_parallel_size": 2}, "data_parallel_size works on one machine only"),
    ({"nnodes": 2, "tensor_parallel_size": 2, "prefix_cache_size": "1GiB"}, "prefix_cache_size works on one machine"),
])  # fmt: skip
def test_options_that_do_not_go_together_are_refused(given, words):
    with pytest.raises(ConfigError, match=words):
        options(**given)


def test_ranks_are_shared_evenly_and_other_machines_are_told_how_many_there_are():
    assert options(nnodes=2, tensor_parallel_size=8).ranks_per_node == 4
    assert options(nnodes=3, node_rank=2).node_rank == 2
    assert options(tensor_parallel_size=4).ranks_per_node == 4


def test_the_key_is_a_secret_of_this_user(tmp_path, monkeypatch):
    monkeypatch.delenv("PENSTOCK_NODE_KEY", raising=False)
    file = tmp_path / "key"
    config = options(nnodes=2, tensor_parallel_size=2, node_key_file=str(file))

    def refused(words: str, config: EngineConfig = config) -> None:
        with pytest.raises(ConfigError, match=words):
            node_key(config)

    refused("can't be read: No such file")
    file.write_text(f"{KEY}\n")
    for mode in (0o644, 0o640, 0o604, 0o620, 0o666):
        file.chmod(mode)
        refused("chmod 600")
    file.chmod(0o600)
    assert node_key(config) == KEY.encode()
    for length, has in ((0, "0"), (15, "15"), (4097, "more than 4,096"), (5000, "more than 4,096")):
        file.write_text("x" * length)
        refused(f"the key has {has} bytes, and must have 16 to 4,096")
    for length in (16, 4096):
        file.write_text(f"{'x' * length}\n")
        assert len(node_key(config)) == length
    os.mkfifo(tmp_path / "pipe", 0o600)  # nobody writes to it, ever
    refused("chmod 600", options(nnodes=2, tensor_parallel_size=2, node_key_file=str(tmp_path / "pipe")))
    refused("can't be read: Is a directory", options(nnodes=2, tensor_parallel_size=2, node_key_file=str(tmp_path)))
    bare = options(nnodes=2, tensor_parallel_size=2)
    refused("needs a key that the machines share", bare)
    monkeypatch.setenv("PENSTOCK_NODE_KEY", KEY)
    assert node_key(bare) == KEY.encode()
    monkeypatch.setenv("PENSTOCK_NODE_KEY", "short")
    refused("PENSTOCK_NODE_KEY: the key has 5 bytes", bare)
    monkeypatch.setenv("PENSTOCK_NODE_KEY", "x" * 4097)
    refused("PENSTOCK_NODE_KEY: the key has more than 4,096 bytes", bare)


def test_a_machine_is_reached_at_the_address_that_its_way_to_machine_0_begins_at(monkeypatch):
    monkeypatch.delenv("PENSTOCK_HOST_IP", raising=False)
    assert own_address(options(nnodes=2, tensor_parallel_size=2, master_addr="127.0.0.2")) == "127.0.0.2"
    assert own_address(options(nnodes=2, node_rank=1, master_addr="127.0.0.2")).startswith("127.")
    monkeypatch.setenv("PENSTOCK_HOST_IP", "127.0.0.9")
    assert own_address(options(nnodes=2, node_rank=1)) == "127.0.0.9"
    monkeypatch.setenv("PENSTOCK_HOST_IP", "localhost")  # a name: the libraries between ranks take numbers
    assert own_address(options(nnodes=2, node_rank=1)) in ("127.0.0.1", "::1")
    for rank in (0, 1):
        with pytest.raises(ConfigError, match="is a loopback address, which only this machine reaches, and node 0 is"):
            own_address(options(nnodes=2, node_rank=rank, tensor_parallel_size=2, master_addr="192.0.2.1"))
    for wrong in ("192.0.2.1", "no such name.invalid", "x" * 3000):
        monkeypatch.setenv("PENSTOCK_HOST_IP", wrong)
        with pytest.raises(ConfigError, match="is no address of this machine"):
            own_address(options(nnodes=2, node_rank=1))
    for of_many in ("0.0.0.0", "::", "224.0.0.1"):
        monkeypatch.setenv("PENSTOCK_HOST_IP", of_many)
        with pytest.raises(ConfigError, match=f"PENSTOCK_HOST_IP={of_many} "):
            own_address(options(nnodes=2, node_rank=1))
    monkeypatch.delenv("PENSTOCK_HOST_IP")
    with pytest.raises(ConfigError, match="can't be reached"):
        own_address(options(nnodes=2, node_rank=1, master_addr="x" * 3000))


# --- the connection ---------------------------------------------------------------------------------------------------


def test_who_has_the_key_gets_through_and_who_has_not_is_told_and_none_once_the_door_is_closed():
    port = free_port()
    link = LinkSocket(FIRST, port, KEY.encode())
    node, stranger = NodeSocket(FIRST, port, KEY.encode()), NodeSocket(FIRST, port, b"another key, also long")
    late = None
    try:
        with pytest.raises(ConfigError, match="can't be listened at with master_port=.*Address already in use"):
            LinkSocket._listen(FIRST, port)
        stranger.send(b"join", b"me")
        assert messages_to(link, lambda: after_an_event(stranger).num_refusals > 1) == []
        node.send(b"join", b"me")
        [[identity, *message]] = messages_to(link)
        assert message == [b"join", b"me"]
        link.stop_listening()
        late = NodeSocket(FIRST, port, KEY.encode())
        late.send(b"join", b"late")
        link.send(identity, b"welcome", b"\0" * 100_000)
        assert node.socket.poll(int(1000 * BOUND_SECONDS)) and node.receive() == [b"welcome", b"\0" * 100_000]
        node.send(b"beat")
        heard: list[list[bytes]] = []
        while [identity, b"beat"] not in heard:
            heard += messages_to(link)
        assert [b"join", b"late"] not in [each[1:] for each in heard] or not may_drop_packets()
        assert not link.send(b"somebody", b"beat")
        link.close()
        wait_until(lambda: after_an_event(node).is_cut, "the end of the connection is noticed")
    finally:
        for each in (link, node, stranger, late):
            if each is not None and not each.socket.closed:
                each.close()


def may_drop_packets() -> bool:
    """Some kernels allow that to root alone; node 0 then refuses whoever comes late in a sentence."""
    with socket.socket() as tried:
        try:
            drop_packets(tried)
        except PermissionError:
            return False
    return True


def after_an_event(node: NodeSocket) -> NodeSocket:
    if node.events.poll(0):
        node.note_event()
    return node


# --- the meeting file, heartbeats ------------------------------------------------------------------------------------


def test_whatever_ranks_append_anywhere_is_in_every_machines_file_once(tmp_path):
    """Node 0 hands on what a machine has; ranks append at any moment, also between a look and an append."""
    chance = random.Random(0)
    for trial in range(20):
        paths = [tmp_path / f"{trial}-{number}" for number in range(3)]
        files = [MeetingFile(path) for path in paths]
        records: list[bytes] = []

        def write(paths: list[Path] = paths, records: list[bytes] = records) -> None:
            octets = chance.randbytes(chance.randrange(1, 40))
            records.append(struct.pack("<I", len(octets)) + octets)
            with open(chance.choice(paths), "ab") as file:
                file.write(records[-1])

        def spread(news: bytes, source: int, share: float, files: list[MeetingFile] = files) -> None:
            """Every append returns what its machine had, which goes the same way."""
            waiting = [(news, source)]
            while waiting:
                news, source = waiting.pop(0)
                for number, file in enumerate(files):
                    if news and number != source:
                        if chance.random() < share:
                            write()
                        waiting.append((file.append(news), number))

        for _ in range(30):
            write()
            number = chance.randrange(3)
            spread(files[number].appended(), number, 0.3)
        for number in range(3):
            spread(files[number].appended(), number, 0.0)
        for path, file in zip(paths, files, strict=True):
            assert sorted(split(path.read_bytes())) == sorted(records)
            assert file.everything() == path.read_bytes()
            file.close()


def split(octets: bytes) -> list[bytes]:
    found = []
    while octets:
        length = 4 + struct.unpack("<I", octets[:4])[0]
        found.append(octets[:length])
        octets = octets[length:]
    return found


def test_lines_of_other_machines_are_in_the_page_with_this_machines_times():
    page = Heartbeats(3)
    descriptors = [os.dup(page.descriptor) for _ in range(2)]
    copied, own = CopiedLines(descriptors[0], 3), Heartbeat.of("worker 0", descriptors[1])
    own.begin_step(5)
    there = HeartbeatLine(7, 3, 20, time.monotonic_ns() - 10**9, 12, time.monotonic_ns() - 2 * 10**9, 4, 99)
    vitals = Vitals(4321, 10**9, 5, 1, 0)
    copied.write(2, aged(there), vitals)
    found = page.read("worker 2")
    assert found._replace(last_start=0, last_end=0) == there._replace(last_start=0, last_end=0)
    assert abs(found.last_start - there.last_start) < 10**9 and found.step_tokens == 8
    assert page.vitals(2) == vitals and page.vitals(1) == Vitals() and page.read("worker 0").step_tokens == 5
    page.close()
