"""Machines on a network of their own: two network namespaces with a cable between them, which is pulled out.

Needs root, or leave to make namespaces; where there is none, `test_nodes.py` cuts a proxy instead.
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from builders.nodes import KEY
from builders.watching import BOUND_SECONDS, wait_until

pytestmark = pytest.mark.long
ADDRESSES = ("10.77.0.1", "10.77.0.2")
PORT = 29501
FRONT = """
from penstock import EngineDeadError, LLM, SamplingParams
llm = LLM({model!r}, tensor_parallel_size=2, nnodes=2, master_addr={address!r}, max_model_len=1024,
          kv_cache_memory="32MiB", quiet=True)
print("ready", flush=True)
try:
    llm.generate([[1, 2, 3]] * 4, SamplingParams(max_tokens=1000, ignore_eos=True), use_tqdm=False)
except EngineDeadError as error:
    print(error, flush=True)
"""


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


@pytest.fixture
def networks() -> Iterator[list[str]]:
    """Two namespaces, each with one end of a cable."""
    names = [f"penstock-{os.getpid()}-{number}" for number in range(2)]
    made = []
    try:
        for name in names:
            ip("netns", "add", name)
            made.append(name)
        ip("-n", names[0], "link", "add", "cable", "type", "veth", "peer", "name", "cable", "netns", names[1])
        for name, address in zip(names, ADDRESSES, strict=True):
            ip("-n", name, "address", "add", f"{address}/24", "dev", "cable")
            for device in ("cable", "lo"):
                ip("-n", name, "link", "set", device, "up")
        yield names
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"no namespaces can be made here: {error}")
    finally:
        for name in made:
            ip("netns", "del", name)


def started(network: str, *command: str) -> "subprocess.Popen[str]":
    given = {**os.environ, "PENSTOCK_NODE_KEY": KEY, "PENSTOCK_FAULTS": "worker.step=delay:0.02"}
    given.pop("PENSTOCK_HOST_IP", None)
    words = ["ip", "netns", "exec", network, sys.executable, *command]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "stdin": subprocess.DEVNULL}
    return subprocess.Popen(words, text=True, env=given, **pipes)


def test_a_cable_that_is_pulled_out_ends_both_machines_with_the_cause(model_folder: Path, networks):
    front = started(networks[0], "-c", FRONT.format(model=str(model_folder), address=ADDRESSES[0]))
    words = ["--nnodes", "2", "--node-rank", "1", "--master-addr", ADDRESSES[0]]
    other = started(networks[1], "-m", "penstock", "worker", str(model_folder), *words)
    try:
        assert front.stdout is not None
        before: list[str] = []  # the request to start a worker
        while (line := front.stdout.readline()) != "ready\n":
            before.append(line)
            assert line, f"{before} {other.communicate(timeout=BOUND_SECONDS)}"
        ip("-n", networks[0], "link", "set", "cable", "down")
        said_there, _ = front.communicate(timeout=BOUND_SECONDS)
        said, _ = other.communicate(timeout=BOUND_SECONDS)
        assert "Node 1" in said_there and "not been heard of" in said_there, said_there
        assert "Node 0 has not been heard of" in said and other.returncode == 1, said
        for name in networks:
            wait_until(lambda: not pids_in(name), BOUND_SECONDS, "all processes have ended")  # noqa: B023
    finally:
        for process in (front, other):
            process.kill()
            process.communicate()


def pids_in(network: str) -> str:
    return subprocess.run(["ip", "netns", "pids", network], check=True, capture_output=True, text=True).stdout.strip()
