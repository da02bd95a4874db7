"""The daemon's own memory while clients make it hold as much as they can, and who is answered meanwhile."""

import http.client
import json
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import httpx
import pytest
from builders.cases import for_each
from builders.daemon import RunningDaemon, models, running_daemon
from builders.raw_http import CHUNKED, connected, posted
from builders.watching import wait_until

MIB = 1 << 20
HELD = 48 * MIB
# Beside what is held for clients: what a body takes while it is decoded, what connections have read and nobody has
# looked at yet, what the tokenizer remembers, and what an allocator keeps of all that was freed among other things. All
# that and what is held is 80 to 110 MiB after every attack came once; the two with the most small objects, again and
# again on a busy machine, level off at 145. Twice that is promised (docs/security.md).
BESIDE = 256 * MIB
LIMITS = {"max_held_bytes": HELD, "max_client_bytes": HELD // 2}
CONFIG = models("pocket", more="preload = true", **LIMITS).replace("= 1024", "= 2048").replace("= 128", "= 1024")
SHORT = json.dumps({"prompt": "What is", "max_tokens": 1})
LONG = {"prompt": "a", "max_tokens": 1900, "ignore_eos": True}


class Attacked:
    """A daemon in a process of its own."""

    def __init__(self, daemon: RunningDaemon) -> None:
        status = daemon.status()
        self.address, self.port = status.http, int(status.http.rpartition(":")[2])
        self._process = Path(f"/proc/{status.pid}")
        self.is_answered()  # the model is loaded
        self._at_first = self._most_memory

    def forget(self) -> None:
        """What is held now is the beginning of what comes next."""
        (self._process / "clear_refs").write_text("5")
        self._at_first = self._most_memory

    @property
    def grown(self) -> int:
        """By how much the greatest memory that it has had is more than before the first attack."""
        return self._most_memory - self._at_first

    @property
    def _most_memory(self) -> int:
        lines = (self._process / "status").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:"))

    @property
    def held(self) -> int:
        text = httpx.get(self.address + "/metrics", timeout=60).text
        return next(int(line.split()[1]) for line in text.splitlines() if line.startswith("penstock_held_bytes "))

    def is_answered(self) -> bool:
        with closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)) as connection:
            connection.request("POST", "/v1/completions", SHORT, {"Content-Type": "application/json"})
            return connection.getresponse().status == 200

    def assert_little_grew(self, most: int = HELD + BESIDE) -> None:
        assert self.grown < most, f"{self.grown / MIB:.0f} MiB"


@pytest.fixture(scope="module")
def attacked() -> Iterator[Attacked]:
    with TemporaryDirectory(prefix="ph") as folder:
        config = Path(folder, "config.toml")
        config.write_text(CONFIG)
        with running_daemon(Path(folder), "--config", str(config), "--http", "127.0.0.1:0") as daemon:
            yield Attacked(daemon)


def send(attacked: Attacked, stack: ExitStack, body: bytes, number: int) -> None:
    """By as many connections at once, which stay open and read nothing."""

    def send_one(connection: socket.socket) -> None:
        with suppress(OSError):  # it may have been told enough
            connection.sendall(body)

    with ThreadPoolExecutor(number) as threads:
        threads.map(send_one, [stack.enter_context(connected(attacked.port, 10)) for _ in range(number)])


def all_is_given_back(attacked: Attacked) -> None:
    wait_until(lambda: attacked.held == 0, "everything is given back")


TEXT = {"prompt": "a", "user": "x" * (8 * MIB - 100)}
HEALTH = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"
FUNCTION = {"type": "function", "name": "f", "description": "x" * MIB}
OBJECTS = {**LONG, "metadata": {"a": [{"b": 1.5}] * 30_000}}
CHAT = {"messages": [{"role": "user", "content": "a"}], "max_tokens": 1900, "ignore_eos": True, "n": 16,
        "logprobs": True, "top_logprobs": 20}  # fmt: skip
ATTACKS: dict[str, tuple[bytes, int]] = {
    "log-probabilities of prompts": (posted({"prompt": [[5] * 2000] * 64, "max_tokens": 1, "prompt_logprobs": 20}), 2),
    "those of a few, read by nobody": (posted({"prompt": [[5] * 2000] * 8, "max_tokens": 1, "prompt_logprobs": 20}), 6),
    "log-probabilities of answers": (posted({**LONG, "n": 16, "logprobs": 20}), 2),
    "those of a stream that nobody reads": (posted({**LONG, "n": 16, "logprobs": 20, "stream": True}), 4),
    "a chat's": (posted(CHAT, "/v1/chat/completions"), 2),
    "bodies that never end": (posted(TEXT)[:-1], 32),
    "long bodies that wait": (posted(LONG | TEXT), 32),
    "wide texts": (posted({**LONG, "user": "\U0001f600" + "x" * (3 * MIB)}), 16),
    "many objects that wait": (posted(OBJECTS), 64),
    "tools that are told again": (posted({"input": "a", "stream": True, "tools": [FUNCTION] * 2}, "/v1/responses"), 16),
    "blocks of a message": (
        posted(
            {"stream": True, "messages": [{"role": "user", "content": [{"type": "text", "text": "x" * MIB}] * 2}]},
            "/v1/messages",
        ),
        16,
    ),
    "prompts times n": (posted({**LONG, "prompt": [[5] * 2000] * 4, "n": 64}), 8),
    "schemas": (posted({**LONG, "guided_json": {"enum": [f"{n:07}" for n in range(40_000)]}}), 24),
    "stop ids": (posted({**LONG, "prompt": ["a"] * 128, "stop_token_ids": [5] * 200_000}), 8),
    "trailers without end": (CHUNKED + b"2\r\n{}\r\n0\r\n" + (b"x-trailer: " + b"y" * 100 + b"\r\n") * 100_000, 8),
    "requests behind one another": (HEALTH * 50_000, 8),
    "those for another host": (HEALTH.replace(b"localhost", b"evil.example") * 50_000, 8),
    "a letter after an answer": (HEALTH + b"G", 400),
    "half a head": (HEALTH[:-2] + b"x: " + b"y" * 30_000, 400),
    "tokens of texts": (posted({"prompt": "a b " * 8_000, "return_token_strs": True}, "/tokenize"), 32),
}
# The long test below tries all of them, and again and again.
QUICK = ("log-probabilities of prompts", "those of a stream that nobody reads", "bodies that never end",
         "tools that are told again", "schemas")  # fmt: skip


@for_each("name", QUICK)
def test_the_daemon_holds_no_more_than_it_was_told(attacked, name):
    with ExitStack() as stack:
        send(attacked, stack, *ATTACKS[name])
        for _ in range(3):
            assert attacked.is_answered(), "a good client is answered meanwhile"
        assert attacked.held <= HELD
    all_is_given_back(attacked)
    attacked.assert_little_grew()


def test_connections_that_ask_without_end_and_read_nothing_hold_little_each(attacked):
    """Of what nobody has asked for yet a connection keeps little, and of what nobody reads."""
    asking = b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\nx: " + b"v" * 20_000 + b"\r\n\r\n"
    attacked.forget()
    with ExitStack() as stack:
        connections = [stack.enter_context(connected(attacked.port, 60)) for _ in range(150)]
        for connection in connections:
            connection.settimeout(0)
            with suppress(BlockingIOError):
                for _ in range(50):
                    connection.send(asking)
        assert attacked.is_answered()
        attacked.assert_little_grew(len(connections) * 200_000 + 16 * MIB)


@pytest.mark.long
def test_nothing_is_left_of_attacks_that_come_again_and_again(attacked):
    """An allocator takes a while to find its level; what is never given back would have passed it by then."""
    for number in range(5):
        for name in ATTACKS:
            with ExitStack() as stack:
                send(attacked, stack, *ATTACKS[name])
                assert attacked.is_answered()
                assert attacked.held <= HELD or number, name
            all_is_given_back(attacked)
        attacked.assert_little_grew()


def test_log_probabilities_that_fit_are_told_whole(attacked):
    """Of 20,000 positions with 20 each, which would be 80 MB as objects."""
    body = {"prompt": [[5] * 2000] * 10, "max_tokens": 1, "prompt_logprobs": 20}
    choices = httpx.post(attacked.address + "/v1/completions", json=body, timeout=120).json()["choices"]
    assert [choice["index"] for choice in choices] == list(range(10))
    for choice in choices:
        first, *others = choice["prompt_logprobs"]
        assert first is None and len(others) == 1999 and all(len(position) == 20 for position in others)
    attacked.assert_little_grew()
