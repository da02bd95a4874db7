"""One sitting: every contender started, each scenario run by all of them in alternated rounds, memory read, all ended.

Knows what is measured and in which order; nothing of any engine, and nothing of how figures are shown.
"""

import contextlib
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from ..machine import Company, NoCompiler, read_bandwidth
from . import OURS
from .child import Child, EngineFault
from .contenders import Contender
from .scenarios import MAX_NUM_SEQS, Scenario, first_token, longest, warm_up
from .serve import Request

QUICK_START = 15.0  # seconds; slower ones are started once
LOSING = 0.9  # of the best rate so far
SETTLING = 10.0  # seconds for what an engine does in the background after its start


@dataclass(frozen=True)
class Plan:
    folder: Path  # holds `checkpoint`, and each engine's format of it
    vocabulary: int
    threads: int
    rounds: int
    starts: int
    patience: float
    kv_bytes_per_token: int = 0  # of the widest keys and values that are compared

    def kv_gib(self, max_model_len: int) -> int:
        """Gigabytes of keys and values for every engine: room for the longest request, and at least 2."""
        return max(2, -(-max_model_len * self.kv_bytes_per_token // 2**30))


def hold(
    plan: Plan, contenders: list[Contender], scenarios: list[Scenario], quantization: str, keep: Callable[[Any], None]
) -> None:
    """Measure everything at one precision class; `keep` gets the record so far after each scenario."""
    sitting = Sitting(plan, quantization, longest(scenarios))
    try:
        for contender in contenders:
            sitting.begin(contender)
        sitting.start_again()
        for scenario in scenarios:
            sitting.run(scenario)
            sitting.read_memory("after")
            keep(sitting.record)
    finally:
        for contender in sitting.contenders:
            contender.child.close()


def prepare(plan: Plan, contenders: list[Contender], quantization: str) -> None:
    """Only make what `hold` would make first."""
    for contender in contenders:
        Sitting(plan, quantization, longest([])).prepare(contender)


class Sitting:
    def __init__(self, plan: Plan, quantization: str, max_model_len: int) -> None:
        self.plan = plan
        self.quantization = quantization
        self.max_model_len = max_model_len
        self.contenders: list[Contender] = []  # those that run
        self.record: dict[str, Any] = {"engines": {}, "scenarios": {}, "import_torch": [], "faults": []}

    # --- starts -------------------------------------------------------------------------------------------------------

    def begin(self, contender: Contender) -> None:
        """Make the engine's format, start it, and leave it warm and stopped."""
        with self._noted(contender.name):
            self.prepare(contender)
            self.record["import_torch"].append(import_torch_seconds())
            seconds = self._start(contender)
            self.contenders.append(contender)
            self.record["engines"][contender.name] = {
                "version": contender.version,
                "format": contender.engine.formats[self.quantization],
                "starts": [seconds],
                "loaded": contender.loaded,
                "memory": {"loaded": contender.child.memory()},
            }
            with contender.child.awake() as child:
                for wave in warm_up(self.plan.vocabulary):
                    child.ask("run", requests=wave)
                time.sleep(SETTLING)
            say(f"{contender.name}: start to first token {seconds:.1f} s")

    def start_again(self) -> None:
        """Further fresh processes, in turns, of those that start quickly."""
        for _ in range(1, self.plan.starts):
            for contender in self.contenders:
                starts = self.record["engines"][contender.name]["starts"]
                if starts[0] > QUICK_START:
                    continue
                self.record["import_torch"].append(import_torch_seconds())
                fresh = Contender(contender.engine, contender.python, contender.version)
                with self._noted(contender.name):
                    starts.append(self._start(fresh))
                    fresh.child.close()

    def prepare(self, contender: Contender) -> None:
        """Make the engine's format of the model, where it isn't there from an earlier sitting."""
        if self._format_of(contender).exists():
            return
        say(f"{contender.name}: making its format")
        unfinished = self.plan.folder / f"unfinished-{self._format_of(contender).name}"
        shutil.rmtree(unfinished, ignore_errors=True)
        child = self._child(contender)
        try:
            child.ask(
                "prepare",
                checkpoint=str(self.plan.folder / "checkpoint"),
                folder=str(unfinished),
                quantization=self.quantization,
            )
        finally:
            child.close()
        unfinished.rename(self._format_of(contender))

    def _start(self, contender: Contender) -> float:
        """Seconds from the start of the process to its first token; leaves it stopped."""
        contender.child = child = self._child(contender)
        try:
            contender.loaded = child.ask(
                "load",
                folder=str(self._format_of(contender)),
                quantization=self.quantization,
                threads=self.plan.threads,
                max_model_len=self.max_model_len,
                max_num_seqs=MAX_NUM_SEQS,
                kv_gib=self.plan.kv_gib(self.max_model_len),
            )
            child.ask("run", requests=first_token(0, self.plan.vocabulary))
        except EngineFault:
            child.close()
            raise
        seconds = time.perf_counter() - child.born
        child.pause()
        return seconds

    def _child(self, contender: Contender) -> Child:
        log = self.plan.folder / f"{contender.name}-{self.quantization}.log"
        return Child(contender.name, contender.python, contender.engine.module, log)

    def _format_of(self, contender: Contender) -> Path:
        return self.plan.folder / f"{contender.name}-{self.quantization}"

    # --- rounds -------------------------------------------------------------------------------------------------------

    def run(self, scenario: Scenario) -> None:
        """All rounds of a scenario; the order turns, so that none always follows the same other."""
        figures: dict[str, dict[str, list[float]]] = {}
        self.record["scenarios"][scenario.name] = figures
        for number in range(self.plan.rounds):
            taking_part = [one for one in self.contenders if self._takes_part(one, scenario, figures)]
            turn = number % max(len(taking_part), 1)
            for contender in taking_part[turn:] + taking_part[:turn]:
                with self._noted(contender.name):
                    measured = self._measure(contender, scenario, number)
                    for name, value in measured.items():
                        figures.setdefault(contender.name, {}).setdefault(name, []).append(value)
                    say(f"{scenario.name}, round {number + 1}: {contender.name} {measured['rate']:.1f} tokens/s")

    def _takes_part(self, contender: Contender, scenario: Scenario, figures: dict[str, Any]) -> bool:
        """A run that was slow and lost is not repeated: it would cost minutes and change no ratio."""
        if contender.engine.scenarios is not None and scenario.name not in contender.engine.scenarios:
            return False
        own = figures.get(contender.name)
        if not own or contender.name == OURS:
            return True
        best = max(median(others["rate"]) for name, others in figures.items() if name != OURS)
        return own["seconds"][0] <= self.plan.patience or median(own["rate"]) >= LOSING * best

    def _measure(self, contender: Contender, scenario: Scenario, number: int) -> dict[str, Any]:
        waves = scenario.waves(number, self.plan.vocabulary)
        one_step = scenario.name == "decode"
        bandwidth = self._bandwidth() if one_step else None
        with Company() as company, contender.child.awake() as child:
            before_steps = completed(child, first_token(number + 1, self.plan.vocabulary))[0] if one_step else 0.0
            taken, answers = zip(*(completed(child, wave) for wave in waves), strict=True)
        measured: dict[str, Any] = {"rate": scenario.tokens(waves) / sum(taken), "seconds": sum(taken)}
        measured["others"] = company.others
        measured["first_tokens"] = [tokens[0] for answer in answers for tokens in answer]
        measured["last_tokens"] = len({tokens[-1] for answer in answers for tokens in answer})
        if bandwidth:
            # Read before and after: memory's speed drifts within minutes on a shared machine.
            measured["read_gb_s"] = (bandwidth + self._bandwidth()) / 2
        if one_step:
            measured["step_seconds"] = (sum(taken) - before_steps) / (waves[0][0][1] - 1)
        return measured

    def _bandwidth(self) -> float | None:
        try:
            return read_bandwidth(self.plan.threads)
        except NoCompiler:
            return None

    # --- the rest -----------------------------------------------------------------------------------------------------

    def read_memory(self, moment: str) -> None:
        for contender in self.contenders:
            self.record["engines"][contender.name]["memory"][moment] = contender.child.memory()

    @contextlib.contextmanager
    def _noted(self, name: str) -> Iterator[None]:
        """A fault of one engine is noted and ends nothing else; an engine that died takes no further part."""
        try:
            yield
        except EngineFault as fault:
            say(str(fault))
            self.record["faults"].append({"engine": name, "fault": str(fault)})
            for contender in [one for one in self.contenders if one.name == name and one.child.has_ended]:
                contender.child.close()
                self.contenders.remove(contender)


def completed(child: Child, wave: list[Request]) -> tuple[float, list[list[int]]]:
    """Seconds that a wave of requests took, and its tokens; each must have got as many as it asked for."""
    answer = child.ask("run", requests=wave)
    counts, wanted = [len(tokens) for tokens in answer["tokens"]], [count for _, count in wave]
    if counts != wanted:
        raise EngineFault(f"{child.name} returned {counts} tokens where {wanted} were asked for.")
    return answer["seconds"], answer["tokens"]


def import_torch_seconds() -> float:
    start = time.perf_counter()
    subprocess.run([sys.executable, "-c", "import torch"], check=True)
    return time.perf_counter() - start


def say(line: str) -> None:
    print(f"[{time.strftime('%H:%M:%S')}] {line}", file=sys.stderr, flush=True)
