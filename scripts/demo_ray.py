"""Shows Penstock on a Ray cluster in two minutes: three nodes on this machine, of which it kills a replica and a node.

    scripts/demo --ray

Every figure that it prints was taken in that run.
"""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

os.environ["RAY_USAGE_STATS_ENABLED"] = "0"

import psutil
import ray
from ray import serve
from ray.cluster_utils import Cluster

from penstock.cluster.ray import deployment
from penstock.frontend.jobs.job_files import JobFiles

NUM_LINES, NUM_QUESTIONS, NUM_CLIENTS = 1500, 120, 6


def main() -> int:
    try:
        show()
    except KeyboardInterrupt:
        print("\nStopped. The cluster has ended, too.", flush=True)
        return 130
    return 0


def show() -> None:
    title("Penstock on Ray: a head and two nodes of one core each, all on this machine")
    with cluster() as (found, nodes):
        show_service()
        show_job(found, nodes)


@contextmanager
def cluster() -> Iterator[tuple[Any, list[Any]]]:
    found = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    try:
        nodes = [found.add_node(num_cpus=1) for _ in range(2)]
        ray.init(address=found.address, logging_level="ERROR", log_to_driver=False)
        yield found, nodes
    finally:
        ray.shutdown()
        found.shutdown()


def show_service() -> None:
    title("1. Two replicas behind one address, one of which is killed")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    serve.start(http_options={"port": port, "location": "HeadOnly"})
    start = time.monotonic()
    serve.run(deployment("pocket", num_replicas=2), name="pocket")
    say(f"`deployment('pocket', num_replicas=2)` answers at http://127.0.0.1:{port}/v1 after {since(start)}.")
    questions = [f"What is {number % 9} + {number // 9 % 9}?" for number in range(NUM_QUESTIONS)]
    answers: list[tuple[str, str]] = []

    def ask(mine: list[str]) -> None:
        answers.extend((question, answered(port, question)) for question in mine)

    threads = [threading.Thread(target=ask, args=(questions[number::NUM_CLIENTS],)) for number in range(NUM_CLIENTS)]
    for thread in threads:
        thread.start()
    while len(answers) < NUM_QUESTIONS // 4:
        time.sleep(0.01)
    victim = replica()
    victim.send_signal(signal.SIGKILL)
    for thread in threads:
        thread.join()
    right = sum(
        answer.split()[-1].rstrip(".") == str(sum(map(int, question[8:-1].split(" + "))))
        for question, answer in answers
    )
    say(f"Replica {victim.pid} was killed at answer {NUM_QUESTIONS // 4}: {len(answers)} of {NUM_QUESTIONS} questions")
    say(f"have an answer, {right} of them are right. Serve has started another replica.")
    serve.shutdown()


def total(question: str) -> str:
    return str(sum(map(int, question.removeprefix("What is ").rstrip("?").split(" + "))))


def answered(port: int, question: str) -> str:
    body = {"model": "pocket", "messages": [{"role": "user", "content": question}], "temperature": 0, "max_tokens": 64}
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/v1/chat/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request) as reply:
        return str(json.load(reply)["choices"][0]["message"]["content"])


def replica() -> psutil.Process:
    names = {process: "".join(process.cmdline()[:1]) for process in psutil.Process().children(recursive=True)}
    return next(each for each, name in names.items() if "ServeReplica:pocket:pocket" in name and "-door" not in name)


def show_job(found: Any, nodes: list[Any]) -> None:
    title(f"2. A job of {NUM_LINES:,} lines, during which a node is lost")
    with TemporaryDirectory() as folder:
        source, on_ray, alone = (Path(folder, name) for name in ("in.jsonl", "ray.jsonl", "alone.jsonl"))
        source.write_text("".join(f'"What is {number % 97} + {number % 89}?"\n' for number in range(NUM_LINES)))
        start = time.monotonic()
        running = batch(source, on_ray, "--ray", found.address)
        while running.poll() is None and num_done(on_ray) < NUM_LINES // 3:
            time.sleep(0.1)
        done = num_done(on_ray)
        found.remove_node(nodes.pop(), allow_graceful=False)
        running.wait()
        say(f"`penstock batch --ray` lost a node after {done:,} lines, and has answered all after {since(start)}.")
        start = time.monotonic()
        batch(source, alone).wait()
        same = "the same bytes" if on_ray.read_bytes() == alone.read_bytes() else "OTHER BYTES"
        say(f"`penstock batch` on this machine alone wrote {same} in {since(start)}.")


def batch(source: Path, output: Path, *words: str) -> "subprocess.Popen[bytes]":
    command = [sys.executable, "-m", "penstock", "batch", str(source), str(output), "--model", "pocket", "--quiet"]
    return subprocess.Popen([*command, "--temperature", "0", "--max-tokens", "64", *words])


def num_done(output: Path) -> int:
    files = JobFiles.of(output)
    return files.state().num_done if files.journal.exists() else 0


def since(start: float) -> str:
    return f"{time.monotonic() - start:.1f} s"


def title(text: str) -> None:
    print(f"\n{text}", flush=True)


def say(text: str) -> None:
    print(f"  {text}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
