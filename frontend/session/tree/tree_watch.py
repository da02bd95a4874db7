"""Detects that a process of a tree has hung, and which one.

A process is alive while it takes messages, answers pings or ends steps. A step's time limit is proportional to its
work, as measured on earlier steps, and never below `watchdog_timeout`. A stopped process computes nothing, so its limit
is that timeout. While the tree starts, computing and reading are signs of life as well.
"""

import time
from dataclasses import field
from functools import partial
from typing import TYPE_CHECKING

from ....protocol.errors import EngineDeadError
from ....protocol.processes.heartbeat import HeartbeatLine
from ....protocol.ranks.node_messages import SILENCE
from ....records import dataclass
from .vital_signs import Chance, Process, Progress, RemoteProcess
from .watchdog import Timer

if TYPE_CHECKING:
    from .tree import Tree

# A step may take this many times the usual time.
_GENEROSITY = 10.0
# Little is known for the first steps, and a GPU may still compile kernels for them; they have this many times
# watchdog_timeout.
_FIRST_STEPS, _FIRST_PATIENCE = 16, 5.0
# Bytes of weights, keys and values that even a slow machine reads in a second, for each token of a step.
_SLOWEST = 1e9


@dataclass
class _ChildWatch:
    """One child, and how long it has shown no sign of life."""

    role: str
    process: "Process | RemoteProcess"
    stopped: float = 0.0
    work: Timer = field(default_factory=Timer)  # of its own thread
    step: Timer = field(default_factory=Timer)  # of a step in progress, for which a GPU's worker doesn't wait

    def count(self, signs: HeartbeatLine, chance: Chance) -> None:
        self.work.count(_work_of(signs), chance.seconds)
        self.step.count((signs.done, signs.step_tokens > 0), chance.seconds if signs.step_tokens else 0.0)
        self.stopped = self.stopped + chance.seconds if chance.is_stopped else 0.0


class TreeWatch:
    def __init__(self, tree: "Tree", timeout: float) -> None:
        self.tree = tree
        self.timeout = timeout
        self._watched = [_ChildWatch(child.role, Process(child.popen.pid)) for child in tree.children]
        vitals = {f"worker {rank}": partial(tree.heartbeats.vitals, rank) for rank in tree.remote_ranks}
        self._remote = {role: RemoteProcess(read) for role, read in vitals.items()}
        self._watched += [_ChildWatch(role, process) for role, process in self._remote.items()]
        self._signs: dict[str, HeartbeatLine] = {}
        self._start = Progress()

    def begin(self) -> None:
        """Begin to watch: earlier signs don't count after a pause."""
        self._signs = {}
        self._start = Progress()
        for process in self._remote.values():
            process.forget()
        for each in self._watched:
            each.stopped, each.work, each.step = 0.0, Timer(), Timer()

    def look(self, seconds: float) -> EngineDeadError | None:
        """Find out what has hung, after this many more seconds."""
        return self._look_at_work(seconds) if self.tree.is_ready else self._look_at_start(seconds)

    # --- while it works ---------------------------------------------------------------------------------------------

    def _look_at_work(self, seconds: float) -> EngineDeadError | None:
        before, self._signs = self._signs, {each.role: self.tree.heartbeats.read(each.role) for each in self._watched}
        for each in self._watched:
            self.tree.roll_call.ask(each.role)
        silent = {role for role, signs in before.items() if _work_of(signs) == _work_of(self._signs[role])}
        for role, process in self._remote.items():
            if process.is_stopped:  # its newest signs came with the news of that
                silent.add(role)
            elif role not in silent:  # what it could have done before its newest signs doesn't matter
                process.forget()
        chances = {each.role: each.process.chance(seconds) for each in self._watched if each.role in silent}
        if any(chance.is_traced for chance in chances.values()):  # a person debugs it, at leisure
            return None
        # Ranks wait for one another: if one has no core, the ranks that wait for it had no chance either.
        ranks = [chance.seconds for role, chance in chances.items() if role.startswith("worker")]
        for each in self._watched:
            chance = chances.get(each.role, Chance(seconds))
            if each.role.startswith("worker") and not chance.is_stopped:
                chance = chance._replace(seconds=min([chance.seconds, *ranks]))
            each.count(self._signs[each.role], chance)
        return self._verdict()

    def _verdict(self) -> EngineDeadError | None:
        """The error about the process that holds up the others: stopped processes first, then silent ones, then an
        endless step."""
        if stopped := [each for each in self._watched if each.stopped]:
            # Without it the other machines have taken this one for dead by then.
            if self.tree.machines and any(each.role == "link" and each.stopped >= SILENCE for each in stopped):
                return self.tree.stopped_link()
            hung = [each for each in stopped if each.stopped >= self.timeout]
            return self._error(hung, "been stopped (SIGSTOP)", max(each.stopped for each in stopped), self.timeout)
        for timer, what in (("work", "shown no sign of life"), ("step", "not ended a step")):
            late = [(each, getattr(each, timer).seconds, self._bound(self._signs[each.role])) for each in self._watched]
            if late := [(each, seconds, bound) for each, seconds, bound in late if seconds >= bound]:
                _, seconds, bound = late[0]
                return self._error([each for each, _, _ in late], what, seconds, bound)
        return None

    def _bound(self, signs: HeartbeatLine) -> float:
        return max(self.timeout, self.step_seconds(signs)) if signs.step_tokens else self.timeout

    def step_seconds(self, signs: HeartbeatLine) -> float:
        """The time limit of the steps that a worker is in."""
        plan = self.tree.plan
        if plan is None:
            return 0.0
        block_size = self.tree.config.block_size
        weights, histories = max(plan.weight_bytes, 1), plan.max_model_len * plan.block_bytes / block_size
        if signs.steps < _FIRST_STEPS:
            return max(_FIRST_PATIENCE * self.timeout, signs.step_tokens * (weights + histories) / _SLOWEST)
        # Earlier steps may have had short histories, and this one the longest.
        a_token = signs.step_time / signs.done * (1 + histories / weights)
        return _GENEROSITY * max(signs.step_time / signs.steps, signs.step_tokens * a_token) / 1e9

    def is_computing(self, role: str, seconds: float) -> bool:
        """Whether it can't answer because of a step that is still within its time limit."""
        signs = self.tree.heartbeats.read(role)
        if not signs.step_tokens or self.is_stopped(role):
            return False
        return (time.monotonic_ns() - signs.step_start) / 1e9 < max(seconds, self.step_seconds(signs))

    def is_stopped(self, role: str) -> bool:
        return any(each.process.is_stopped for each in self._watched if each.role == role)

    # --- while it starts --------------------------------------------------------------------------------------------

    def _look_at_start(self, seconds: float) -> EngineDeadError | None:
        for each in self._watched:
            self.tree.roll_call.ask(each.role)
        chances = [each.process.chance(seconds) for each in self._watched]
        if any(chance.is_traced for chance in chances):
            return None
        for each, chance in zip(self._watched, chances):
            each.stopped = each.stopped + seconds if chance.is_stopped else 0.0
        self._start.count([child.popen.pid for child in self.tree.children], seconds)
        # Progress on any machine counts; of one that hasn't joined nothing is known.
        missed = min([self._start.missed, *(process.missed for process in self._remote.values())])
        if any(each.stopped for each in self._watched):
            return self._verdict()
        if missed >= self.timeout:
            # A process that waits for others answers. If all answer, a message between them was lost.
            silent = [each for each in self._watched if self.tree.roll_call.is_awaited(each.role)]
            what = "neither computed nor read anything"
            return self._error(silent or self._watched, what, missed, self.timeout)
        return None

    # --- messages ---------------------------------------------------------------------------------------------------

    def _error(self, hung: list[_ChildWatch], what: str, seconds: float, bound: float) -> EngineDeadError | None:
        if not hung:
            return None
        names, logs = [], []
        for each in hung:
            hello = self.tree.machines.get(each.role)
            where = f" on {hello.machine}" if hello is not None else ""
            names.append(f"{each.role} process (pid {each.process.pid}{where})")
            logs.append(f"{self.tree.log if hello is None else hello.log}{where}")
        has, are = "has" if len(hung) == 1 else "have", "log is" if len(set(logs)) == 1 else "logs are"
        since = time.strftime("%H:%M:%S", time.localtime(time.time() - seconds))
        given = f"watchdog_timeout={self.timeout:g}"
        longer = f"{given} s" if bound == self.timeout else f"the {bound:.0f} s that such a step may take ({given})"
        return EngineDeadError(
            f"The {' and '.join(names)} {has} {what} since {since}, longer than {longer}, and its tree was ended. A "
            f"larger watchdog_timeout waits longer, 0 forever. Its {are} {' and '.join(dict.fromkeys(logs))}."
        )


def _work_of(signs: HeartbeatLine) -> tuple[int, ...]:
    return signs.taken, signs.answered, signs.begun, signs.done
