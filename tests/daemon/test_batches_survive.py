"""A batch of an HTTP client, by OpenAI's own client, survives the daemon's end and gives way to other models."""

import json
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest
from builders.daemon import models
from builders.later import Later
from builders.watching import module_of, wait_until

from penstock.frontend.daemon.background import daemon_status, start_daemon, stop_daemon
from penstock.protocol.attach import DaemonStatus

openai = Later("openai")

CHATS = "/v1/chat/completions"
LINES = "\n".join(
    json.dumps({"custom_id": f"r{n}", "method": "POST", "url": CHATS, "body": {
        "model": "one", "max_tokens": 30, "messages": [{"role": "user", "content": f"prompt {n}"}]}})
    for n in range(40)
)  # fmt: skip


@pytest.fixture
def address(tmp_path, monkeypatch) -> Iterator[Path]:
    monkeypatch.setenv("PENSTOCK_FAULTS", "worker.step=delay:0.02")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    tmp_path.chmod(0o700)
    (tmp_path / "config").write_text(models("one", "two", more="max_num_seqs = 4\n", max_loaded=1))
    yield tmp_path / "socket"
    if (tmp_path / "socket").exists():
        stop_daemon(tmp_path / "socket", 0.0)


@contextmanager
def started(address: Path) -> "Iterator[tuple[DaemonStatus, openai.OpenAI]]":
    start_daemon(["--config", str(address.with_name("config")), "--http", "127.0.0.1:0"], address)
    status = daemon_status(address)
    with openai.OpenAI(base_url=f"{status.http}/v1", api_key="none", max_retries=0) as client:
        yield status, client


def begun(client: "openai.OpenAI") -> str:
    file = client.files.create(file=("in.jsonl", LINES.encode()), purpose="batch")
    return client.batches.create(input_file_id=file.id, endpoint=CHATS, completion_window="24h").id


def until(client: "openai.OpenAI", batch_id: str, status: str, least: int = 0) -> Any:
    def holds() -> bool:
        batch = client.batches.retrieve(batch_id)
        return batch.status == status and batch.request_counts.completed >= least

    wait_until(holds, f"{status}, {least} done")
    return client.batches.retrieve(batch_id)


@pytest.mark.long
def test_a_batch_goes_on_after_daemon_and_worker_were_killed_or_stopped_and_has_the_same_answers(address):
    with started(address) as (status, client):
        whole = client.files.content(until(client, begun(client), "completed").output_file_id).read()
        batch_id = begun(client)
        until(client, batch_id, "in_progress", least=5)
        os.kill(status.pid, signal.SIGKILL)
    with started(address) as (_, client):
        until(client, batch_id, "in_progress", least=10)
        stop_daemon(address, 1.0)
    with started(address) as (status, client):
        assert client.batches.retrieve(batch_id).request_counts.completed >= 10
        wait_until(lambda: daemon_status(address).models[0].state == "ready", "the model is loaded")
        children = psutil.Process(status.pid).children(recursive=True)
        os.kill(next(child.pid for child in children if module_of(child.pid).startswith("penstock.worker")), 9)
        batch = until(client, batch_id, "completed")
        assert client.files.content(batch.output_file_id).read() == whole


@pytest.mark.long
def test_a_model_that_somebody_waits_for_gets_the_memory_of_a_batch(address):
    with started(address) as (_, client):
        batch_id = begun(client)
        until(client, batch_id, "in_progress", least=1)
        answer = client.chat.completions.create(model="two", messages=[{"role": "user", "content": "hi"}], max_tokens=2)
        assert answer.usage.completion_tokens == 2
        assert client.batches.retrieve(batch_id).status == "in_progress"
