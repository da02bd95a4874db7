"""Starts a daemon in the background, asks it questions, and stops it.

A started daemon outlives its caller. It detaches itself before it does anything else, so that nobody has to reap it,
and reports through a pipe when it listens.
"""

import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from pathlib import Path

from ...protocol.attach import Answer, AskReload, AskStatus, AskStop, AskUnloadModel, DaemonStatus, Question
from ...protocol.errors import PenstockError
from ...protocol.processes.descriptors import is_readable, said_in_words
from ...protocol.processes.process import inherited_path, open_log, working_folder
from ..console import logs
from ..session.attached.connection import DaemonConnection
from ..session.attached.patience import FIRST_WORD_SECONDS, Patience
from .ending import END_SECONDS, DaemonProcess
from .lock import process_of

_START_SECONDS = 30.0
_LOOK_SECONDS = 0.05
# After this time, the waiting caller is told what the daemon is doing.
_QUICK_SECONDS = 2.0
# The last thing in the log of a daemon that ends by itself.
ENDS = "The daemon ends: "
_ERROR = re.compile(rf"^(?:\S+ {ENDS}|penstock: )", re.MULTILINE)
# If it has hung up, it is usually about to end: another `penstock stop`, or a signal, came first.
_HUNG_UP_SECONDS = 2.0
# A daemon started by a script ends when nobody has needed it for this long.
LINGER_SECONDS = 600.0


def start_daemon(words: Sequence[str], address: Path, say: Callable[[str], None] = lambda words: None) -> None:
    """Start a daemon; returns when it listens and has loaded its models. If it fails, raises an error from its log.

    `words` are the arguments of `penstock serve`.
    """
    log = logs.ready_daemon_log(address)
    said = log.stat().st_size
    with said_in_words("The daemon could not be started"):
        read_end, write_end = os.pipe()
    command = [sys.executable, "-P", "-m", "penstock", "serve", "--socket", str(address), "--detached", str(write_end)]
    try:
        with open_log(log) as log_file:
            starter = subprocess.Popen(
                [*command, *words],
                stdin=subprocess.DEVNULL,
                stdout=log_file,
                stderr=log_file,
                pass_fds=(write_end,),
                start_new_session=True,
                cwd=working_folder(),
                env={**os.environ, "PYTHONPATH": os.pathsep.join(inherited_path())},
            )
        os.close(write_end)
        write_end = -1
        starter.wait()  # it detaches itself at once
        is_ours = is_readable(read_end, _START_SECONDS) and os.read(read_end, 1)
        if is_ours and not is_readable(read_end, _QUICK_SECONDS):
            say(f"The daemon loads what it is to serve, also where nobody waits for it. Its log is {log}.")
        # Loading has no timeout. If the daemon ends meanwhile, its end of the pipe closes and the read returns nothing.
        if not (is_ours and os.read(read_end, 1)) and (is_ours or not listens(address)):
            raise PenstockError(f"The daemon did not start: {_last_words(log, said).rstrip('.')}. Its log is {log}.")
    finally:
        for end in (read_end, write_end):
            if end >= 0:
                os.close(end)


def _last_words(log: Path, said: int) -> str:
    """The error that ended it, without its prefix in the log."""
    heard = log.read_bytes()[said:].decode(errors="replace").strip()
    *_, last = [0, *(found.end() for found in _ERROR.finditer(heard))]
    return heard[last:] if last else (heard.splitlines() or ["it said nothing"])[-1]


def detach(starter: int) -> Callable[[], None]:
    """Detach from the process that started us. Returns a function that writes to its pipe: call it when we listen,
    and again when we are ready."""
    if os.fork():
        os._exit(0)
    os.setsid()
    os.set_inheritable(starter, False)

    def tell() -> None:
        with suppress(OSError):
            os.write(starter, b"1")

    return tell


def listens(address: Path) -> bool:
    with suppress(OSError):
        DaemonConnection(address).close()
        return True
    return False


def line_to(address: Path) -> DaemonConnection:
    try:
        return DaemonConnection(address)
    except TimeoutError as error:
        raise PenstockError(f"{address}: {error.strerror or error}. `penstock stop` ends it.") from error
    except OSError as error:
        raise PenstockError(f"No daemon listens at {address}. Start one with `penstock start`.") from error


def ask(line: DaemonConnection, question: Question) -> Answer:
    with Patience(line, FIRST_WORD_SECONDS):
        line.send(question)
        answer = line.receive()
    if not isinstance(answer, Answer):
        raise line.lost()
    if answer.failure is not None:
        raise answer.failure.error()
    return answer


def status_of(line: DaemonConnection) -> DaemonStatus:
    status = ask(line, AskStatus(0)).status
    if status is None:
        raise line.lost()
    return status


def daemon_status(address: Path) -> DaemonStatus:
    with closing(line_to(address)) as line:
        return status_of(line)


def reload_daemon(address: Path) -> str:
    with closing(line_to(address)) as line:
        return ask(line, AskReload(0)).text


def unload_model(address: Path, name: str) -> str:
    """Unload a model; returns the daemon's name for it when its processes have ended."""
    with closing(line_to(address)) as line:
        served = ask(line, AskUnloadModel(0, name)).text
        while any(model.name == served and model.state == "unloading" for model in status_of(line).models):
            time.sleep(_LOOK_SECONDS)
        return served


def stop_daemon(address: Path, seconds: float | None = None, say: Callable[[str], None] = lambda words: None) -> None:
    """Stop a daemon and its process trees; returns when all have ended.

    It is asked over its socket first, then sent SIGTERM, then killed; `say` hears each step. Running requests have
    `seconds` to end, or as many as the daemon's owner has set.
    """
    process = process_of(address)
    try:
        try:
            answering, seconds = _asked_to_stop(address, seconds, say)
        except PenstockError as error:
            if process is None:  # there is none, or nobody knows which it is
                raise
            if not process.has_ended(_HUNG_UP_SECONDS):
                for words in (str(error), *process.end()):
                    say(words)
            return
        if process is None:
            process = answering
        else:
            answering.close()
        if process.has_ended(seconds + END_SECONDS):
            return
        for words in (f"It was asked to end, and has not within {seconds + END_SECONDS:.0f} s.", *process.end()):
            say(words)
    finally:
        if process is not None:
            process.close()


def _asked_to_stop(address: Path, seconds: float | None, say: Callable[[str], None]) -> tuple[DaemonProcess, float]:
    """The process that has promised to end, and how many seconds its requests have."""
    with closing(line_to(address)) as line:
        process = DaemonProcess(line.pid, os.pidfd_open(line.pid))
        try:
            status = ask(line, AskStop(0, seconds)).status
        except BaseException:
            process.close()
            raise
    if status is None:  # a daemon of another version
        return process, seconds or 0.0
    if status.num_running:
        say(f"Requests that run: {status.num_running:,}; they have {status.drain:g} s to end.")
    return process, status.drain
