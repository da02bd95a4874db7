"""Mixed traffic on a daemon: clients of every kind, each in a thread of its own, every outcome checked and counted.

A turn ends "answered", or "told" where the model's processes died under it and the cause was said; all else is written
down as wrong. `Crowd` is what this has in common with the clients of the chaos test.
"""

import asyncio
import http.client
import json
import random
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import closing

from builders.daemon import RunningDaemon

from penstock import LLM, AsyncLLM, EngineDeadError, PenstockError, SamplingParams

GREEDY = SamplingParams(temperature=0, max_tokens=24, ignore_eos=True)
QUESTIONS = [f"What is {number} + 3?" for number in range(6)]
MISTAKES = ["", [10**6], "word " * 4000]
_EXCUSED_SECONDS = 30.0
TURN_SECONDS = 120.0  # one that takes longer hangs

DYING = """
import sys
from penstock import LLM, SamplingParams
llm = LLM("pocket", connect=sys.argv[1], quiet=True)
params = SamplingParams(max_tokens=450, ignore_eos=True)
print("attached", flush=True)
llm.generate(["Tell me a story."] * 4, params, use_tqdm=False)
"""


class Crowd:
    """Clients in threads of their own, one for each kind, which take turns until `end`; `counts` has their outcomes."""

    def __init__(self) -> None:
        self.counts: dict[str, Counter[str]] = {}
        self.wrong: list[str] = []
        self.over = threading.Event()
        self.texts: dict[str, str] = {}  # what each question is answered when all is well
        self._threads: list[threading.Thread] = []

    def start(self, kinds: Iterable[Callable[..., None]]) -> None:
        for kind in kinds:
            self.counts[kind.__name__] = Counter()
            thread = threading.Thread(target=self.take_turns, args=(kind,), name=kind.__name__, daemon=True)
            self._threads.append(thread)
            thread.start()

    def take_turns(self, kind: Callable[..., None]) -> None:
        raise NotImplementedError

    def end(self) -> None:
        self.over.set()
        for thread in self._threads:
            thread.join(TURN_SECONDS)
        stuck = [thread.name for thread in self._threads if thread.is_alive()]
        assert not stuck, f"still waiting for an answer: {stuck}"

    def is_wrong(self, kind: str, words: str) -> str:
        self.wrong.append(f"{kind}: {words}")
        return "wrong"

    def check(self, question: str, text: str) -> None:
        assert text == self.texts[question], f"{question} → {text!r}, before: {self.texts[question]!r}"

    def report(self) -> None:
        for kind, counts in self.counts.items():
            print(f"{kind}: {dict(counts)}")


class Traffic(Crowd):
    """`stalled` names who was not answered since the period began; `noticed_death` excuses what fails soon after it."""

    def __init__(self, daemon: RunningDaemon) -> None:
        super().__init__()
        self.daemon = daemon
        self.port = int(daemon.status().http.rpartition(":")[2])
        self._death = 0.0
        self._answered: dict[str, int] = {}
        with daemon.attach() as llm:
            outputs = llm.generate(QUESTIONS, GREEDY, use_tqdm=False)
        self.texts = {question: output.outputs.text for question, output in zip(QUESTIONS, outputs, strict=True)}

    def noticed_death(self) -> None:
        self._death = time.monotonic()

    def begin_period(self) -> None:
        self._answered = {kind: count["answered"] for kind, count in self.counts.items()}

    def stalled(self) -> list[str]:
        return [kind for kind, count in self.counts.items() if count["answered"] == self._answered.get(kind, 0)]

    def take_turns(self, kind: Callable[["Traffic", LLM, random.Random], None]) -> None:
        chance = random.Random(kind.__name__)
        with self.daemon.attach() as llm:
            while not self.over.is_set() and len(self.wrong) < 20:
                try:
                    kind(self, llm, chance)
                    outcome = "answered"
                except EngineDeadError as error:
                    outcome = "told"
                    self._check_cause(kind.__name__, error)
                except Exception as error:
                    outcome = self.is_wrong(kind.__name__, f"{type(error).__name__}: {error}")
                self.counts[kind.__name__][outcome] += 1

    def _check_cause(self, kind: str, error: EngineDeadError) -> None:
        if "worker" not in str(error) and "processes have ended" not in str(error):
            self.is_wrong(kind, f"a failure that names no cause: {error}")
        if time.monotonic() - self._death > _EXCUSED_SECONDS:
            self.is_wrong(kind, f"nothing had died, and yet: {error}")


# --- over the daemon's socket ----------------------------------------------------------------------------------------


def batch(traffic: Traffic, llm: LLM, chance: random.Random) -> None:
    for question, output in zip(QUESTIONS, llm.generate(QUESTIONS, GREEDY, use_tqdm=False), strict=True):
        if output.error_code != 200:
            raise PenstockError(output.error_msg or "")
        traffic.check(question, output.outputs.text)


def stream(traffic: Traffic, llm: LLM, chance: random.Random) -> None:
    question = chance.choice(QUESTIONS)
    traffic.check(question, "".join(piece.outputs.text for piece in llm.stream(question, GREEDY)))


def leave(traffic: Traffic, llm: LLM, chance: random.Random) -> None:
    left = chance.randrange(1, 40)
    for _ in llm.stream("Tell me", SamplingParams(max_tokens=200, ignore_eos=True)):
        left -= 1
        if not left:
            break


def mistake(traffic: Traffic, llm: LLM, chance: random.Random) -> None:
    outputs = llm.generate([*MISTAKES, QUESTIONS[0]], GREEDY, use_tqdm=False)
    assert [output.error_code for output in outputs] == [400, 400, 400, 200]


def visit(traffic: Traffic, llm: LLM, chance: random.Random) -> None:
    question = chance.choice(QUESTIONS)
    with traffic.daemon.attach() as own:
        [output] = own.generate([question], GREEDY, use_tqdm=False)
        traffic.check(question, output.outputs.text)


def abort(traffic: Traffic, llm: LLM, chance: random.Random) -> None:
    async def cut() -> int:
        async with AsyncLLM("pocket", connect=str(traffic.daemon.address), quiet=True) as own:
            left = chance.randrange(1, 20)
            async for piece in own.stream("Count", SamplingParams(max_tokens=300, ignore_eos=True)):
                left -= 1
                if not left:
                    await own.abort(piece.request_id)
            return piece.error_code

    assert asyncio.run(cut()) in (200, 499)


def die(traffic: Traffic, llm: LLM, chance: random.Random) -> None:
    words = [sys.executable, "-c", DYING, str(traffic.daemon.address)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as client:
        try:
            if chance.random() < 0.8:
                client.stdout.readline()
            client.wait(chance.uniform(0.0, 0.5))
        except subprocess.TimeoutExpired:
            pass
        finally:
            client.kill()


# --- over HTTP -------------------------------------------------------------------------------------------------------


def http_whole(traffic: Traffic, llm: LLM, chance: random.Random) -> None:
    question = chance.choice(QUESTIONS)
    traffic.check(question, completion(traffic.port, question))


def http_stream(traffic: Traffic, llm: LLM, chance: random.Random) -> None:
    question = chance.choice(QUESTIONS)
    traffic.check(question, streamed_completion(traffic.port, question))


def http_leave(traffic: Traffic, llm: LLM, chance: random.Random) -> None:
    with closing(asked(traffic.port, "Tell me", is_streamed=True, max_tokens=200)) as connection:
        response = connection.getresponse()
        for _ in range(chance.randrange(30)):
            response.readline()


def http_mistake(traffic: Traffic, llm: LLM, chance: random.Random) -> None:
    wrong = chance.choice([{"temperature": -1}, {"n": -3}, {"model": "nobody"}, {"prompt": ""}, {"unknown": 1}])
    with closing(asked(traffic.port, QUESTIONS[0], is_streamed=chance.random() < 0.5, **wrong)) as connection:
        _read(connection.getresponse(), 404 if "model" in wrong else 400)
    time.sleep(0.01)  # a refusal takes less than a millisecond, and the others want the processor


def http_figures(traffic: Traffic, llm: LLM, chance: random.Random) -> None:
    """Monitoring asks so for weeks."""
    for path in ("/v1/models", "/metrics"):
        with closing(_connection(traffic.port)) as connection:
            connection.request("GET", path)
            _read(connection.getresponse(), 200)
    time.sleep(0.2)


def completion(port: int, question: str, **fields: object) -> str:
    with closing(asked(port, question, is_streamed=False, **fields)) as connection:
        return json.loads(_read(connection.getresponse(), 200))["choices"][0]["text"]


def streamed_completion(port: int, question: str, **fields: object) -> str:
    text, is_whole = "", False
    with closing(asked(port, question, is_streamed=True, **fields)) as connection:
        response = connection.getresponse()
        if response.status != 200:
            _read(response, 200)
        for line in response:
            if line == b"data: [DONE]\n":
                is_whole = True
            elif line.startswith(b"data: "):
                event = json.loads(line[6:])
                if "error" in event:
                    raise EngineDeadError(event["error"]["message"])
                text += "".join(choice["text"] for choice in event["choices"])
    if not is_whole:
        raise ConnectionResetError("the stream ended early")
    return text


def _connection(port: int) -> http.client.HTTPConnection:
    return http.client.HTTPConnection("127.0.0.1", port, timeout=TURN_SECONDS)


def asked(port: int, question: str, is_streamed: bool, **fields: object) -> http.client.HTTPConnection:
    body = {
        "model": "pocket", "prompt": question, "temperature": 0, "max_tokens": 24, "ignore_eos": True,
        "stream": is_streamed, **fields,
    }  # fmt: skip
    connection = _connection(port)
    connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
    return connection


class StatusError(PenstockError):
    """A status that nobody expected, other than that of a model that has died."""


def _read(response: http.client.HTTPResponse, status: int) -> bytes:
    body = response.read()
    if response.status != status:
        raise (EngineDeadError if response.status == 503 else StatusError)(f"{response.status}: {body[:300]!r}")
    return body


KINDS = (
    batch, stream, leave, mistake, visit, abort, die,
    http_whole, http_stream, http_leave, http_mistake, http_figures,
)  # fmt: skip
