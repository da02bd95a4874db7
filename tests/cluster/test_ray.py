"""Penstock on Ray: a cluster of several nodes on this machine, with the bundled model.

Replicas and nodes are lost, under load and in the middle of a job. The quick tests have no cluster: `test_serving.py`.
"""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
from builders.later import Later

from penstock import LLM, SamplingParams
from penstock.frontend.jobs.job_files import JobFiles

pytestmark = [pytest.mark.ray, pytest.mark.xdist_group("cluster")]
openai = Later("openai")
QUESTIONS = [f"What is {number % 9} + {number // 9}?" for number in range(36)]
GREEDY = SamplingParams(temperature=0, max_tokens=24)
_BOUND = 120.0


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """A head without cores, and two nodes with one each."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    ray = pytest.importorskip("ray")
    from ray import serve
    from ray.cluster_utils import Cluster

    try:
        found = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
        nodes = [found.add_node(num_cpus=1) for _ in range(2)]
        ray.init(address=found.address, logging_level="ERROR", log_to_driver=False)
    except Exception as error:  # a machine that lets Ray's own processes not run
        pytest.skip(f"RAY IS NOT TESTED: its cluster can't start here ({error})")
    yield found, nodes
    serve.shutdown()
    ray.shutdown()
    found.shutdown()


@pytest.fixture(scope="module")
def port(cluster: Any) -> int:
    from ray import serve

    with socket.create_server(("127.0.0.1", 0)) as free:
        found: int = free.getsockname()[1]
    serve.start(http_options={"port": found, "location": "HeadOnly"})
    return found


@pytest.fixture
def served(port: int) -> "openai.OpenAI":
    """Two replicas, unless they are there."""
    from ray import serve

    from penstock.cluster.ray import deployment

    if "pocket" not in serve.status().applications:
        serve.run(deployment("pocket", num_replicas=2), name="pocket")
    return openai.OpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key="none", max_retries=0, timeout=_BOUND)


@pytest.fixture
def idle(cluster: Any) -> Any:
    """The cluster, none of whose cores has a replica."""
    from ray import serve

    if "pocket" in serve.status().applications:
        serve.delete("pocket")
    return cluster


@pytest.fixture(scope="module")
def alone() -> dict[str, str]:
    """The answers of one machine."""
    conversations = [[{"role": "user", "content": question}] for question in QUESTIONS]
    with LLM("pocket", quiet=True, num_threads=1) as llm:
        return {
            question: output.outputs[0].text for question, output in zip(QUESTIONS, llm.chat(conversations, GREEDY))
        }


def replicas() -> list[psutil.Process]:
    """Processes of this run's replicas, which descend from it."""
    ours = psutil.Process().children(recursive=True)
    return [process for process in ours if process.is_running() and "ServeReplica:pocket:pocket" in name(process)]


def name(process: psutil.Process) -> str:
    try:
        words = process.cmdline()
    except psutil.Error:
        return ""
    return "" if not words or "-door" in words[0] else words[0]


def until(holds: Callable[[], Any], what: str) -> Any:
    end = time.monotonic() + _BOUND
    while not (found := holds()):
        assert time.monotonic() < end, f"{what} did not come"
        time.sleep(0.05)
    return found


class Clients:
    """Threads that ask until they are to stop; every third answer is streamed."""

    def __init__(self, client: "openai.OpenAI") -> None:
        self.client, self.answers, self.faults, self.is_over = client, [], [], False
        self._threads = [threading.Thread(target=self._ask, args=(number,)) for number in range(4)]
        for thread in self._threads:
            thread.start()

    def _ask(self, number: int) -> None:
        while not self.is_over:
            question = QUESTIONS[number % len(QUESTIONS)]
            body = {"model": "pocket", "messages": [{"role": "user", "content": question}], "temperature": 0}
            try:
                if number % 3:
                    answer = self.client.chat.completions.create(**body, max_tokens=24)
                    self.answers.append((question, answer.choices[0].message.content))
                else:
                    events = self.client.chat.completions.create(**body, max_tokens=24, stream=True)
                    text = "".join(event.choices[0].delta.content or "" for event in events if event.choices)
                    self.answers.append((question, text))
            except Exception as error:
                self.faults.append((number % 3 == 0, repr(error)))
            number += 4

    def more(self, count: int) -> None:
        """Wait for so many more answers."""
        wanted = len(self.answers) + count
        until(lambda: len(self.answers) >= wanted, f"answer {wanted}")

    def end(self) -> None:
        self.is_over = True
        for thread in self._threads:
            thread.join()


def worker_of(replica: psutil.Process) -> psutil.Process:
    [found] = [each for each in replica.children(recursive=True) if "penstock.worker" in each.cmdline()]
    return found


@pytest.mark.parametrize("of_replica", [worker_of, lambda replica: replica])
def test_a_killed_replica_loses_no_request_and_answers_are_those_of_one_machine(
    served: "openai.OpenAI", alone: dict[str, str], of_replica: Callable[[psutil.Process], psutil.Process]
) -> None:
    clients = Clients(served)
    try:
        clients.more(20)
        first = until(lambda: replicas() if len(replicas()) == 2 else None, "two replicas")
        of_replica(first[0]).send_signal(signal.SIGKILL)
        clients.more(60)
    finally:
        clients.end()
    wrong = [(question, text) for question, text in clients.answers if text != alone[question]]
    assert not wrong, f"{len(wrong)} of {len(clients.answers)} answers differ: {wrong[:3]}"
    # A stream may end with the cause, whole answers are asked of another replica.
    assert all(is_stream and "replica" in fault for is_stream, fault in clients.faults), clients.faults


def test_all_replicas_tell_what_they_do_and_a_request_is_stopped_wherever_it_runs(served: "openai.OpenAI") -> None:
    http = httpx.Client(base_url=str(served.base_url).removesuffix("v1/"), timeout=_BOUND)
    until(lambda: http.get("/load").json()["dp_rank_count"] == 2, "both replicas")
    body = {"model": "pocket", "prompt": "What is", "n": 16, "max_tokens": 3000, "ignore_eos": True, "stream": True}

    def is_stopped() -> bool:  # unless it has ended before it is found
        with http.stream("POST", "/v1/completions", json=body) as stream:
            lines = stream.iter_lines()  # the stream ends with it
            next(lines)
            found = http.get("/v1/requests").json()["data"]
            return any(http.delete(f"/v1/requests/{each['id']}").status_code == 200 for each in found)

    for _ in range(4):  # of which each may be anywhere
        until(is_stopped, "a request that is stopped")
    assert http.delete("/v1/requests/nobody").status_code == 404
    text = http.get("/metrics").text
    assert [f'penstock_replica_steps_total{{model="pocket",replica="{each}"}}' in text for each in (0, 1, 2)] == [
        True, True, False,
    ]  # fmt: skip


def test_a_dataset_has_the_answers_of_one_machine_and_bad_rows_fail_alone(idle: Any, alone: dict[str, str]) -> None:
    import ray

    from penstock.cluster.ray import Generate

    messages = [[{"role": "user", "content": question}] for question in QUESTIONS]
    messages[5] = [{"role": "nobody", "content": "?"}]
    rows = [{"id": number, "messages": each} for number, each in enumerate(messages)]
    how = {"model": "pocket", "sampling_params": {"temperature": 0, "max_tokens": 24}, "num_threads": 1}
    compute = ray.data.ActorPoolStrategy(size=1)
    given = {"fn_constructor_kwargs": how, "compute": compute, "batch_size": 8, "num_cpus": 1}
    found = ray.data.from_items(rows).map_batches(Generate, **given)
    answers = {row["id"]: row for row in found.take_all()}
    assert len(answers) == len(QUESTIONS)
    assert (answers[5]["error_code"], answers[5]["generated_text"]) == (400, "")
    assert "nobody" in answers[5]["error_msg"]
    for number, question in enumerate(QUESTIONS):
        if number != 5:
            assert answers[number]["generated_text"] == alone[question], question


@pytest.fixture
def lines(tmp_path: Path) -> Path:
    """A job's input: chats, several samples, long answers, and a line in fifty that is wrong."""
    bodies = []
    for number in range(2500):
        question = [{"role": "user", "content": f"What is {number % 97} + {number % 89}?"}]
        body = {"model": "pocket", "messages": question if number % 50 else [], "max_tokens": 48}
        further = {3: {"temperature": 1.2}, 5: {"n": 2}, 7: {"max_tokens": 300, "ignore_eos": True}}
        bodies.append(body | further.get(number % 30, {}))
    source = tmp_path / "in.jsonl"
    url = {"method": "POST", "url": "/v1/chat/completions"}
    written = [json.dumps({"custom_id": str(number), **url, "body": body}) for number, body in enumerate(bodies)]
    source.write_text("\n".join(written))
    return source


def batch(source: Path, output: Path, *words: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "penstock", "batch", source, output, "--model", "pocket", "--receipt", *words]
    return subprocess.Popen(list(map(str, command)), cwd=source.parent)


def num_done(output: Path) -> int:
    files = JobFiles.of(output)
    return files.state().num_done if files.journal.exists() else 0


def test_a_job_whose_nodes_are_lost_has_the_bytes_of_one_machine(idle: Any, lines: Path) -> None:
    found, nodes = idle
    on_ray, alone = lines.with_name("ray.jsonl"), lines.with_name("alone.jsonl")
    running = batch(lines, on_ray, "--ray", found.address)
    try:
        for count in (300, 900):
            until(lambda least=count: running.poll() is not None or num_done(on_ray) >= least, f"line {count}")
            assert running.poll() is None, "it has ended before a node was lost"
            found.remove_node(nodes.pop(0), allow_graceful=False)
            nodes.append(found.add_node(num_cpus=1))
        assert running.wait() == batch(lines, alone).wait() == 3
    finally:
        running.kill()
    assert on_ray.read_bytes() == alone.read_bytes()
    assert JobFiles.of(on_ray).errors.read_bytes() == JobFiles.of(alone).errors.read_bytes()
