"""Children of the front end: a life hangs on the parent's end of a pipe, and a heartbeat shows what a child does."""

import os
import signal
import threading
from contextlib import closing

import psutil
import pytest
from builders.cases import for_each
from builders.watching import assert_gone, is_running, wait_until

from penstock.protocol.errors import PenstockError
from penstock.protocol.messages import EngineInbox
from penstock.protocol.processes import parent_pipe
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
    wait_until(lambda: own.children(), 60, "it has started another")
    return child, own, own.children()[0].pid


def test_a_stopped_process_and_what_it_started_end_when_they_are_let_go_of():
    child, own, other = with_grandchild()
    os.killpg(own.pid, signal.SIGSTOP)
    child.life.close()
    assert_gone([own.pid, other])
    child.close()


def test_what_a_dead_child_has_started_ends_too():
    child, own, other = with_grandchild()
    own.kill()
    end_children([child], None)
    assert child.status == -signal.SIGKILL
    assert_gone([other])


def test_the_thread_that_starts_a_child_may_end():
    children: list[ChildProcess] = []
    thread = threading.Thread(target=lambda: children.append(started()))
    thread.start()
    thread.join()
    assert is_running(children[0].popen.pid)
    children[0].close()
    assert not is_running(children[0].popen.pid)


def test_a_forked_copy_neither_keeps_a_child_alive_nor_ends_it():
    child = started()
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


def test_a_program_says_any_amount(tmp_path):
    given = os.urandom(3 << 20)
    (tmp_path / "given").write_bytes(given)
    done = run_to_end(lambda **streams: started(["cat", str(tmp_path / "given")], **streams), 60)
    assert (done.status, done.output, done.errors) == (0, given, b"")


def test_a_program_that_takes_too_long_is_ended():
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


# --- heartbeats ------------------------------------------------------------------------------------------------------

ROLES = ("engine", "detokenizer", "worker 0", "worker 1")


def test_each_child_writes_a_line_of_its_own():
    page = Heartbeats(num_ranks=2)
    beats = {role: Heartbeat.of(role, os.dup(page.descriptor)) for role in ROLES}
    for number, role in enumerate(ROLES, start=1):
        beats[role].answer(number)
        for _ in range(number):
            beats[role].taken()
    assert [page.read(role)[:2] for role in ROLES] == [(1, 1), (2, 2), (3, 3), (4, 4)]


def test_steps_that_overlap_are_counted_one_after_another():
    page = Heartbeats(num_ranks=1)
    beat = Heartbeat.of("worker 0", os.dup(page.descriptor))
    beat.begin_step(512)
    beat.begin_step(3)
    assert page.read("worker 0").step_tokens == 515
    beat.end_step()
    between = page.read("worker 0")
    assert (between.steps, between.done, between.step_tokens) == (1, 512, 3)
    beat.end_step()
    after = page.read("worker 0")
    assert (after.steps, after.done, after.step_tokens) == (2, 515, 0)


def test_an_answer_never_goes_back():
    page = Heartbeats(num_ranks=1)
    beat = Heartbeat.of("engine", os.dup(page.descriptor))
    beat.answer(7)
    beat.answer(5)
    assert page.read("engine").answered == 7


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


def test_without_a_page_nothing_is_written_anywhere():
    beat = Heartbeat.of("engine", -1)
    beat.taken()
    beat.begin_step(1)
    beat.end_step()


def test_a_closed_page_still_says_what_stood_there_and_holds_no_descriptor():
    before = len(os.listdir("/proc/self/fd"))
    page = Heartbeats(1)
    Heartbeat.of("engine", os.dup(page.descriptor)).answer(7)
    page.close()
    page.close()
    assert page.read("engine").answered == 7
    assert len(os.listdir("/proc/self/fd")) == before
