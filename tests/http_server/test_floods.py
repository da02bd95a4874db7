"""Floods over a daemon's own process: its memory stays where it was, and a good client gets in all the while."""

import http.client
import re
import resource
import threading
import time
from collections.abc import Callable
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from builders import floods
from builders.daemon import running_daemon

pytestmark = pytest.mark.long

GROWTH_MIB = 64
MIB = 2**20


class Flooded:
    def __init__(self, pid: int, port: int) -> None:
        self.pid, self.port = pid, port

    def mib(self, field: str) -> float:
        return int(re.search(rf"{field}:\s+(\d+)", Path(f"/proc/{self.pid}/status").read_text())[1]) / 1024

    def forget_peak(self) -> None:
        Path(f"/proc/{self.pid}/clear_refs").write_text("5")


@pytest.fixture(scope="module")
def descriptors():
    """For the flood's own ends, where the hard limit has them."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 4096)), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.fixture(scope="module")
def daemon(tmp_path_factory, descriptors):
    words = ("pocket", "--load-format", "stand-in", "--max-model-len", "1024", "--num-gpu-blocks-override", "128",
             "--keep-alive", "inf", "--http", "127.0.0.1:0")  # fmt: skip
    with running_daemon(tmp_path_factory.mktemp("d"), *words) as running:
        status = running.status()
        found = Flooded(status.pid, int(status.http.rpartition(":")[2]))
        with good_client(found.port):  # loads the model, and what else is loaded at first use
            time.sleep(2)
        yield found


@contextmanager
def good_client(port: int):
    """Asks again and again, each time on a connection of its own; each must be answered."""
    ends, failures, slowest = threading.Event(), [], [0.0]

    def ask() -> None:
        while not ends.is_set():
            start = time.monotonic()
            try:
                with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=30)) as connection:
                    connection.request("POST", "/v1/completions", '{"prompt": "What is", "max_tokens": 1}',
                                       {"Content-Type": "application/json"})  # fmt: skip
                    if (status := connection.getresponse().status) != 200:
                        failures.append(status)
            except OSError as error:
                failures.append(error)
            slowest[0] = max(slowest[0], time.monotonic() - start)
            ends.wait(0.02)

    thread = threading.Thread(target=ask)
    thread.start()
    try:
        yield slowest
    finally:
        ends.set()
        thread.join()
    assert not failures, failures[:3]


def assert_little_grows(daemon: Flooded, name: str, flood: Callable[[], object]) -> None:
    daemon.forget_peak()
    before = daemon.mib("VmRSS")
    with good_client(daemon.port) as slowest:
        found = flood()
    peak = daemon.mib("VmHWM")
    print(f"{name}: {found}; {before:.0f} MiB before, {peak:.0f} at most; a good client waited {slowest[0]:.2f} s")
    assert peak - before < GROWTH_MIB, f"{name}: from {before:.0f} to {peak:.0f} MiB"


def test_trailers_without_end(daemon):
    def flood() -> int:
        return sum(floods.endless_trailers(daemon.port, 100 * MIB) for _ in range(20))

    assert_little_grows(daemon, "trailers, bytes sent", flood)


@pytest.mark.parametrize("asked", [floods.HEALTH, floods.HEALTH_ELSEWHERE], ids=["good Host", "forbidden Host"])
@pytest.mark.parametrize("reads", [True, False], ids=["read", "unread"])
def test_a_hundred_thousand_pipelined_requests(daemon, asked, reads):
    def flood() -> int:
        return floods.pipelined(daemon.port, asked, 100_000, reads=reads, seconds=300 if reads else 10)

    assert_little_grows(daemon, "pipelined requests, answers", flood)


@pytest.mark.parametrize("stray", [b"\r", b"\r\n", b"G", b"x"], ids=["CR", "empty line", "letter", "no method"])
def test_silent_connections_with_a_stray_byte_after_a_reply(daemon, stray):
    def flood() -> int:
        held = floods.after_a_reply(daemon.port, 1100, stray)
        time.sleep(5)
        for connection in held:
            connection.close()
        return len(held)

    assert_little_grows(daemon, f"stray {stray!r}, connections", flood)


def test_slow_headers_on_two_thousand_connections(daemon):
    def flood() -> int:
        held = floods.slow_headers(daemon.port, 2000)
        for _ in range(12):
            floods.trickle(held)
            time.sleep(1)
        for connection in held:
            connection.close()
        return len(held)

    assert_little_grows(daemon, "slow headers, connections", flood)
