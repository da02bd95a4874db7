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
from contextlib import nullcontext
from pathlib import Path

from builders.daemon import RunningDaemon
from builders.traffic import QUESTIONS, TURN_SECONDS, Crowd, batch, http_stream, http_whole, leave, stream

from penstock import PenstockError

from .world import World

# Clients may lose their connection for so long after something happened to the daemon itself.
_EXCUSED_SECONDS = 20.0
# A cause names a process, a signal, a place, or the thing that ran out.
_CAUSE = re.compile(
    r"process|SIG|daemon|shut|clos|space|descriptor|open files|stopped|restart|memory|socket|Errno|time|folder", re.I
)

_SCRIPT = """
import json, sys
from penstock import LLM, SamplingParams
questions = json.loads(sys.argv[1])
with LLM("pocket", max_model_len=512, num_gpu_blocks_override=48, quiet=True, watchdog_timeout=4) as llm:
    outputs = llm.generate(questions, SamplingParams(temperature=0, max_tokens=24, ignore_eos=True), use_tqdm=False)
    print(json.dumps([output.outputs.text for output in outputs]))
"""
_CLOSED = ("", "2>&-", "2>/dev/full", "<&-", "<&- 2>&-", "1>/dev/full", "1>&-", "1>&- 2>&-")


class Clients(Crowd):
    def __init__(self, world: World, seed: int) -> None:
        super().__init__()
        self.world, self._seed, self.texts = world, seed, world.texts
        self.daemon = RunningDaemon(world.address)
        self.causes: Counter[str] = Counter()

    @property
    def port(self) -> int:
        return self.world.port

    def take_turns(self, kind: Callable[..., None]) -> None:
        chance = random.Random(f"{self._seed} {kind.__name__}")
        while not self.over.is_set():
            began = time.monotonic()
            try:
                # Scripts attach anew for each turn.
                with self.daemon.attach() if kind in IN_A_SESSION else nullcontext() as llm:
                    kind(self, llm, chance)
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


def run(world: World, command: list[str]) -> "subprocess.CompletedProcess[str]":
    environment = {**world.environment, "PENSTOCK_CHAOS_ROLE": "tests.chaos.script"}
    options = {"capture_output": True, "text": True, "timeout": TURN_SECONDS, "check": False}
    return subprocess.run(command, env=environment, cwd=world.home, **options)


def script(clients: Clients, llm: None, chance: random.Random) -> None:
    """A tree of its own, with descriptors as somebody's launcher may have left them."""
    world, closed = clients.world, chance.choice(_CLOSED)
    asked = chance.sample(QUESTIONS, 3)
    command = ["sh", "-c", f'exec "$0" -c "$1" "$2" {closed}', sys.executable, _SCRIPT, json.dumps(asked)]
    ended = run(world, command)
    if ended.returncode == 0 and "1>" not in closed:
        for question, text in zip(asked, json.loads(ended.stdout), strict=True):
            clients.check(question, text)
    elif ended.returncode != 0 and "2>" not in closed:
        raise PenstockError(f"exit {ended.returncode}: {_last_words(ended)}")


def command_line(clients: Clients, llm: None, chance: random.Random) -> None:
    """From a file to a file: whatever happens, no finished answer of an earlier run is lost."""
    world = clients.world
    rows, answers = world.home / "rows.jsonl", world.home / "given.jsonl"
    rows.write_text("".join(json.dumps({"prompt": question}) + "\n" for question in QUESTIONS))
    earlier = answers.read_bytes() if answers.exists() else b""
    command = [sys.executable, "-m", "penstock", "generate", "pocket", "--input", str(rows), "--output", str(answers)]
    command += ["--format", "jsonl", "--raw", "--temperature", "0", "--max-tokens", "24", "--ignore-eos"]
    command += ["--max-model-len", "512", "--num-gpu-blocks-override", "48", "--watchdog-timeout", "4"]
    ended = run(world, command)
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


IN_A_SESSION = (batch, stream, leave)
KINDS = (*IN_A_SESSION, http_whole, http_stream, script, command_line)


def leftovers(folder: Path) -> list[str]:
    """Runtime folders of trees that are gone."""
    return [str(path) for path in folder.rglob("*") if path.is_socket()]
