"""The cost of sharing a model through the daemon, over its socket and over HTTP.

events: how many pieces of answers leave the daemon a second while each still holds one token, 64 streams, with the
worker that computes nothing. throughput: 64 requests on a random-weight 0.6B, `LLM.generate` of a private tree against
streams over HTTP and against an attached `LLM`. first: the time to the first token of a loaded pocket, likewise.
attach: from `import penstock` to the first token of a loaded pocket, whole scripts. idle: CPU use with two loaded
models.
"""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal

import psutil

from penstock import LLM
from penstock.frontend.daemon.background import daemon_status, start_daemon, stop_daemon
from penstock.protocol.attach import DaemonStatus

from ..clients import Asker, events_over_http, pieces_over_the_socket
from ..harness import ShapeName, compare, greedy, median, random_model, ratios, seconds_of
from ..machine import on_cpu

Part = Literal["events", "throughput", "first", "attach", "idle"]
PARTS: tuple[Part, ...] = ("events", "throughput", "first", "attach", "idle")
STREAMS = 64
# Seconds that a step of the worker that computes nothing is made to take, at most; half of it on average.
DELAYS = (0.04, 0.02, 0.013, 0.008, 0.005)
ATTACHING = """
import time; start = time.perf_counter()
from penstock import LLM, SamplingParams
llm = LLM("pocket", connect={address!r}, quiet=True)
next(iter(llm.stream("What is 2 + 3?", SamplingParams(temperature=0, max_tokens=8, ignore_eos=True))))
print(time.perf_counter() - start)
"""


def run(
    parts: tuple[Part, ...] = PARTS, shape: ShapeName = "0.6b", rounds: int = 5, first_rounds: int = 100,
    seconds: float = 10.0,
) -> None:  # fmt: skip
    runs = {
        "events": partial(events, seconds / 5),
        "throughput": partial(throughput, rounds, shape),
        "first": partial(first, first_rounds),
        "attach": partial(attach, rounds),
        "idle": partial(idle, seconds),
    }
    for name in parts:
        runs[name]()


@contextmanager
def running(*words: str) -> Iterator[DaemonStatus]:
    """One of the benchmark's own, with HTTP on a free port."""
    with TemporaryDirectory(prefix="bd") as folder:
        address = Path(folder, "socket")
        start_daemon([*words, "--http", "127.0.0.1:0"], address)
        try:
            yield daemon_status(address)
        finally:
            stop_daemon(address, 0.0)


def port_of(status: DaemonStatus) -> int:
    return int(status.http.rpartition(":")[2])


def token_prompts(count: int, length: int, first: int) -> list[list[int]]:
    """No two of any round begin alike."""
    numbers = range(first, first + count)
    return [[number % 251 + 3, number // 251 % 251 + 3, *range(3, length + 1)] for number in numbers]


# --- events ----------------------------------------------------------------------------------------------------------


def events(seconds: float = 2.0) -> None:
    print(f"\n{STREAMS} streams, a worker that computes nothing: pieces a second, and tokens in each")
    print(f"{'tokens/s':>9} {'socket':>9} {'HTTP':>9}   tokens a piece over the socket, over HTTP; the daemon's CPU")
    for delay in DELAYS:
        os.environ["PENSTOCK_FAULTS"] = f"worker.step=delay:{delay}"
        options = ("--load-format", "stand-in", "--max-model-len", "4096", "--num-gpu-blocks-override", "8192")
        with running("pocket", *options, "--max-num-seqs", str(STREAMS), "--keep-alive", "inf") as status:
            tokens = int(seconds / (delay / 2 + 0.0005))
            ways = {
                "socket": partial(pieces_over_the_socket, Path(status.address), "pocket"),
                "HTTP": partial(events_over_http, port_of(status), "pocket"),
            }
            print(event_line({name: event_rate(way, tokens, status.pid) for name, way in ways.items()}), flush=True)
    del os.environ["PENSTOCK_FAULTS"]


def event_rate(way: Callable[[list[list[int]], int], int], tokens: int, pid: int) -> tuple[float, float, float]:
    """OutputDeltas a second, tokens in each, and the daemon's share of a core."""
    way(token_prompts(2, 8, 1000), 8)  # loads the model
    start, before = time.perf_counter(), on_cpu(pid)
    count = way(token_prompts(STREAMS, 8, 0), tokens)
    seconds = time.perf_counter() - start
    return count / seconds, STREAMS * tokens / count, (on_cpu(pid) - before) / seconds


def event_line(found: dict[str, tuple[float, float, float]]) -> str:
    (socket_rate, socket_tokens, socket_cpu), (http_rate, http_tokens, http_cpu) = found["socket"], found["HTTP"]
    return (
        f"{socket_rate * socket_tokens:>9,.0f} {socket_rate:>9,.0f} {http_rate:>9,.0f}   "
        f"{socket_tokens:.2f}, {http_tokens:.2f}; {socket_cpu:.0%}, {http_cpu:.0%} of a core"
    )


# --- throughput ------------------------------------------------------------------------------------------------------


def throughput(rounds: int, shape: str, prompt: int = 32, tokens: int = 32) -> None:
    options = {"load_format": "dummy", "quantization": "int8", "max_model_len": 512, "max_num_seqs": STREAMS}
    words = [word for name, value in options.items() for word in ("--" + name.replace("_", "-"), str(value))]
    with (
        random_model(shape) as folder,
        LLM(folder, quiet=True, **options) as private,
        running(f"model={folder}", *words, "--keep-alive", "inf") as status,
        LLM("model", connect=status.address, quiet=True) as attached,
    ):
        params = greedy(tokens)
        used = iter(range(0, 10**6, STREAMS))

        def rate(run: Callable[[list[list[int]]], object]) -> float:
            prompts = token_prompts(STREAMS, prompt, next(used))
            return STREAMS * tokens / seconds_of(partial(run, prompts))

        ways: dict[str, Callable[[list[list[int]]], object]] = {
            "LLM.generate": lambda prompts: private.generate(prompts, params, use_tqdm=False),
            "HTTP streams": lambda prompts: events_over_http(port_of(status), "model", prompts, tokens),
            "attached LLM.generate": lambda prompts: attached.generate(prompts, params, use_tqdm=False),
        }
        title = f"{STREAMS} requests of {prompt} in, {tokens} out, random-weight {shape} int8, output tokens a second"
        compare(title, {name: partial(rate, way) for name, way in ways.items()}, rounds, "tokens/s")


# --- first tokens ----------------------------------------------------------------------------------------------------


def first(rounds: int, tokens: int = 4) -> None:
    words = ("pocket", "--max-model-len", "512", "--keep-alive", "inf")
    with (
        LLM("pocket", max_model_len=512, quiet=True) as private,
        running(*words) as status,
        LLM("pocket", connect=status.address, quiet=True) as attached,
    ):
        params = greedy(tokens)
        used, asker = iter(range(10**6)), Asker(port_of(status), "pocket")

        def streamed(llm: LLM) -> float:
            [prompt] = token_prompts(1, 32, next(used))
            start = time.perf_counter()
            pieces = iter(llm.stream(prompt, params))
            next(pieces)
            seconds = time.perf_counter() - start
            list(pieces)
            return seconds * 1e3

        def over_http() -> float:
            [prompt] = token_prompts(1, 32, next(used))
            start = time.perf_counter()
            response = asker.until_first_event(prompt, tokens)
            seconds = time.perf_counter() - start
            asker.rest(response)
            return seconds * 1e3

        variants = {"direct": lambda: streamed(private), "HTTP": over_http, "attached": lambda: streamed(attached)}
        results = compare("Time to the first token of pocket, 32 tokens in", variants, rounds, "ms")
        over = {name: median(results[name]) - median(results["direct"]) for name in ratios(results, "direct")}
        print(", ".join(f"{name} {more:+.2f} ms" for name, more in over.items()), flush=True)


def attach(rounds: int) -> None:
    with running("pocket", "--max-model-len", "512", "--keep-alive", "inf") as status:
        code = ATTACHING.format(address=status.address)
        taken = [float(subprocess.check_output([sys.executable, "-c", code])) for _ in range(rounds + 1)][1:]
    print(
        f"\nfrom `import penstock` to the first token of a loaded pocket: {median(taken):.3f} s "
        f"(min {min(taken):.3f}, max {max(taken):.3f}, {rounds} scripts)",
        flush=True,
    )


# --- idle ------------------------------------------------------------------------------------------------------------


def idle(seconds: float = 10.0) -> None:
    with (
        running("one=pocket", "two=pocket", "--max-model-len", "512", "--keep-alive", "inf") as status,
        LLM("one", connect=status.address, quiet=True),
        LLM("two", connect=status.address, quiet=True),
    ):
        time.sleep(3)  # KV memory is still touched in the background
        own = psutil.Process(status.pid)
        pids = [own.pid, *(child.pid for child in own.children(recursive=True))]
        before = on_cpu(*pids)
        time.sleep(seconds)
        share = (on_cpu(*pids) - before) / seconds
    print(f"\nidle, two pockets loaded, two clients attached, {len(pids)} processes: {share:.2%} of a core", flush=True)
