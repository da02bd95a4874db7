"""What hostile requests do to a good client, and to the daemon's memory, while each of them is sent over and over.

    python scripts/bench_hostile.py [MODEL] [--seconds 0.6] [--only KIND] [--verbose] [--serve="--max-model-len 4096"]

Starts `penstock serve` and asks it short questions one after another; meanwhile a hostile request is sent again and
again on two connections, from a process of its own: each of `tests/builders/hostile.py`, then clients that say nothing,
read nothing or close half-way, then clients that make the daemon hold as much as they can. Prints for each kind the
median and the 99th percentile of the good requests, how much later the latter is than the median alone, how many were
refused, and the greatest memory of the daemon's own process; ends with 1 where the 99th percentile is more than 200 ms
later, or where a request failed. Of one attack there are few good requests: its own figure is nearly their latest.
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
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from multiprocessing import get_context
from multiprocessing.synchronize import Event
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "scripts")]

from builders.hostile import EVERY  # noqa: E402
from builders.raw_http import connected, request, spoken  # noqa: E402

BOUND_SECONDS = 0.2
GIVES_UP_SECONDS = 20.0
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

PROMPT_LOGPROBS = {"prompt": [[5] * 2000] * 64, "max_tokens": 1, "prompt_logprobs": 20}
ANSWER_LOGPROBS = {"prompt": "a", "n": 128, "max_tokens": 2000, "logprobs": 20, "ignore_eos": True}
LONG_BODY = {"prompt": "a", "max_tokens": 2000, "ignore_eos": True, "user": "x" * (8 * 2**20 - 200)}


def posted(body: dict[str, Any]) -> bytes:
    return request(json.dumps(body).encode())


def holds_log_probabilities_of_prompts(port: int) -> None:
    """And leaves when the reply has begun, so that there is time for the next."""
    with connected(port, 60) as connection:
        connection.sendall(posted(PROMPT_LOGPROBS))
        connection.recv(65536)


def reads_log_probabilities_slowly(port: int) -> None:
    with connected(port, 60) as connection:
        connection.sendall(posted(PROMPT_LOGPROBS | {"stream": True}))
        connection.recv(1)
        time.sleep(5)


def holds_log_probabilities_of_answers(port: int) -> None:
    with connected(port, 60) as connection:
        connection.sendall(posted(ANSWER_LOGPROBS))
        connection.recv(65536)


def holds_bodies(port: int) -> None:
    with many(port, 16) as connections:
        for connection in connections:
            connection.sendall(posted(LONG_BODY)[:-1])
        time.sleep(5)


def waits_with_bodies(port: int) -> None:
    with many(port, 64) as connections:
        for connection in connections:
            connection.sendall(posted(LONG_BODY))
        time.sleep(5)


def waits_with_objects(port: int) -> None:
    body = {"prompt": "a", "max_tokens": 2000, "ignore_eos": True, "metadata": {"a": [{"b": 1.5}] * 60_000}}
    with many(port, 64) as connections:
        for connection in connections:
            connection.sendall(posted(body))
        time.sleep(5)


def claims_to_be_first(port: int) -> None:
    with many(port, 24) as connections:
        for connection in connections:
            connection.sendall(request(LONG.replace(b"}", b', "priority": -1000000000}')))
        time.sleep(2)


@contextmanager
def many(port: int, number: int) -> Iterator[list[socket.socket]]:
    with ExitStack() as stack:
        yield [stack.enter_context(connected(port)) for _ in range(number)]


HOLDERS = [
    holds_log_probabilities_of_prompts, reads_log_probabilities_slowly, holds_log_probabilities_of_answers,
    holds_bodies, waits_with_bodies, waits_with_objects, claims_to_be_first,
]  # fmt: skip
ATTACKS: list[tuple[str, str, Attack]] = [(hostile.kind, hostile.name, sends(hostile.sent)) for hostile in EVERY]
for kind, attacks in {"behaviours": BEHAVIOURS, "memory": HOLDERS}.items():
    ATTACKS += [(kind, attack.__name__.replace("_", " "), attack) for attack in attacks]


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
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=GIVES_UP_SECONDS)

    def is_answered(self) -> bool:
        try:
            self.connection.request("POST", "/v1/completions", GOOD, {"Content-Type": "application/json"})
            reply = self.connection.getresponse()
            reply.read()
            return reply.status == 200
        except (OSError, http.client.HTTPException):
            self.connection.close()
            return False

    def during(self, seconds: float) -> "Found":
        """At least twenty requests, unless they take far too long."""
        found, start = Found(), time.perf_counter()
        while (now := time.perf_counter()) < start + seconds or (
            len(found.times) < 20 and now < start + seconds + 2 * GIVES_UP_SECONDS
        ):
            found.refused += not self.is_answered()
            found.times.append(time.perf_counter() - now)
        return found


@dataclass(slots=True)
class Found:
    """What a good client has seen, and the daemon's greatest memory meanwhile, in bytes."""

    times: list[float] = field(default_factory=list)
    refused: int = 0  # or not answered in time
    most_memory: int = 0

    @property
    def last(self) -> float:
        return percentile(self.times, 0.99)

    def add(self, other: "Found") -> None:
        self.times += other.times
        self.refused += other.refused
        self.most_memory = max(self.most_memory, other.most_memory)


class Memory:
    """The greatest resident memory of a process since the last reset, as the kernel counts it."""

    def __init__(self, pid: int) -> None:
        self._folder = Path(f"/proc/{pid}")

    def reset(self) -> None:
        (self._folder / "clear_refs").write_text("5")

    @property
    def most(self) -> int:
        lines = (self._folder / "status").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:"))


@contextmanager
def serving(model: str, *options: str) -> Iterator[tuple[int, int]]:
    """Port and process id."""
    with TemporaryDirectory() as folder:
        os.chmod(folder, 0o700)
        command = [sys.executable, "-m", "penstock", "serve", model, "--preload", "--http", "127.0.0.1:0"]
        command += ["--socket", f"{folder}/socket", *options]
        daemon = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        try:
            port = next(int(found[1]) for line in daemon.stderr if (found := re.search(r"http://[\d.]+:(\d+)", line)))
            # What nobody reads would fill the pipe, and then the daemon would wait.
            threading.Thread(target=daemon.stderr.read, daemon=True).start()
            yield port, daemon.pid
        finally:
            daemon.send_signal(signal.SIGINT)
            daemon.wait(timeout=60)


def percentile(values: list[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


def milliseconds(seconds: float) -> str:
    return f"{seconds * 1e3:>9.1f}"


def report(by_kind: dict[str, Found], by_attack: dict[str, Found], usual: float) -> None:
    print(f"\n{'kind':<20}{'good':>7}{'median':>9}{'p99':>9}{'later':>9}   (ms){'refused':>9}{'MiB':>7}")
    for kind, found in by_kind.items():
        figures = map(milliseconds, (statistics.median(found.times), found.last, found.last - usual))
        memory = f"{found.refused:>16}{found.most_memory / 2**20:>7.0f}"
        print(f"{kind:<20}{len(found.times):>7}{''.join(figures)}{memory}")
    print("\nthe ten worst, by their p99:")
    for name in sorted(by_attack, key=lambda name: by_attack[name].last, reverse=True)[:10]:
        print(f"{milliseconds(by_attack[name].last)}  {name}")
    print("\nthe ten worst, by the daemon's memory:")
    for name in sorted(by_attack, key=lambda name: by_attack[name].most_memory, reverse=True)[:10]:
        print(f"{by_attack[name].most_memory / 2**20:>7.0f}  {name}")


def measured(client: GoodClient, memory: Memory, port: int, number: int, seconds: float) -> Found:
    memory.reset()
    with attacked(port, number):
        found = client.during(seconds)
    found.most_memory = memory.most
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("model", nargs="?", default="pocket")
    parser.add_argument("--seconds", type=float, default=0.6, help="of each attack")
    parser.add_argument("--only", metavar="KIND")
    parser.add_argument("--verbose", action="store_true", help="a line for each attack, as it goes")
    parser.add_argument("--serve", metavar="OPTIONS", default="", help="further ones of `penstock serve`")
    arguments = parser.parse_args()
    by_kind: dict[str, Found] = defaultdict(Found)
    by_attack: dict[str, Found] = {}
    with serving(arguments.model, *arguments.serve.split()) as (port, pid):
        client, memory = GoodClient(port), Memory(pid)
        client.during(1.0)
        alone = client.during(3.0)
        usual = statistics.median(alone.times)
        told = f"median{milliseconds(usual)} ms, p99{milliseconds(alone.last)} ms, {memory.most / 2**20:.0f} MiB"
        print(f"alone: {len(alone.times)} good requests, {told}", flush=True)
        for number, (kind, name, _) in enumerate(ATTACKS):
            if arguments.only not in (None, kind):
                continue
            found = by_attack[name] = measured(client, memory, port, number, arguments.seconds)
            by_kind[kind].add(found)
            if arguments.verbose:
                memory_used = f"{found.most_memory / 2**20:>7.0f} MiB, {found.refused} refused"
                print(f"{milliseconds(found.last)} ms {memory_used}  {name}", flush=True)
    report(by_kind, by_attack, usual)
    return int(any(found.last - usual > BOUND_SECONDS or found.refused for found in by_kind.values()))


if __name__ == "__main__":
    sys.exit(main())
