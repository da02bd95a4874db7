"""Good clients in a bad world, each in a thread of its own: every turn ends with the right answer or with a cause.

A turn that is answered otherwise, fails without a word, or takes too long is written down in `wrong`.
"""

import http.client
import json
import random
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from builders.traffic import TURN_SECONDS, Crowd, completion, streamed_completion

from penstock import LLM, PenstockError

from .world import GREEDY, QUESTIONS, World

# Clients may lose their connection for so long after something happened to the daemon itself.
_EXCUSED_SECONDS = 20.0
# What a cause names: a process, a signal, a place, or what ran out.
_CAUSE = re.compile(
    r"process|SIG|daemon|shut|clos|space|descriptor|open files|stopped|restart|memory|socket|Errno|time|folder", re.I
)

_SCRIPT = """
import json, sys
from penstock import LLM, SamplingParams
questions = json.loads(sys.argv[1])
with LLM("pocket", max_model_len=512, num_gpu_blocks_override=48, quiet=True, watchdog_timeout=4) as llm:
    outputs = llm.generate(questions, SamplingParams(temperature=0, max_tokens=16, ignore_eos=True), use_tqdm=False)
    print(json.dumps([output.outputs.text for output in outputs]))
"""
_CLOSED = ("", "2>&-", "2>/dev/full", "<&-", "<&- 2>&-", "1>/dev/full", "1>&-", "1>&- 2>&-")


class Clients(Crowd):
    def __init__(self, world: World, seed: int) -> None:
        super().__init__()
        self.world, self._seed, self.texts = world, seed, world.texts
        self.causes: Counter[str] = Counter()

    def take_turns(self, kind: Callable[["Clients", random.Random], None]) -> None:
        chance = random.Random(f"{self._seed} {kind.__name__}")
        while not self.over.is_set():
            began = time.monotonic()
            try:
                kind(self, chance)
                outcome = "answered"
            except PenstockError as error:
                outcome = self._told(kind.__name__, str(error))
            except (OSError, http.client.HTTPException) as error:
                outcome = self._cut_off(kind.__name__, error)
            except Exception as error:
                outcome = self.is_wrong(kind.__name__, f"{type(error).__name__}: {error}")
            if time.monotonic() - began > TURN_SECONDS:
                outcome = self.is_wrong(kind.__name__, f"a turn took {time.monotonic() - began:.0f} s")
            self.counts[kind.__name__][outcome] += 1
            if outcome != "answered":
                self.over.wait(0.1)

    def _told(self, kind: str, words: str) -> str:
        if not _CAUSE.search(words):
            return self.is_wrong(kind, f"a failure that names no cause: {words}")
        self.causes[re.sub(r"\d+", "N", words)[:160]] += 1
        return "told"

    def _cut_off(self, kind: str, error: Exception) -> str:
        if time.monotonic() - self.world.daemon_hurt_at > _EXCUSED_SECONDS:
            return self.is_wrong(kind, f"nothing had happened to the daemon, and yet {type(error).__name__}: {error}")
        return "cut off"


# --- the kinds -------------------------------------------------------------------------------------------------------


def over_http(clients: Clients, chance: random.Random) -> None:
    question = chance.choice(QUESTIONS)
    clients.check(question, completion(clients.world.port, question, max_tokens=GREEDY.max_tokens))


def over_http_in_pieces(clients: Clients, chance: random.Random) -> None:
    question = chance.choice(QUESTIONS)
    clients.check(question, streamed_completion(clients.world.port, question, max_tokens=GREEDY.max_tokens))


def attached(clients: Clients, chance: random.Random) -> None:
    with LLM("pocket", connect=str(clients.world.address), quiet=True) as llm:
        for _ in range(chance.randrange(1, 20)):
            outputs = llm.generate(QUESTIONS, GREEDY, use_tqdm=False)
            for question, output in zip(QUESTIONS, outputs, strict=True):
                if output.error_code != 200:
                    raise PenstockError(output.error_msg or "")
                clients.check(question, output.outputs.text)
            if clients.over.is_set():
                return


def attached_stream(clients: Clients, chance: random.Random) -> None:
    question = chance.choice(QUESTIONS)
    with LLM("pocket", connect=str(clients.world.address), quiet=True) as llm:
        clients.check(question, "".join(piece.outputs.text for piece in llm.stream(question, GREEDY)))


def script(clients: Clients, chance: random.Random) -> None:
    """A tree of its own, with descriptors as somebody's launcher may have left them."""
    world, closed = clients.world, chance.choice(_CLOSED)
    asked = chance.sample(QUESTIONS, 3)
    command = ["sh", "-c", f'exec "$0" -c "$1" "$2" {closed}', sys.executable, _SCRIPT, json.dumps(asked)]
    environment = {**world.environment, "PENSTOCK_CHAOS_ROLE": "tests.chaos.script"}
    ended = subprocess.run(
        command, env=environment, cwd=world.home, capture_output=True, text=True, timeout=TURN_SECONDS, check=False
    )
    if ended.returncode == 0 and "1>" not in closed:
        for question, text in zip(asked, json.loads(ended.stdout), strict=True):
            clients.check(question, text)
    elif ended.returncode != 0 and "2>" not in closed:
        raise PenstockError(f"exit {ended.returncode}: {_last_words(ended)}")


def command_line(clients: Clients, chance: random.Random) -> None:
    """From a file to a file: whatever happens, no finished answer of an earlier run is lost."""
    world = clients.world
    rows, answers = world.home / "rows.jsonl", world.home / "given.jsonl"
    rows.write_text("".join(json.dumps({"prompt": question}) + "\n" for question in QUESTIONS))
    earlier = answers.read_bytes() if answers.exists() else b""
    command = [sys.executable, "-m", "penstock", "generate", "pocket", "--input", str(rows), "--output", str(answers)]
    command += ["--format", "jsonl", "--raw", "--temperature", "0", "--max-tokens", "16", "--ignore-eos"]
    command += ["--max-model-len", "512", "--num-gpu-blocks-override", "48", "--watchdog-timeout", "4"]
    environment = {**world.environment, "PENSTOCK_CHAOS_ROLE": "tests.chaos.script"}
    ended = subprocess.run(
        command, env=environment, cwd=world.home, capture_output=True, text=True, timeout=TURN_SECONDS, check=False
    )
    if ended.returncode == 0:
        found = {row["prompt"]: row["outputs"][0]["text"] for row in map(json.loads, answers.read_text().splitlines())}
        assert found.keys() == set(QUESTIONS), found.keys()
        for question, text in found.items():
            clients.check(question, text)
        return
    now = answers.read_bytes() if answers.exists() else b""
    assert now == earlier or now.count(b"\n") >= 1, f"{len(earlier)} bytes of answers became {now!r}"
    raise PenstockError(f"exit {ended.returncode}: {_last_words(ended)}")


def _last_words(ended: "subprocess.CompletedProcess[str]") -> str:
    if ended.returncode < 0:
        return f"the script's own process was killed by signal {-ended.returncode}"
    return " ".join(ended.stderr.strip().splitlines()[-3:])


def leaving(clients: Clients, chance: random.Random) -> None:
    """Somebody who closes the notebook in the middle of an answer."""
    with suppress(PenstockError), LLM("pocket", connect=str(clients.world.address), quiet=True) as llm:
        left = chance.randrange(1, 30)
        for _ in llm.stream("Tell me", GREEDY):
            left -= 1
            if not left:
                break
    time.sleep(chance.random())


KINDS = (over_http, over_http_in_pieces, attached, attached_stream, script, command_line, leaving)


def leftovers(folder: Path) -> list[str]:
    """Runtime folders of trees that are gone."""
    return [str(path) for path in folder.rglob("*") if path.is_socket()]
