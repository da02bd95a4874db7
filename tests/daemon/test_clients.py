"""Many clients share one model, and none of them can harm another."""

import os
import socket
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

from builders.daemon import PlainClient, wait_for, worker_of
from builders.watching import stopped, wait_until

from penstock import SamplingParams
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


def test_ten_clients_at_once_get_what_each_gets_alone(daemon, attached):
    alone = [output.outputs.token_ids for output in attached.generate(QUESTIONS, GREEDY, use_tqdm=False)]

    def script():
        with daemon.attach() as llm:
            return [output.outputs.token_ids for output in llm.generate(QUESTIONS, GREEDY, use_tqdm=False)]

    with ThreadPoolExecutor(10) as threads:
        scripts = [threads.submit(script) for _ in range(10)]
    assert [each.result() for each in scripts] == [alone] * 10


def test_seeds_of_requests_without_one_are_counted_for_each_client(daemon):
    sampled = SamplingParams(temperature=1.0, max_tokens=12, ignore_eos=True)

    def first_two(**options):
        with daemon.attach(**options) as llm:
            return [output.outputs.token_ids for output in llm.generate(["One", "One"], sampled, use_tqdm=False)]

    once, again, other = first_two(), first_two(), first_two(seed=7)
    assert once == again and once[0] != once[1]
    assert other != once


def test_a_client_that_dies_or_leaves_a_stream_leaves_nothing_running(daemon, attached):
    next(stream := attached.stream("Tell me", LONG))
    stream.close()
    wait_for(daemon.has_nothing_to_do, "its blocks are free")
    client = subprocess.Popen(
        [sys.executable, "-c", CLIENT, str(daemon.address)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    try:
        assert client.stdout.readline() == b"attached\n"
        with stopped(worker_of(daemon)):  # none of its requests ends by being answered
            wait_for(lambda: attached.stats().running > 0, "its requests run")
            client.kill()
            client.wait(60)
            wait_for(lambda: attached.stats().running == 0, "its requests have ended")
        wait_for(daemon.has_nothing_to_do, "its blocks are free")
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
        wait_for(daemon.has_nothing_to_do, "all is computed")
        running, num_tokens = len(requests), 0
        while running:
            for piece in client.hear().deltas:
                num_tokens += len(piece.samples[0].token_ids)
                running -= piece.finished
        assert num_tokens == 24 * 300  # what was merged is all there


def test_an_option_that_is_none_is_a_disagreement_that_names_it(daemon):
    for name in ("zzz", "step_limits", "__class__"):
        with PlainClient(daemon) as client:
            client.send(Attach(ATTACH_PROTOCOL, "pocket", "pocket", {name: 1}))
            declined = client.hear()
        assert declined.is_disagreement and declined.failure.kind == "ConfigError"
        assert declined.failure.message == f"The daemon's models have no option {name!r}."


def test_the_socket_is_this_users_alone(daemon, monkeypatch):
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

    wait_until(is_asleep_for_a_second, 60, "a second of rest")


def ticks(pid):
    fields = open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()
    return int(fields[11]) + int(fields[12])
