"""Many clients share one model and its adapters, and none of them can harm another."""

import os
import signal
import socket
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
from builders.daemon import PlainClient, models, worker_of
from builders.watching import stopped, wait_until

from penstock import AdapterError, SamplingParams
from penstock.protocol.attach import ATTACH_PROTOCOL, Attach, WireRequest, is_own_user

GREEDY = SamplingParams(temperature=0, max_tokens=24, ignore_eos=True)
LONG = SamplingParams(max_tokens=450, ignore_eos=True)
QUESTIONS = [f"What is {number} + 3?" for number in range(6)]

CLIENT = """
import sys
from penstock import LLM, SamplingParams
llm = LLM("pocket", connect=sys.argv[1], quiet=True)
params = SamplingParams(max_tokens=450, ignore_eos=True)
print("attached", flush=True)
while True:
    llm.generate(["Tell me a story."] * 4, params, use_tqdm=False)
"""


def test_clients_at_once_get_what_each_gets_alone_and_seeds_are_counted_for_each(daemon):
    sampled = SamplingParams(temperature=1.0, max_tokens=12, ignore_eos=True)

    def first_two(**options):
        with daemon.attach(**options) as llm:
            return [output.outputs.token_ids for output in llm.generate(["One", "One"], sampled, use_tqdm=False)]

    alone = first_two()
    with ThreadPoolExecutor(10) as threads:
        assert [each.result() for each in [threads.submit(first_two) for _ in range(10)]] == [alone] * 10
    assert alone[0] != alone[1] and first_two(seed=7) != alone


def test_a_client_that_dies_or_leaves_a_stream_leaves_nothing_running(daemon, attached):
    next(stream := attached.stream("Tell me", LONG))
    stream.close()
    wait_until(daemon.has_nothing_to_do, "its blocks are free")
    client = subprocess.Popen(
        [sys.executable, "-c", CLIENT, str(daemon.address)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    try:
        assert client.stdout.readline() == b"attached\n"
        with stopped(worker_of(daemon)):  # none of its requests ends by being answered
            wait_until(lambda: attached.stats().running > 0, "its requests run")
            client.kill()
            client.wait(60)
            wait_until(lambda: attached.stats().running == 0, "its requests have ended")
        wait_until(daemon.has_nothing_to_do, "its blocks are free")
    finally:
        client.kill()
        client.wait()
        client.stdout.close()


def test_a_client_that_reads_nothing_delays_nobody_and_costs_little(daemon, attached):
    params = SamplingParams(max_tokens=300, ignore_eos=True, detokenize=False)
    requests = [WireRequest(number, 0, "Go on.", is_streamed=True) for number in range(24)]
    with PlainClient(daemon).attach() as client:
        client.ask(*requests, params=[params])
        # Everything of it has been computed, though nobody has read a word.
        assert attached.generate(QUESTIONS, GREEDY, use_tqdm=False)[0].error_code == 200
        wait_until(daemon.has_nothing_to_do, "all is computed")
        running, num_tokens = len(requests), 0
        while running:
            for piece in client.hear().deltas:
                num_tokens += len(piece.samples[0].token_ids)
                running -= piece.finished
        assert num_tokens == 24 * 300  # what was merged is all there


def test_an_option_that_is_none_is_named_and_the_socket_is_this_users_alone(daemon, monkeypatch):
    for name in ("zzz", "step_limits", "__class__"):
        with PlainClient(daemon) as client:
            client.send(Attach(ATTACH_PROTOCOL, "pocket", "pocket", {name: 1}))
            declined = client.hear()
        assert declined.is_disagreement and declined.failure.kind == "ConfigError"
        assert declined.failure.message == f"The daemon's models have no option {name!r}."
    assert daemon.address.stat().st_mode & 0o777 == 0o600
    assert daemon.address.parent.stat().st_mode & 0o777 == 0o700
    ours, theirs = socket.socketpair()
    with ours, theirs:
        assert is_own_user(ours)
        monkeypatch.setattr(os, "getuid", lambda: 12345)
        assert not is_own_user(ours)


def test_an_idle_daemon_uses_next_to_nothing(daemon, attached):
    processes = daemon.processes()

    def is_asleep_for_a_second() -> bool:
        before = sum(map(ticks, processes))
        threading.Event().wait(1.0)
        return sum(map(ticks, processes)) - before <= 2  # hundredths of a second

    wait_until(is_asleep_for_a_second, "a second of rest")


def ticks(pid):
    fields = open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()
    return int(fields[11]) + int(fields[12])


# --- LoRA adapters: whoever loads one loads it for all, and it outlives the processes ---------------------------------


FOUR = SamplingParams(max_tokens=4, ignore_eos=True)
ROOM = "enable_lora = true\n"


@pytest.fixture
def folder(tmp_path):
    """The worker that computes nothing reads nothing either."""
    folder = tmp_path / "polite"
    folder.mkdir()
    return folder


def asked(llm, name):
    return llm.generate([{"prompt_token_ids": [1, 2], "lora_name": name}], FOUR, use_tqdm=False)[0].error_code


@pytest.fixture(scope="module")
def roomy(start_shared):
    words = ("--http", "127.0.0.1:0", "--http-added")
    return start_shared(models("a", more=ROOM, keep_alive=0.3) + models("b"), *words)


def test_an_adapter_is_loaded_for_all_and_again_after_a_death(roomy, folder):
    with roomy.attach("a") as llm, roomy.attach("a") as other:
        llm.load_lora("polite", folder)
        assert other.list_loras() == ["polite"] and asked(other, "polite") == 200
        restarts = roomy.model("a").restarts
        os.kill(worker_of(roomy), signal.SIGKILL)
        wait_until(lambda: roomy.model("a").restarts == restarts + 1, "its death is seen")
        wait_until(lambda: roomy.model("a").state == "ready", "it is started again")
        assert other.list_loras() == ["polite"] and asked(other, "polite") == 200
        other.unload_lora("polite")
        assert llm.list_loras() == [] and asked(llm, "polite") == 400


def test_what_cannot_be_loaded_says_why(roomy, folder):
    with roomy.attach("a") as llm:
        with pytest.raises(FileNotFoundError, match="There is no adapter at"):
            llm.load_lora("polite", "/nowhere")
        llm.load_lora("polite", folder)
        with pytest.raises(AdapterError, match="polite"):
            llm.load_lora("polite", folder)
        llm.unload_lora("polite")
    with roomy.attach("b") as llm, pytest.raises(AdapterError, match="enable_lora=True"):
        llm.load_lora("polite", folder)


def test_an_adapter_is_a_model_over_http_and_looking_at_models_leases_none(roomy, folder):
    http = roomy.status().http

    def named():
        return [card["id"] for card in httpx.get(f"{http}/v1/models", timeout=60).json()["data"]]

    with roomy.attach("a") as llm:
        llm.load_lora("polite", folder)
        assert sorted(named()) == ["a", "b", "polite"]
    wait_until(lambda: named() and roomy.model("a").state == "unloaded", "looking keeps nothing loaded")
    body = {"model": "polite", "prompt": [1, 2], "max_tokens": 4, "ignore_eos": True}
    reply = httpx.post(f"{http}/v1/completions", json=body, timeout=60)  # loads its model, and it with that
    assert reply.json()["usage"]["completion_tokens"] == 4
    with roomy.attach("a") as llm:
        llm.unload_lora("polite")
