"""Many clients share one model, and none of them can harm another."""

import os
import signal
import socket
import subprocess
import sys
import threading

import pytest
from builders.daemon import wait_for
from builders.plain_client import PlainClient

from penstock import SamplingParams
from penstock.frontend.session.attached.connection import DaemonConnection
from penstock.protocol import attach
from penstock.protocol.attach import ATTACH_PROTOCOL, Ask, Attach, WireRequest, frame, is_own_user

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
    answers = {}

    def script(number):
        with daemon.attach() as llm:
            answers[number] = [output.outputs.token_ids for output in llm.generate(QUESTIONS, GREEDY, use_tqdm=False)]

    threads = [threading.Thread(target=script, args=(number,)) for number in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert answers == dict.fromkeys(range(10), alone)


def test_seeds_of_requests_without_one_are_counted_for_each_client(daemon):
    sampled = SamplingParams(temperature=1.0, max_tokens=12, ignore_eos=True)

    def first_two(**options):
        with daemon.attach(**options) as llm:
            return [output.outputs.token_ids for output in llm.generate(["One", "One"], sampled, use_tqdm=False)]

    once, again, other = first_two(), first_two(), first_two(seed=7)
    assert once == again and once[0] != once[1]
    assert other != once


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT], ids=lambda number: number.name)
def test_a_client_that_dies_leaves_nothing_running(daemon, attached, number):
    client = subprocess.Popen(
        [sys.executable, "-c", CLIENT, str(daemon.address)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    try:
        assert client.stdout.readline() == b"attached\n"
        wait_for(lambda: attached.stats().running > 0, "its requests run")
        client.send_signal(number)
        client.wait(10)
        assert wait_for(lambda: daemon.has_nothing_to_do(), "its blocks are free") < 1.0
    finally:
        client.kill()
        client.wait()
        client.stdout.close()


def test_leaving_a_stream_frees_its_blocks(daemon, attached):
    for _ in attached.stream("Tell me", LONG):
        break
    wait_for(daemon.has_nothing_to_do, "its blocks are free", 1.0)


def test_a_client_that_reads_nothing_delays_nobody_and_costs_little(daemon, attached):
    with stopped_client(daemon, 24) as stream:
        # Everything of it has been computed, though nobody has read a word.
        assert attached.generate(QUESTIONS, GREEDY, use_tqdm=False)[0].error_code == 200
        wait_for(daemon.has_nothing_to_do, "all is computed", 60)
        assert sum(map(len, stream.told())) == 24 * 300  # what was merged is all there, in order


class stopped_client:
    """Asks for streams and reads only when it is over."""

    def __init__(self, daemon, count):
        self.connection, self.count = DaemonConnection(daemon.address), count

    def __enter__(self):
        self.connection.send(Attach(ATTACH_PROTOCOL, "pocket", "pocket", {}))
        self.connection.receive()
        params = SamplingParams(max_tokens=300, ignore_eos=True, detokenize=False)
        requests = [WireRequest(number, 0, "Go on.", is_streamed=True) for number in range(self.count)]
        self.connection.send(Ask(requests, [params]))
        return self

    def told(self):
        token_ids = [[] for _ in range(self.count)]
        running = self.count
        while running:
            for piece in self.connection.receive().deltas:
                token_ids[piece.number] += piece.samples[0].token_ids
                running -= piece.finished
        return token_ids

    def __exit__(self, *exception):
        self.connection.close()


HOSTILE = {
    "no frame": b"GET / HTTP/1.1\r\n\r\n",
    "an endless frame": b"\xff\xff\xff\xff",
    "not msgpack": b"\x04\x00\x00\x00\xc1\xc1\xc1\xc1",
    "a message of nobody's": frame(attach.Declined(attach.Failure("x", "y"), True)),
    "a request before attaching": frame(Ask([WireRequest(0, 0, "x")], [SamplingParams()])),
    "parameters that aren't there": frame(Attach(ATTACH_PROTOCOL, "pocket", "pocket", {}))
    + frame(Ask([WireRequest(0, 7, "x")], [SamplingParams()])),
    "token ids cut short": frame(Attach(ATTACH_PROTOCOL, "pocket", "pocket", {}))
    + frame(Ask([WireRequest(0, 0, token_ids=b"\x01\x02\x03")], [SamplingParams()])),
    "half a frame, then the end": b"\x40\x00\x00\x00half",
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_frames_that_nobody_sends_harm_only_their_sender(kind, daemon, attached):
    stream = socket.socket(socket.AF_UNIX)
    stream.settimeout(10)
    with stream:
        stream.connect(os.fspath(daemon.address))
        stream.sendall(HOSTILE[kind])
        stream.shutdown(socket.SHUT_WR)
        try:
            while stream.recv(1 << 16):
                pass
        except ConnectionResetError:
            pass
    assert attached.generate(["Hello"], GREEDY, use_tqdm=False)[0].error_code == 200


@pytest.mark.parametrize("name", ["zzz", "step_limits", "__class__"])
def test_an_option_that_is_none_is_a_disagreement_that_names_it(name, daemon):
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


@pytest.mark.long
def test_two_hundred_clients_that_die_at_random_moments_leave_everything_as_it_was(daemon, attached, private):
    import random

    moments = random.Random(4)
    expected = [output.outputs.token_ids for output in private.generate(QUESTIONS, GREEDY, use_tqdm=False)]
    for cycle in range(200):
        client = subprocess.Popen([sys.executable, "-c", CLIENT, str(daemon.address)], stdout=subprocess.PIPE)
        client.stdout.readline()
        try:
            client.wait(moments.uniform(0.0, 0.2))
        except subprocess.TimeoutExpired:
            client.kill()
        client.wait()
        client.stdout.close()
        if cycle % 10 == 0:
            got = [output.outputs.token_ids for output in attached.generate(QUESTIONS, GREEDY, use_tqdm=False)]
            assert got == expected, cycle
    wait_for(daemon.has_nothing_to_do, "blocks are conserved", 2.0)
