"""The cost of Ray Serve: the time that it adds to a first token, and the throughput of two replicas against one.

first: streams of pocket through Serve (one replica, and two behind a door) next to the daemon's own HTTP, in turns.
throughput: 32 clients at once, with workers that compute nothing and whose steps take a fixed time. Needs
`penstock[ray]`. With RAY_SERVE_ENABLE_HA_PROXY=1 in its environment, Ray puts HAProxy in the place of its own proxy.
"""

import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

import httpx

from ..harness import median

Part = Literal["first", "throughput"]
PARTS: tuple[Part, ...] = ("first", "throughput")
BODY = {"model": "pocket", "messages": [{"role": "user", "content": "What is 2 + 3?"}], "temperature": 0}
CLIENTS, ROWS, STEP_SECONDS, TOKENS = 32, 8, 0.05, 16


def run(parts: tuple[Part, ...] = PARTS, rounds: int = 100, seconds: float = 15.0) -> Any:
    os.environ |= {"RAY_USAGE_STATS_ENABLED": "0"}
    found = {}
    if "first" in parts:
        found["first"] = {number: first(number, rounds) for number in (1, 2)}
    if "throughput" in parts:
        one, two = (throughput(number, seconds) for number in (1, 2))
        found["throughput"] = {1: one, 2: two}
        print(f"two replicas answer {two / one:.2f} times as many requests as one ({two:.1f}, {one:.1f} a second)")
    return found


@contextmanager
def served(number: int, **options: Any) -> Iterator[str]:
    """The address of an application with so many replicas."""
    import ray
    from ray import serve

    from penstock.cluster.ray import deployment

    port = free_port()
    ray.init(address="local", num_cpus=2 * number, include_dashboard=False, logging_level="ERROR", log_to_driver=False)
    try:
        serve.start(http_options={"port": port})
        serve.run(deployment("pocket", num_replicas=number, num_cpus=1, **options), name="pocket")
        yield f"http://127.0.0.1:{port}"
    finally:
        serve.shutdown()
        ray.shutdown()


@contextmanager
def daemon() -> Iterator[str]:
    port = free_port()
    with TemporaryDirectory() as folder:
        words = ["serve", "pocket", "--port", str(port), "--socket", str(Path(folder, "socket"))]
        process = subprocess.Popen([sys.executable, "-m", "penstock", *words], stderr=subprocess.DEVNULL)
        try:
            address = f"http://127.0.0.1:{port}"
            while not is_healthy(address):
                time.sleep(0.1)
            yield address
        finally:
            process.terminate()
            process.wait()


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])


def is_healthy(address: str) -> bool:
    try:
        return httpx.get(f"{address}/health").status_code == 200
    except httpx.HTTPError:
        return False


def first(number: int, rounds: int) -> dict[str, float]:
    with served(number) as ray_serve, daemon() as alone, httpx.Client() as client:
        for _ in range(10):
            first_token(client, ray_serve), first_token(client, alone)
        pairs = [(first_token(client, ray_serve), first_token(client, alone)) for _ in range(rounds)]
    added = median([through - without for through, without in pairs])
    times = [median(list(times)) for times in zip(*pairs, strict=True)]
    print(
        f"{number} replica(s): Serve adds {1e3 * added:.1f} ms to a first token "
        f"({1e3 * times[0]:.1f} ms; the daemon's own HTTP {1e3 * times[1]:.1f} ms)",
        flush=True,
    )
    return {"added": added, "serve": times[0], "daemon": times[1]}


def first_token(client: httpx.Client, address: str) -> float:
    start = time.perf_counter()
    body = {**BODY, "stream": True, "max_tokens": 8}
    with client.stream("POST", f"{address}/v1/chat/completions", json=body) as reply:
        pieces = reply.iter_raw()
        next(pieces)
        seconds = time.perf_counter() - start
        for _ in pieces:
            pass
    return seconds


def throughput(number: int, seconds: float) -> float:
    """Requests a second of clients that ask again and again."""
    os.environ["PENSTOCK_FAULTS"] = f"worker.step=delay:{STEP_SECONDS}"  # the replicas' processes inherit it
    try:
        with served(number, load_format="stand-in", max_num_seqs=ROWS) as address:
            return answered(address, seconds)
    finally:
        del os.environ["PENSTOCK_FAULTS"]


def answered(address: str, seconds: float) -> float:
    counts, begin, end = [0] * CLIENTS, threading.Event(), threading.Event()

    def ask(client: int) -> None:
        body = {**BODY, "max_tokens": TOKENS, "ignore_eos": True}
        with httpx.Client(timeout=60) as connection:
            while not end.is_set():
                connection.post(f"{address}/v1/chat/completions", json=body).raise_for_status()
                counts[client] += begin.is_set() and not end.is_set()

    run_all([lambda client=client: ask(client) for client in range(CLIENTS)], begin, end, seconds)
    return sum(counts) / seconds


def run_all(work: list[Callable[[], None]], begin: threading.Event, end: threading.Event, seconds: float) -> None:
    threads = [threading.Thread(target=each) for each in work]
    for thread in threads:
        thread.start()
    time.sleep(seconds / 5)
    begin.set()
    time.sleep(seconds)
    end.set()
    for thread in threads:
        thread.join()
