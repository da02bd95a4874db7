"""What attached clients that mean harm cost the daemon and a good client: its memory, and how long the good one waits.

    python scripts/bench_floods.py [MODEL] [--seconds 8] [--serve OPTION …]

Each flood runs in a process of its own for some seconds, while another asks for 2 tokens again and again. Prints the
greatest resident memory of the daemon's own process, the median and the 99th percentile of the good client, and how
many answers it got.
"""

import argparse
import os
import random
import resource
import socket
import statistics
import struct
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory

import psutil

from penstock import LLM, SamplingParams
from penstock.frontend.daemon.background import line_to, start_daemon, status_of, stop_daemon
from penstock.protocol.attach import ATTACH_PROTOCOL, Ask, Attach, WireRequest, frame

Flood = Callable[[Path, str], None]
_ATTACKER_BYTES = 4 << 30
LONG = SamplingParams(max_tokens=400, ignore_eos=True)
HEAVY = SamplingParams(max_tokens=400, ignore_eos=True, logprobs=20, prompt_logprobs=20)


def connected(address: Path) -> socket.socket:
    stream = socket.socket(socket.AF_UNIX)
    stream.connect(os.fspath(address))
    return stream


def attached(address: Path, model: str) -> socket.socket:
    stream = connected(address)
    stream.sendall(frame(Attach(ATTACH_PROTOCOL, model, model, {})))
    stream.recv(1 << 16)
    return stream


def sent_while_it_is_read(stream: socket.socket, sent: bytes) -> None:
    stream.settimeout(2)
    with suppress(OSError):
        stream.sendall(sent)


def held_open(address: Path, model: str, sent: bytes, is_attached: bool, count: int) -> None:
    """Send the same on many connections, and stay; where that fails, begin again."""
    streams = []
    for _ in range(count):
        streams.append(attached(address, model) if is_attached else connected(address))
        sent_while_it_is_read(streams[-1], sent)
    time.sleep(1)
    for stream in streams:
        stream.close()


def requests(count: int, params: SamplingParams, text: str = "Go on.", *, is_streamed: bool = False) -> bytes:
    every = [WireRequest(number, 0, text, is_streamed=is_streamed) for number in range(count)]
    asks = [Ask(every[start : start + 512], [params]) for start in range(0, count, 512)]
    return b"".join(map(frame, asks))


def bytes_by_chance(address: Path, model: str) -> None:
    stream = attached(address, model) if random.random() < 0.5 else connected(address)
    body = random.randbytes(random.randrange(1 << 12))
    sent_while_it_is_read(stream, struct.pack("<I", len(body)) + body)
    stream.close()


def flood_of(sent: Callable[[], bytes], *, is_attached: bool = True, count: int = 1) -> Flood:
    made: list[bytes] = []

    def flood(address: Path, model: str) -> None:
        made[:] = made or [sent()]
        held_open(address, model, made[0], is_attached, count)

    return flood


FLOODS: dict[str, Flood | None] = {
    "nothing": None,
    "8 MiB of 256 announced, not attached, 100 times": flood_of(
        lambda: struct.pack("<I", 255 << 20) + bytes(8 << 20), is_attached=False, count=100
    ),
    "8 MiB of 16 announced, attached, 100 times": flood_of(
        lambda: struct.pack("<I", 15 << 20) + bytes(8 << 20), count=100
    ),
    "100,000 requests": flood_of(lambda: requests(100_000, LONG)),
    "100,000 requests in one message": flood_of(
        lambda: frame(Ask([WireRequest(number, 0, "Go on.") for number in range(100_000)], [LONG]))
    ),
    "1,000 streams with log-probabilities, unread": flood_of(
        lambda: requests(1000, HEAVY, "Go on. " * 60, is_streamed=True)
    ),
    "400 connections that say nothing": flood_of(lambda: b"", is_attached=False, count=400),
    "bytes by chance": bytes_by_chance,
}


def attack_until(name: str, address: Path, model: str, ends: object) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (_ATTACKER_BYTES, _ATTACKER_BYTES))
    while not ends.is_set():  # type: ignore[attr-defined]
        with suppress(OSError):
            FLOODS[name](address, model)  # type: ignore[misc]


class Watch:
    """The greatest resident memory of a process, until it is told to stop."""

    def __init__(self, pid: int) -> None:
        self._process = psutil.Process(pid)
        self._ends = threading.Event()
        self.before = self.greatest = self._process.memory_info().rss
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()

    def _look(self) -> None:
        while not self._ends.wait(0.02):
            self.greatest = max(self.greatest, self._process.memory_info().rss)

    def stop(self) -> None:
        self._ends.set()
        self._thread.join()


def answered(llm: LLM, seconds: float) -> list[float]:
    params = SamplingParams(temperature=0, max_tokens=2, ignore_eos=True)
    end, found = time.perf_counter() + seconds, []
    while time.perf_counter() < end:
        start = time.perf_counter()
        llm.generate(["What is 2 + 3?"], params, use_tqdm=False)
        found.append(time.perf_counter() - start)
    return found


def flooded(name: str, address: Path, model: str, seconds: float) -> str:
    context = get_context("fork")
    ends = context.Event()
    line = line_to(address)
    watch = Watch(status_of(line).pid)
    line.close()
    with LLM(model, connect=str(address), quiet=True) as llm:
        answered(llm, 0.5)
        if FLOODS[name] is not None:
            attacker = context.Process(target=attack_until, args=(name, address, model, ends))
            attacker.start()
            time.sleep(1)
        found = sorted(answered(llm, seconds))
        ends.set()
        if FLOODS[name] is not None:
            attacker.join(5)
            attacker.kill()
            attacker.join()
    watch.stop()
    last = found[min(len(found) - 1, int(0.99 * len(found)))]
    grown = f"{watch.before >> 20:>7,} {watch.greatest >> 20:>9,}"
    return f"{name:<50}{grown} {len(found):>8,} {statistics.median(found) * 1e3:>9.1f} {last * 1e3:>9.1f}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("model", nargs="?", default="pocket")
    parser.add_argument("--seconds", type=float, default=8.0)
    parser.add_argument("--only", nargs="*", help="words that the names of floods hold")
    parser.add_argument("--serve", nargs=argparse.REMAINDER, default=[], help="options of penstock serve")
    arguments = parser.parse_args()
    print(f"{'flood':<50}{'MiB':>7} {'greatest':>9} {'answers':>8} {'median':>9} {'p99 (ms)':>9}")
    for name in FLOODS:
        if arguments.only and not any(word in name for word in arguments.only):
            continue
        with TemporaryDirectory(prefix="pf") as folder:
            os.chmod(folder, 0o700)
            address = Path(folder, "socket")
            start_daemon([arguments.model, "--preload", "--no-http", *arguments.serve], address)
            try:
                print(flooded(name, address, arguments.model, arguments.seconds), flush=True)
            finally:
                stop_daemon(address, 0.0)
    return 0


if __name__ == "__main__":
    sys.exit(main())
