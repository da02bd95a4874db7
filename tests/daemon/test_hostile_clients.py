"""Attached clients that mean harm, or are broken: what they make the daemon hold is bounded, and others go on."""

import random
import resource
from collections import Counter
from contextlib import suppress

import msgspec
import psutil
import pytest
from builders.cases import for_each
from builders.daemon import PlainClient, grown_by_at_most, models, running_daemon
from builders.watching import wait_until
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock import SamplingParams
from penstock.protocol.attach import (
    ATTACH_PROTOCOL,
    LONGEST_FIRST_FRAME,
    LONGEST_FRAME,
    Ask,
    Attach,
    Declined,
    Drop,
    Failed,
    WireRequest,
    frame,
)
from penstock.protocol.errors import Failure
from penstock.protocol.wire import column

GREEDY = SamplingParams(temperature=0, max_tokens=8, ignore_eos=True)
LONG = SamplingParams(max_tokens=900, ignore_eos=True)
BUDGET = {"max_held_bytes": "'96MiB'", "max_client_bytes": "'24MiB'"}


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    folder = tmp_path_factory.mktemp("s")
    config = folder / "c.toml"
    config.write_text(models("pocket", more="max_num_seqs = 8\n", **BUDGET))
    with pytest.MonkeyPatch.context() as environment:
        # A step takes a moment, so that long requests run for as long as a test asks about them.
        environment.setenv("PENSTOCK_FAULTS", "worker.step=delay:0.02")
        with running_daemon(folder, "--config", str(config)) as daemon:
            yield daemon


@pytest.fixture
def good(small):
    with small.attach() as llm:
        before = answers(llm)
        yield llm
        assert answers(llm) == before


def answers(llm):
    return [output.outputs.token_ids for output in llm.generate(["Hello", "You"], GREEDY, use_tqdm=False)]


def text(number, said="Go on.", **given):
    return WireRequest(number, 0, said, **given)


def test_messages_that_are_announced_or_half_there_take_no_more_than_there_is_room_for(small, good):
    with grown_by_at_most(small, 24):
        clients = [PlainClient(small).attach().announce(LONGEST_FRAME // 2).send(b"\x00" * 100_000) for _ in range(40)]
        assert answers(good)
        for client in clients:
            client.close()
    half = b"\x00" * (10 << 20)
    with grown_by_at_most(small, 100):
        clients = [PlainClient(small).attach() for _ in range(12)]
        for client in clients:
            client.announce(11 << 20)
            client.socket.settimeout(0.2)  # what there is no room for isn't read
            with suppress(TimeoutError):
                client.socket.sendall(half)
        assert answers(good)
        for client in clients:
            client.close()


@for_each("length, is_attached", [
    (LONGEST_FIRST_FRAME + 1, False), (256 << 20, False), (0xFFFFFFFF, True), (LONGEST_FRAME + 1, True)
])  # fmt: skip
def test_who_announces_more_than_anybody_sends_is_sent_away_and_told_why(small, good, length, is_attached):
    with PlainClient(small) as client:
        if is_attached:
            client.attach()
        assert f"{length:,} bytes was announced" in client.announce(length).last_words()


def packed(*message):
    body = msgspec.msgpack.encode(list(message))
    return len(body).to_bytes(4, "little") + body


def too_many(count):
    return packed("Ask", [[number, 0, "x"] for number in range(count)], [{}])


WRONG = {
    "HTTP": b"GET / HTTP/1.1\r\n\r\n",
    "no msgpack": b"\x04\x00\x00\x00\xc1\xc1\xc1\xc1",
    "half a message, then the end": b"\x40\x00\x00\x00half",
    "what only a daemon says": frame(Declined(Failure("x", "y"), True)),
    "nothing": b"\x00\x00\x00\x00",
    "an odd number": b"\x03\x00\x00\x00\x93\xa1x",
    "100,000 requests at once": too_many(100_000),
    "100,000 parameters at once": packed("Ask", [[0, 0, "x"]], [{}] * 100_000),
    "no requests but a map": packed("Ask", {}, [{}]),
    "a request without a number": packed("Ask", [["x", 0, "x"]], [{}]),
    "100,000 numbers to drop": packed("Drop", list(range(100_000))),
    "a list in a list in a list": packed("Ask", [[0, 0, "x"]], [{}])[:10] + b"\x91" * 200_000,
}


@for_each("kind", WRONG)
@for_each("is_attached", [True, False])
def test_messages_that_nobody_sends_end_their_senders_connection(small, good, kind, is_attached):
    with PlainClient(small) as client, grown_by_at_most(small, 64):
        if is_attached:
            client.attach()
        client.send(WRONG[kind])
        if kind == "half a message, then the end":
            client.socket.shutdown(1)
        client.last_words()  # returns when the daemon has ended the connection


def test_random_bytes_harm_only_their_sender(small, good):
    chance, whole = random.Random(0), frame(Ask([text(0), text(1)], [GREEDY]))
    for number in range(180):
        with PlainClient(small) as client:
            if number % 2:
                client.attach()
            sent = bytearray(chance.randbytes(chance.randrange(200)) if number % 3 else whole)
            for _ in range(chance.randrange(1, 9)):
                sent[chance.randrange(4, len(sent)) if len(sent) > 4 else 0 : 0] = chance.randbytes(1)
            client.send(len(sent).to_bytes(4, "little") + bytes(sent))
    wait_until(small.has_nothing_to_do, "nothing of them runs")


@for_each("model, options", [("/nowhere", {}), ("pocket", {"max_num_seqs": 3})])
def test_who_is_refused_a_model_has_no_lease_and_is_a_stranger_whose_requests_fail(small, good, model, options):
    clients = small.model().clients
    with PlainClient(small) as client:
        (failed,) = client.ask(*map(text, range(64))).ends(1)
        assert isinstance(failed, Failed) and failed.numbers == list(range(64))
        client.send(Attach(ATTACH_PROTOCOL, model, model, options, may_add=True))
        assert isinstance(client.hear(), Declined)
        assert small.model().clients == clients
        assert small.status().clients == 1, "the good one"
        assert isinstance(client.attach(), PlainClient), "it may try again"
        assert small.model().clients == clients + 1


HELLO = [{"role": "user", "content": "Hello"}]
DEEP = "x"
for _ in range(300):
    DEEP = [DEEP]
REFUSED = {
    "parameters behind the last": [7, 7, "x"],
    "parameters before the first": [7, -1, "x"],
    "parameters that can't be": [7, 1, "x"],
    "parameters of an unknown name": [7, 2, "x"],
    "a text that is a number": [7, 0, 5],
    "token ids cut short": [7, 0, None, b"\x01\x02\x03"],
    "token ids beyond the vocabulary": [7, 0, None, column([1, 2**31 - 1])],
    "nothing at all": [7, 0],
    "an argument of the call itself": [7, 0, None, None, [HELLO, None, None, {"tokenize": True}]],
    "a conversation of numbers": [7, 0, None, None, [[1, 2], None, None, {}]],
    "messages without roles": [7, 0, None, None, [[{}], None, None, {}]],
    "tools that are none": [7, 0, None, None, [HELLO, [1, None], None, {}]],
    "tools nested deep": [7, 0, None, None, [HELLO, [DEEP], None, {}]],
    "options that aren't a map": [7, 0, None, None, [HELLO, None, None, ["x"]]],
    "more values than any needs": [7, 0, None, None, [[{}] * 200_000, None, None, {}]],
    "a template that breaks": [7, 0, None, None, [HELLO, None, "{{ 1 // 0 }}", {}]],
}


@for_each("kind", REFUSED)
def test_a_request_that_is_wrong_ends_alone(small, good, kind):
    """Those beside it in the same message, and those after it on the same connection, are answered."""
    params = [{"max_tokens": 2}, {"temperature": -1}, {"temperatur": 1}]
    with PlainClient(small).attach() as client:
        client.send(packed("Ask", [[0, 0, "x"], REFUSED[kind], [1, 0, "x"]], params))
        ended = {piece.number: (piece.error_code, piece.error_msg) for piece in client.ends(3)}
        assert ended[0] == ended[1] == (200, None)
        assert ended[7][0] == 400 and ended[7][1]
        assert client.ask(text(2)).ends(1)[0].error_code == 200


@given(numbers=st.lists(st.integers(0, 5), min_size=1, max_size=12), dropped=st.sets(st.integers(0, 5)))
@settings(max_examples=8)
def test_of_requests_with_one_number_the_first_runs_and_the_others_are_refused(small, numbers, dropped):
    with PlainClient(small).attach() as client:
        client.ask(*(text(number) for number in numbers), params=[LONG])
        refused = Counter(piece.number for piece in client.ends(len(numbers) - len(set(numbers))))
        assert refused == Counter(numbers) - Counter(set(numbers))
        client.send(Drop(sorted(dropped)))
        left = set(numbers) - dropped
        wait_until(lambda: small.model().stats.running + small.model().stats.waiting == len(left), "the dropped ended")
        # A number is free when its request has ended.
        client.ask(*(text(number) for number in sorted(dropped)))
        assert {piece.number: piece.error_code for piece in client.ends(len(dropped))} == dict.fromkeys(dropped, 200)
    wait_until(small.has_nothing_to_do, "those that ran ended with their client")


def test_what_was_read_and_is_answered_is_not_held_any_more(small, good):
    """So it is while nothing else comes from its sender, too."""
    long = [0, 7, "x" * (10 << 20)]  # refused for its parameters
    with grown_by_at_most(small, 40):
        clients = [PlainClient(small).attach().send(packed("Ask", [long], [{}])) for _ in range(8)]
        assert [client.ends(1)[0].error_code for client in clients] == [400] * 8
    for client in clients:
        client.close()


def flood(daemon, client, count):
    """Send as many requests, in messages of 512, until the daemon has no room to read on; return how many were sent.

    Then it takes no more though it was asked several times for its figures meanwhile, so it was not only slow.
    """
    client.socket.settimeout(0.2)
    sent = known = looks = 0
    for start in range(0, count, 512):
        rest = frame(Ask([text(number) for number in range(start, start + 512)], [LONG]))
        while rest:
            try:
                rest = rest[client.socket.send(rest) :]
            except TimeoutError:
                stats = daemon.model().stats
                looks = looks + 1 if stats.running + stats.waiting <= known else 0
                known = max(known, stats.running + stats.waiting)
                if looks == 3:
                    return sent
        sent += 512
    return sent


def test_a_flood_of_requests_is_bounded_and_does_not_stand_before_others(small, good):
    with PlainClient(small).attach() as client, grown_by_at_most(small, 64):
        sent = flood(small, client, 100_000)
        assert sent < 50_000, "the rest waits outside"
        wait_until(lambda: small.model().stats.waiting > 1000, "many of them wait in the engine")
        before = small.model().stats
        assert answers(good)
        after = small.model().stats
        # The places are all the flood's, for 900 steps each: one is given up after eight. Some steps pass while a
        # request is on its way.
        assert after.steps - before.steps < 900 and after.waiting > 1000
    wait_until(small.has_nothing_to_do, "all of it has gone with its client")
    sent = []
    for _ in range(2):
        with PlainClient(small).attach() as client:
            sent.append(flood(small, client, 8_000))
        wait_until(small.has_nothing_to_do, "it has gone")
    assert min(sent) > 0.7 * max(sent) > 0


def test_answers_that_nobody_reads_are_held_within_the_budget(small, good):
    """Each takes some 3 MiB of log-probabilities, of which few fit; the others end with a sentence."""
    params = SamplingParams(max_tokens=400, ignore_eos=True, logprobs=20, prompt_logprobs=20)
    with PlainClient(small).attach() as client, grown_by_at_most(small, 90):
        before = small.model().stats.generated_tokens
        client.ask(*(text(number, is_streamed=number % 2 == 1) for number in range(32)), params=[params])
        wait_until(lambda: small.model().stats.generated_tokens > before, "it begins")
        wait_until(small.has_nothing_to_do, "all is computed, or ended")
        assert answers(good)
        codes = Counter(piece.error_code for piece in client.ends(32))
        assert codes[200] > 0 and codes[429] > 0 and sum(codes.values()) == 32
        assert client.ask(text(100)).ends(1)[0].error_code == 200, "what was read is given back"


def test_connections_that_say_nothing_are_bounded_and_keep_nobody_out(small, good):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if 0 <= hard < 2000:
        pytest.skip("this user may not open so many files")
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(4096, hard), hard))
    daemon = psutil.Process(small.status().pid)
    before, strangers = daemon.num_fds(), []
    try:
        for number in range(1500):
            strangers.append(PlainClient(small))
            if number % 100 == 0:
                strangers[-1].send(b"\x40")
        with small.attach() as llm:
            assert answers(llm)
        wait_until(lambda: daemon.num_fds() < before + 80, "those that wait longest have gone")
    finally:
        for stranger in strangers:
            stranger.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
