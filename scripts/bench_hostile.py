"""What hostile requests do to a good client: how long its requests take while each of them is sent, over and over.

    python scripts/bench_hostile.py [MODEL] [--seconds 0.6] [--only KIND]

Starts `penstock serve` and asks it short questions one after another; meanwhile a hostile request is sent again and
again on two connections, from a process of its own: each of `tests/builders/hostile.py`, then clients that say nothing,
read nothing or close half-way. Prints for each kind the median and the 99th percentile of the good requests, and how
much later the latter is than the median alone; ends with 1 where that is more than 200 ms, or where a request failed.
Of one attack there are few good requests: its own figure is nearly their latest.
"""

import argparse
import http.client
import json
import os
import re
import signal
import socket
import statistics
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from multiprocessing import get_context
from multiprocessing.synchronize import Event
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "scripts")]

from builders.hostile import EVERY  # noqa: E402
from builders.raw_http import connected, request, spoken  # noqa: E402

BOUND_SECONDS = 0.2
CONNECTIONS = 2
GOOD = json.dumps({"prompt": "What is", "max_tokens": 2, "temperature": 0})
LONG = b'{"prompt": "What is", "max_tokens": 1500, "ignore_eos": true, "stream": true, "logprobs": 20}'

Attack = Callable[[int], None]


def sends(sent: bytes) -> Attack:
    return lambda port: void(spoken(port, sent, timeout=5))


def void(said: bytes) -> None:
    pass


def says_nothing(port: int) -> None:
    connected(port).close()


def ends_half_way(port: int) -> None:
    with connected(port) as connection:
        connection.sendall(request(b"{" * 1000)[:-500])
        connection.shutdown(socket.SHUT_WR)
        connection.recv(1000)


def drips_headers(port: int) -> None:
    with connected(port) as connection:
        for byte in b"GET /health HTTP/1.1\r\n":
            connection.send(bytes([byte]))
            time.sleep(0.001)


def reads_nothing(port: int) -> None:
    with connected(port) as connection:
        connection.sendall(request(LONG))
        time.sleep(0.3)


def leaves_early(port: int) -> None:
    with connected(port) as connection:
        connection.sendall(request(LONG))
        connection.recv(1)


BEHAVIOURS = [says_nothing, ends_half_way, drips_headers, reads_nothing, leaves_early]
ATTACKS: list[tuple[str, str, Attack]] = [(hostile.kind, hostile.name, sends(hostile.sent)) for hostile in EVERY]
ATTACKS += [("behaviours", attack.__name__.replace("_", " "), attack) for attack in BEHAVIOURS]


def attack_until(port: int, number: int, ends: Event) -> None:
    """The attacker's process."""

    def attack() -> None:
        while not ends.is_set():
            with suppress(OSError):
                ATTACKS[number][2](port)

    threads = [threading.Thread(target=attack) for _ in range(CONNECTIONS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


@contextmanager
def attacked(port: int, number: int) -> Iterator[None]:
    context = get_context("fork")
    ends = context.Event()
    process = context.Process(target=attack_until, args=(port, number, ends))
    process.start()
    try:
        yield
    finally:
        ends.set()
        process.join(10)
        process.kill()


class GoodClient:
    def __init__(self, port: int) -> None:
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)

    def seconds(self) -> float:
        start = time.perf_counter()
        self.connection.request("POST", "/v1/completions", GOOD, {"Content-Type": "application/json"})
        reply = self.connection.getresponse()
        assert reply.status == 200, reply.read()
        reply.read()
        return time.perf_counter() - start

    def during(self, seconds: float) -> list[float]:
        end = time.perf_counter() + seconds
        found = [self.seconds() for _ in range(20)]
        while time.perf_counter() < end:
            found.append(self.seconds())
        return found


@contextmanager
def serving(model: str) -> Iterator[int]:
    with TemporaryDirectory() as folder:
        os.chmod(folder, 0o700)
        command = [sys.executable, "-m", "penstock", "serve", model, "--preload", "--http", "127.0.0.1:0"]
        command += ["--socket", f"{folder}/socket"]
        daemon = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        try:
            port = next(int(found[1]) for line in daemon.stderr if (found := re.search(r"http://[\d.]+:(\d+)", line)))
            # What nobody reads would fill the pipe, and then the daemon would wait.
            threading.Thread(target=daemon.stderr.read, daemon=True).start()
            yield port
        finally:
            daemon.send_signal(signal.SIGINT)
            daemon.wait(timeout=60)


def percentile(values: list[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


def milliseconds(seconds: float) -> str:
    return f"{seconds * 1e3:>9.1f}"


def report(by_kind: dict[str, list[float]], latest: dict[str, float], usual: float) -> None:
    print(f"\n{'kind':<20}{'good':>7}{'median':>9}{'p99':>9}{'later':>9}   (ms)")
    for kind, found in by_kind.items():
        last = percentile(found, 0.99)
        figures = map(milliseconds, (statistics.median(found), last, last - usual))
        print(f"{kind:<20}{len(found):>7}{''.join(figures)}")
    print("\nthe ten worst, by their p99:")
    for name in sorted(latest, key=latest.__getitem__, reverse=True)[:10]:
        print(f"{milliseconds(latest[name])}  {name}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("model", nargs="?", default="pocket")
    parser.add_argument("--seconds", type=float, default=0.6, help="of each attack")
    parser.add_argument("--only", metavar="KIND")
    parser.add_argument("--verbose", action="store_true", help="a line for each attack, as it goes")
    arguments = parser.parse_args()
    by_kind: dict[str, list[float]] = defaultdict(list)
    latest: dict[str, float] = {}
    with serving(arguments.model) as port:
        client = GoodClient(port)
        client.during(1.0)
        alone = client.during(3.0)
        usual, last = statistics.median(alone), percentile(alone, 0.99)
        told = f"median{milliseconds(usual)} ms, p99{milliseconds(last)} ms"
        print(f"alone: {len(alone)} good requests, {told}", flush=True)
        for number, (kind, name, _) in enumerate(ATTACKS):
            if arguments.only not in (None, kind):
                continue
            if arguments.verbose:
                print(name, end="", flush=True)
            with attacked(port, number):
                found = client.during(arguments.seconds)
            by_kind[kind] += found
            latest[name] = percentile(found, 0.99)
            if arguments.verbose:
                print(milliseconds(latest[name]), flush=True)
    report(by_kind, latest, usual)
    return int(any(percentile(found, 0.99) - usual > BOUND_SECONDS for found in by_kind.values()))


if __name__ == "__main__":
    sys.exit(main())
