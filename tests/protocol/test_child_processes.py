"""Children of the front end: a life hangs on the parent's end of a pipe, and a heartbeat shows what a child does."""

import os
import resource
import signal
import sys
import threading
from contextlib import closing

import psutil
import pytest
from builders.cases import for_each
from builders.watching import assert_gone, is_running, wait_until

from penstock.protocol.errors import ConfigError, PenstockError
from penstock.protocol.messages import EngineInbox
from penstock.protocol.processes import parent_pipe, process
from penstock.protocol.processes.exit_status import describe_status
from penstock.protocol.processes.heartbeat import Heartbeat, Heartbeats, Ping, WatchedInbox
from penstock.protocol.processes.process import ChildProcess, end_children, run_to_end, start_process
from penstock.protocol.processes.sockets import Outbox
from penstock.protocol.stats import StatsQuery

SLEEP = ["sleep", "600"]


def open_descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def started(command: list[str] = SLEEP, **options: object) -> ChildProcess:
    return start_process("test", command, **options)


def with_grandchild() -> tuple[ChildProcess, psutil.Process, int]:
    """A child, its process, and the pid of what it has started."""
    child = started(["sh", "-c", "sleep 600 & wait"])
    own = psutil.Process(child.popen.pid)
    wait_until(lambda: own.children(), "it has started another")
    return child, own, own.children()[0].pid


def test_what_a_child_has_started_ends_with_it_when_it_dies_or_is_let_go_of_while_it_is_stopped():
    child, own, other = with_grandchild()
    own.kill()
    end_children([child], None)
    assert child.status == -signal.SIGKILL
    assert_gone([other])
    child, own, other = with_grandchild()
    os.killpg(own.pid, signal.SIGSTOP)
    child.life.close()
    assert_gone([own.pid, other])
    child.close()


def test_neither_a_forked_copy_nor_the_end_of_the_thread_that_started_a_child_ends_it_or_keeps_it_alive():
    children: list[ChildProcess] = []
    thread = threading.Thread(target=lambda: children.append(started()))
    thread.start()
    thread.join()
    [child] = children
    pid = os.fork()
    if pid == 0:
        child.life.close()
        os._exit(int(bool(parent_pipe._open)))
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0, "the copy has let go"
    assert is_running(child.popen.pid)
    child.close()
    assert not is_running(child.popen.pid)


def test_nothing_stays_open_of_children_that_have_ended():
    before, pipes = open_descriptors(), set(parent_pipe._open)
    for _ in range(3):
        started().close()
        run_to_end(lambda **streams: started(["true"], **streams), 60)
    with pytest.raises(FileNotFoundError):
        started(["/nowhere"])
    assert open_descriptors() == before
    assert parent_pipe._open == pipes


def test_a_child_that_no_descriptor_is_left_for_is_not_started(monkeypatch):
    before = set(psutil.Process().children())

    def none_left(pid: int) -> int:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(os, "pidfd_open", none_left)
    with pytest.raises(PenstockError, match="test process could not be started: Too many open files. Close files"):
        started()
    assert set(psutil.Process().children()) == before


def test_a_program_says_any_amount_and_one_that_takes_too_long_is_ended(tmp_path):
    given = os.urandom(3 << 20)
    (tmp_path / "given").write_bytes(given)
    done = run_to_end(lambda **streams: started(["cat", str(tmp_path / "given")], **streams), 60)
    assert (done.status, done.output, done.errors) == (0, given, b"")
    children: list[ChildProcess] = []
    with pytest.raises(TimeoutError):
        run_to_end(lambda **streams: children.append(started(**streams)) or children[0], 0.05)
    assert not is_running(children[0].popen.pid)


def test_a_start_that_is_interrupted_leaves_nothing(monkeypatch):
    """As by Ctrl-C, at the worst moment: the process is there, and nobody has heard of it."""
    before = set(psutil.Process().children())
    pids: list[int] = []

    def interrupted(popen: object, *pipes: object) -> None:
        pids.append(popen.pid)
        raise KeyboardInterrupt

    monkeypatch.setattr("subprocess.Popen._close_pipe_fds", interrupted)
    with pytest.raises(KeyboardInterrupt):
        started()
    assert_gone(pids)
    assert len(pids) == 1 and set(psutil.Process().children()) == before


def test_a_process_that_a_signal_ended_is_told_of_with_the_limits_that_it_had(monkeypatch):
    most = {resource.RLIMIT_CPU: 90, resource.RLIMIT_AS: 600_000 << 10, resource.RLIMIT_FSIZE: 64 << 20}
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (most.get(kind, resource.RLIM_INFINITY),) * 2)
    assert describe_status(-6) == (
        "was killed by SIGABRT, with this process's own limits: ulimit -t 90, ulimit -v 600000, ulimit -f 65536"
    )
    assert describe_status(1) == "exited with status 1"


def test_processes_run_their_parents_package_or_none(tmp_path, monkeypatch):
    """A clone in the current folder stands before an installation, which processes would find."""
    own, installed = tmp_path / "here" / "penstock", tmp_path / "there" / "penstock"
    for folder in (own, installed):
        (folder / "room").mkdir(parents=True)
        (folder / "room" / "file.py").write_text("a = 1")
    monkeypatch.setattr(process, "_PACKAGE", own)
    monkeypatch.setattr(sys, "path", ["", str(tmp_path)])
    assert process.inherited_path() == [str(tmp_path), str(own.parent)]
    monkeypatch.setattr(sys, "path", ["", str(installed.parent)])
    assert process.inherited_path() == [str(installed.parent)]
    process._require_same_package.cache_clear()
    (own / "room" / "file.py").write_text("a = 2")
    with pytest.raises(ConfigError, match=r"found .*here/penstock .*there/penstock is installed.*room/file\.py"):
        process.inherited_path()


# --- heartbeats ------------------------------------------------------------------------------------------------------

ROLES = ("engine", "detokenizer", "worker 0", "worker 1")


def test_each_child_writes_a_line_of_its_own_with_its_overlapping_steps_which_a_closed_page_still_shows():
    before = open_descriptors()
    page = Heartbeats(num_ranks=2)
    beats = {role: Heartbeat.of(role, os.dup(page.descriptor)) for role in ROLES}
    for number, role in enumerate(ROLES, start=1):
        beats[role].answer(number)
        beats[role].answer(number - 1)  # an answer never goes back
        for _ in range(number):
            beats[role].taken()
    page.close()
    page.close()
    assert [page.read(role)[:2] for role in ROLES] == [(1, 1), (2, 2), (3, 3), (4, 4)]
    beats.clear()
    assert open_descriptors() == before
    page = Heartbeats(num_ranks=1)
    beats = [Heartbeat.of("worker 0", os.dup(page.descriptor)), Heartbeat.of("engine", -1)]
    read = []
    for tokens in (512, 3, None, None):
        for beat in beats:
            beat.begin_step(tokens) if tokens else beat.end_step()
        state = page.read("worker 0")
        read.append((state.steps, state.done, state.step_tokens))
    assert read == [(0, 0, 512), (0, 0, 515), (1, 512, 3), (2, 515, 0)]


@for_each("timeout", [None, 60.0])
def test_an_inbox_answers_pings_and_shows_nobody_any(tmp_path, timeout):
    page = Heartbeats(num_ranks=1)
    beat = Heartbeat.of("engine", os.dup(page.descriptor))
    with (
        closing(WatchedInbox(tmp_path, "engine", EngineInbox, beat)) as inbox,
        closing(Outbox(tmp_path, "engine")) as outbox,
    ):
        for message in (Ping(1), StatsQuery(4), Ping(2), Ping(3), StatsQuery(5)):
            outbox.send(message)
        inbox.socket.poll(60_000)
        assert inbox.receive() == StatsQuery(4)
        assert page.read("engine")[:2] == (1, 1)
        inbox.socket.poll(60_000)
        assert inbox.receive(timeout) == StatsQuery(5)
        assert page.read("engine")[:2] == (2, 3)
        assert inbox.receive(0) is None
