"""The attacks of hostile clients on the daemon, over HTTP and over its socket, for `scripts/benchmark hostile`.

Over HTTP each of `tests/builders/hostile.py`, then clients that say nothing, read nothing or close half-way, then
clients that make the daemon hold as much as they can; over the socket floods of attached clients.
"""

import json
import os
import random
import socket
import struct
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import Any

from penstock import SamplingParams
from penstock.protocol.attach import ATTACH_PROTOCOL, Ask, Attach, WireRequest, frame

from .machine import ROOT

sys.path.insert(0, str(ROOT / "tests"))

from builders.hostile import EVERY
from builders.raw_http import connected, request, spoken


@dataclass(frozen=True)
class Target:
    """The daemon's addresses, and the model that it serves."""

    port: int
    address: str
    model: str


Attack = Callable[[Target], None]
LONG = b'{"prompt": "What is", "max_tokens": 1500, "ignore_eos": true, "stream": true, "logprobs": 20}'

# --- over HTTP --------------------------------------------------------------------------------------------------------


def sends(sent: bytes) -> Attack:
    def send(target: Target) -> None:
        spoken(target.port, sent, timeout=5)

    return send


def on_connections(number: int, sent: bytes, *, reads: int = 0, waits: float = 0.0) -> Attack:
    """Send the same on so many connections, read so many bytes of each reply, wait, and leave."""

    def attack(target: Target) -> None:
        with ExitStack() as stack:
            connections = [stack.enter_context(connected(target.port, 60)) for _ in range(number)]
            for connection in connections:
                connection.sendall(sent)
            for connection in connections if reads else ():
                connection.recv(reads)
            time.sleep(waits)

    return attack


def ends_half_way(target: Target) -> None:
    with connected(target.port) as connection:
        connection.sendall(request(b"{" * 1000)[:-500])
        connection.shutdown(socket.SHUT_WR)
        connection.recv(1000)


def drips_headers(target: Target) -> None:
    with connected(target.port) as connection:
        for byte in b"GET /health HTTP/1.1\r\n":
            connection.send(bytes([byte]))
            time.sleep(0.001)


def posted(**body: Any) -> bytes:
    return request(json.dumps(body).encode())


BEHAVIOURS: dict[str, Attack] = {
    "says nothing": on_connections(1, b""),
    "ends half way": ends_half_way,
    "drips headers": drips_headers,
    "reads nothing": on_connections(1, request(LONG), waits=0.3),
    "leaves early": on_connections(1, request(LONG), reads=1),
}
PROMPT_LOGPROBS = {"prompt": [[5] * 2000] * 64, "max_tokens": 1, "prompt_logprobs": 20}
ANSWER_LOGPROBS = {"prompt": "a", "n": 128, "max_tokens": 2000, "logprobs": 20, "ignore_eos": True}
ANSWER = {"prompt": "a", "max_tokens": 2000, "ignore_eos": True}
LONG_BODY = posted(**ANSWER, user="x" * (8 * 2**20 - 200))
# Those that read leave when the reply has begun, so that there is time for the next.
HOLDERS: dict[str, Attack] = {
    "holds log-probabilities of prompts": on_connections(1, posted(**PROMPT_LOGPROBS), reads=65536),
    "reads log-probabilities slowly": on_connections(1, posted(**PROMPT_LOGPROBS, stream=True), reads=1, waits=5),
    "holds log-probabilities of answers": on_connections(1, posted(**ANSWER_LOGPROBS), reads=65536),
    "holds bodies": on_connections(16, LONG_BODY[:-1], waits=5),
    "waits with bodies": on_connections(64, LONG_BODY, waits=5),
    "waits with objects": on_connections(64, posted(**ANSWER, metadata={"a": [{"b": 1.5}] * 60_000}), waits=5),
    "claims to be first": on_connections(24, request(LONG.replace(b"}", b', "priority": -1000000000}')), waits=2),
}


# --- over the socket --------------------------------------------------------------------------------------------------

LONG_ANSWERS = SamplingParams(max_tokens=400, ignore_eos=True)
HEAVY = SamplingParams(max_tokens=400, ignore_eos=True, logprobs=20, prompt_logprobs=20)


def on_socket(target: Target) -> socket.socket:
    stream = socket.socket(socket.AF_UNIX)
    stream.connect(os.fspath(target.address))
    return stream


def attached(target: Target) -> socket.socket:
    stream = on_socket(target)
    stream.sendall(frame(Attach(ATTACH_PROTOCOL, target.model, target.model, {})))
    stream.recv(1 << 16)
    return stream


def sent_while_it_is_read(stream: socket.socket, sent: bytes) -> None:
    stream.settimeout(2)
    with suppress(OSError):
        stream.sendall(sent)


def held_open(target: Target, sent: bytes, is_attached: bool, count: int) -> None:
    """Send the same on many connections, and stay; where that fails, begin again."""
    streams = []
    for _ in range(count):
        streams.append(attached(target) if is_attached else on_socket(target))
        sent_while_it_is_read(streams[-1], sent)
    time.sleep(1)
    for stream in streams:
        stream.close()


def requests(count: int, params: SamplingParams, text: str = "Go on.", *, is_streamed: bool = False) -> bytes:
    every = [WireRequest(number, 0, text, is_streamed=is_streamed) for number in range(count)]
    asks = [Ask(every[start : start + 512], [params]) for start in range(0, count, 512)]
    return b"".join(map(frame, asks))


def bytes_by_chance(target: Target) -> None:
    stream = attached(target) if random.random() < 0.5 else on_socket(target)
    body = random.randbytes(random.randrange(1 << 12))
    sent_while_it_is_read(stream, struct.pack("<I", len(body)) + body)
    stream.close()


def flood_of(sent: Callable[[], bytes], *, is_attached: bool = True, count: int = 1) -> Attack:
    made: list[bytes] = []

    def flood(target: Target) -> None:
        made[:] = made or [sent()]
        held_open(target, made[0], is_attached, count)

    return flood


FLOODS: dict[str, Attack] = {
    "nothing": lambda target: time.sleep(0.1),
    "8 MiB of 256 announced, not attached, 100 times": flood_of(
        lambda: struct.pack("<I", 255 << 20) + bytes(8 << 20), is_attached=False, count=100
    ),
    "8 MiB of 16 announced, attached, 100 times": flood_of(
        lambda: struct.pack("<I", 15 << 20) + bytes(8 << 20), count=100
    ),
    "100,000 requests": flood_of(lambda: requests(100_000, LONG_ANSWERS)),
    "100,000 requests in one message": flood_of(
        lambda: frame(Ask([WireRequest(number, 0, "Go on.") for number in range(100_000)], [LONG_ANSWERS]))
    ),
    "1,000 streams with log-probabilities, unread": flood_of(
        lambda: requests(1000, HEAVY, "Go on. " * 60, is_streamed=True)
    ),
    "400 connections that say nothing": flood_of(lambda: b"", is_attached=False, count=400),
    "bytes by chance": bytes_by_chance,
}


# --- all of them ------------------------------------------------------------------------------------------------------

# Each attack's kind, its name, and what it does once.
ATTACKS: list[tuple[str, str, Attack]] = [
    *((hostile.kind, hostile.name, sends(hostile.sent)) for hostile in EVERY),
    *(
        (kind, name, attack)
        for kind, attacks in {"behaviours": BEHAVIOURS, "memory": HOLDERS, "floods": FLOODS}.items()
        for name, attack in attacks.items()
    ),
]
