"""The effect of repeated attacks on a good client's requests and on the daemon's memory.

A daemon is asked short questions one after another; meanwhile an attack runs again and again on two connections, from a
process of its own: hostile requests, ill-behaved clients and clients that make the daemon hold much over HTTP, then
floods over the socket, next to which the good client is an attached one. Prints for each kind the median and the 99th
percentile of the good requests, how much later the latter is than the median alone, how many were refused, and the
greatest memory of the daemon's own process; ends with 1 where the 99th percentile is more than 200 ms later, or where a
request failed. Of one attack there are few good requests: its own figure is nearly their latest.
"""

import http.client
import json
import resource
import statistics
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from multiprocessing import get_context
from multiprocessing.synchronize import Event
from pathlib import Path

from penstock import LLM

from ..attacks import ATTACKS, Target
from ..harness import greedy
from .daemon import port_of, running

BOUND_SECONDS = 0.2
GIVES_UP_SECONDS = 20.0
CONNECTIONS = 2
ATTACKER_BYTES = 4 << 30
GOOD = json.dumps({"prompt": "What is", "max_tokens": 2, "temperature": 0})
Good = Callable[[], bool]  # one good request; whether it is answered


def run(
    model: str = "pocket", seconds: float = 0.6, flood_seconds: float = 8.0, only: str | None = None,
    verbose: bool = False, serve: str = "",
) -> None:  # fmt: skip
    by_kind: dict[str, Found] = defaultdict(Found)
    by_attack: dict[str, Found] = {}
    with running(model, "--preload", "--keep-alive", "inf", *serve.split()) as status:
        target, memory = Target(port_of(status), status.address, model), Memory(status.pid)
        over_http = http_client(target.port)
        with LLM(model, connect=status.address, quiet=True) as llm:
            during(over_http, 1.0)
            alone = during(over_http, 3.0)
            usual = statistics.median(alone.times)
            shown = f"median{milliseconds(usual)} ms, p99{milliseconds(alone.last)} ms, {memory.most / 2**20:.0f} MiB"
            print(f"alone: {len(alone.times)} good requests, {shown}", flush=True)
            for number, (kind, name, _) in enumerate(ATTACKS):
                if only not in (None, kind):
                    continue
                is_flood = kind == "floods"
                good, lasting = (attached_client(llm), flood_seconds) if is_flood else (over_http, seconds)
                found = by_attack[name] = measured(good, memory, target, number, lasting)
                by_kind[kind].add(found)
                if verbose or is_flood:
                    memory_used = f"{found.most_memory / 2**20:>7.0f} MiB, {found.refused} refused"
                    print(f"{milliseconds(found.last)} ms {memory_used}  {name}", flush=True)
    report(by_kind, by_attack, usual)
    sys.exit(any(found.last - usual > BOUND_SECONDS or found.refused for found in by_kind.values()))


# --- the good client --------------------------------------------------------------------------------------------------


def http_client(port: int) -> Good:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=GIVES_UP_SECONDS)

    def is_answered() -> bool:
        try:
            connection.request("POST", "/v1/completions", GOOD, {"Content-Type": "application/json"})
            reply = connection.getresponse()
            reply.read()
            return reply.status == 200
        except (OSError, http.client.HTTPException):
            connection.close()
            return False

    return is_answered


def attached_client(llm: LLM) -> Good:
    return lambda: llm.generate(["What is 2 + 3?"], greedy(2), use_tqdm=False)[0].error_code == 200


@dataclass(slots=True)
class Found:
    """A good client's times, and the daemon's greatest memory meanwhile, in bytes."""

    times: list[float] = field(default_factory=list)
    refused: int = 0  # or not answered in time
    most_memory: int = 0

    @property
    def last(self) -> float:
        return sorted(self.times)[min(len(self.times) - 1, int(0.99 * len(self.times)))]

    def add(self, other: "Found") -> None:
        self.times += other.times
        self.refused += other.refused
        self.most_memory = max(self.most_memory, other.most_memory)


def during(good: Good, seconds: float) -> Found:
    """Send at least twenty requests, unless they take far too long."""
    found, start = Found(), time.perf_counter()
    while (now := time.perf_counter()) < start + seconds or (
        len(found.times) < 20 and now < start + seconds + 2 * GIVES_UP_SECONDS
    ):
        found.refused += not good()
        found.times.append(time.perf_counter() - now)
    return found


# --- the attacker -----------------------------------------------------------------------------------------------------


def attack_until(target: Target, number: int, ends: Event) -> None:
    """The attacker's process."""
    resource.setrlimit(resource.RLIMIT_AS, (ATTACKER_BYTES, ATTACKER_BYTES))

    def attack() -> None:
        while not ends.is_set():
            with suppress(OSError):
                ATTACKS[number][2](target)

    threads = [threading.Thread(target=attack) for _ in range(CONNECTIONS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


@contextmanager
def attacked(target: Target, number: int) -> Iterator[None]:
    context = get_context("fork")
    ends = context.Event()
    process = context.Process(target=attack_until, args=(target, number, ends))
    process.start()
    try:
        yield
    finally:
        ends.set()
        process.join(10)
        process.kill()


def measured(good: Good, memory: "Memory", target: Target, number: int, seconds: float) -> Found:
    memory.reset()
    with attacked(target, number):
        found = during(good, seconds)
    found.most_memory = memory.most
    return found


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
