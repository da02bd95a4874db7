"""Things that go wrong on a machine, a row each: how each begins and how it ends.

`begin` does it and returns what takes it back; each is told a seeded `random.Random`, so that a run can be repeated.
"""

import os
import random
import resource
import shutil
import signal
import subprocess
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

import psutil

from .world import WATCHDOG_SECONDS, World

End = Callable[[], None]
_DEADLY = (signal.SIGKILL, signal.SIGTERM, signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, signal.SIGQUIT)
# These mean nothing, or little, to whoever gets them.
_VAIN = (signal.SIGHUP, signal.SIGWINCH, signal.SIGCHLD, signal.SIGPIPE, signal.SIGURG)


@dataclass(frozen=True)
class Fault:
    name: str
    begin: Callable[[World, random.Random], End]
    seconds: tuple[float, float] = (0.0, 0.0)  # how long it lasts
    hurts_daemon: bool = False  # its clients may lose their connections


def nothing() -> None:
    """Take nothing back."""


def _send(process: psutil.Process | None, number: int) -> None:
    if process is not None:
        with suppress(psutil.Error):
            process.send_signal(number)


# --- signals ---------------------------------------------------------------------------------------------------------


def a_process(world: World, chance: random.Random) -> psutil.Process | None:
    """One of the model's."""
    return world.tree().get(chance.choice(("engine", "worker", "detokenizer")))


def the_daemon(world: World, chance: random.Random) -> psutil.Process:
    return psutil.Process(world.daemon.pid)


def send(*numbers: int, to: Callable[[World, random.Random], psutil.Process | None]) -> Callable[..., End]:
    """Send one of these signals. Whoever is stopped goes on afterwards; a daemon that has ended is started again."""

    def begin(world: World, chance: random.Random) -> End:
        process, number = to(world, chance), chance.choice(numbers)
        _send(process, number)
        if number == signal.SIGSTOP:
            return lambda: _send(process, signal.SIGCONT)
        return world.keep_daemon

    return begin


def attack_a_script(world: World, chance: random.Random) -> End:
    """A script with a tree of its own, or one of that tree's processes."""
    found = []
    for process in world.processes():
        with suppress(psutil.Error):
            if "tests.chaos.script" in process.environ().get("PENSTOCK_CHAOS_ROLE", ""):
                found.append(process)
    if not found:
        return nothing
    process = chance.choice(sorted(found, key=lambda process: process.pid))
    number = chance.choice((signal.SIGKILL, signal.SIGTERM, signal.SIGSTOP))
    with suppress(psutil.Error):
        is_caller = process.ppid() not in [each.pid for each in found]
        _send(process, number)
        if is_caller and number == signal.SIGSTOP:  # for a while: nobody else is there to notice
            return lambda: _send(process, signal.SIGCONT)
    return nothing


# --- places ----------------------------------------------------------------------------------------------------------


def fill_the_disk(world: World, chance: random.Random) -> End:
    """Only the disk of the logs."""
    if not world.has_small_disk:
        return nothing
    filler = world.logs / "filler"
    with suppress(OSError), open(filler, "wb", buffering=0) as file:
        while True:
            file.write(b"\0" * 4096)
    return lambda: filler.unlink(missing_ok=True)


def remove_the_working_folder(world: World, chance: random.Random) -> End:
    shutil.rmtree(world.folder / "cwd", ignore_errors=True)
    return nothing


def remove_our_folders(world: World, chance: random.Random) -> End:
    """Whatever lies beside the canaries in one of the folders: a cleaner of temporary files came by."""
    root = chance.choice((world.cache, world.logs))
    for path in root.iterdir():
        if world.is_ours(path):
            shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink(missing_ok=True)
    return nothing


# --- clock and limits ------------------------------------------------------------------------------------------------


def move_the_clock(world: World, chance: random.Random) -> End:
    world.move_clock(chance.choice((-1, 1)) * chance.choice((2.0, 3600.0, 86400.0 * 400)))
    return lambda: world.move_clock(0.0)


def take_descriptors(world: World, chance: random.Random) -> End:
    """The daemon may open only a few more."""
    pid = world.daemon.pid
    before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    opened = len(os.listdir(f"/proc/{pid}/fd"))
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (opened + chance.randrange(1, 6), before[1]))

    def give_back() -> None:
        with suppress(OSError):
            resource.prlimit(pid, resource.RLIMIT_NOFILE, before)

    return give_back


def take_processors(world: World, chance: random.Random) -> End:
    """Others want them, too."""
    loops = [subprocess.Popen(["sh", "-c", "while :; do :; done"]) for _ in range(4)]

    def end() -> None:
        for loop in loops:
            loop.kill()
            loop.wait()

    return end


FAULTS = (
    Fault("kill a process", send(*_DEADLY, to=a_process), (1.0, 4.0)),
    Fault("stop a process for a moment", send(signal.SIGSTOP, to=a_process), (0.2, WATCHDOG_SECONDS / 2)),
    Fault("stop a process for good", send(signal.SIGSTOP, to=a_process), (WATCHDOG_SECONDS * 4, WATCHDOG_SECONDS * 5)),
    Fault("stop the daemon", send(signal.SIGSTOP, to=the_daemon), (0.2, WATCHDOG_SECONDS * 2), hurts_daemon=True),
    Fault("kill the daemon", send(*_DEADLY, to=the_daemon), (0.5, 2.0), hurts_daemon=True),
    Fault("signal in vain", send(*_VAIN, to=the_daemon)),
    Fault("interrupt a process", send(signal.SIGINT, to=a_process)),  # a Ctrl-C is the caller's
    Fault("attack a script", attack_a_script, (0.5, 3.0)),
    Fault("fill the disk", fill_the_disk, (1.0, 6.0)),
    Fault("remove the working folder", remove_the_working_folder),
    Fault("remove our folders", remove_our_folders),
    Fault("move the clock", move_the_clock, (1.0, 5.0)),
    Fault("take descriptors", take_descriptors, (0.5, 5.0), hurts_daemon=True),
    Fault("take processors", take_processors, (1.0, 5.0)),
)
