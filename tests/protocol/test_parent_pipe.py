"""A child's life hangs on its parent's end of a pipe, and on nothing else."""

import os
import signal
import threading

import psutil
import pytest
from builders.watching import assert_gone, is_running, wait_until

from penstock.protocol.errors import PenstockError
from penstock.protocol.processes import parent_pipe
from penstock.protocol.processes.process import ChildProcess, end_children, run_to_end, start_process

SLEEP = ["sleep", "600"]


def open_descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def started(command: list[str] = SLEEP, **options: object) -> ChildProcess:
    return start_process("test", command, **options)


def test_a_stopped_process_and_what_it_started_end_when_they_are_let_go_of():
    child = started(["sh", "-c", "sleep 600 & wait"])
    own = psutil.Process(child.popen.pid)
    wait_until(lambda: own.children(), 20, "it has started another")
    group = [own.pid, own.children()[0].pid]
    os.killpg(own.pid, signal.SIGSTOP)
    child.life.close()
    assert_gone(group)
    child.close()


def test_what_a_dead_child_has_started_ends_too():
    child = started(["sh", "-c", "sleep 600 & wait"])
    own = psutil.Process(child.popen.pid)
    wait_until(lambda: own.children(), 20, "it has started another")
    [other] = own.children()
    own.kill()
    end_children([child], None)
    assert child.status == -signal.SIGKILL
    assert_gone([other.pid])


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
        run_to_end(lambda **streams: started(["true"], **streams), 20)
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
    done = run_to_end(lambda **streams: started(["cat", str(tmp_path / "given")], **streams), 20)
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
