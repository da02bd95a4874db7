"""A daemon that is killed takes the processes of all its models along, stopped ones too."""

import os
import signal

import psutil
import pytest
from builders.daemon import models
from builders.watching import assert_gone, is_running, wait_until

from penstock import EngineDeadError


@pytest.mark.long
def test_stopped_processes_of_models_go_with_a_killed_daemon(start):
    daemon = start(models("a", "b"))
    clients = [daemon.attach(name) for name in ("a", "b")]
    own, *processes = daemon.processes()
    assert len(processes) == 8  # of each model a worker, an engine, a detokenizer, and one for its template
    for pid in processes:
        os.kill(pid, signal.SIGSTOP)
    wait_until(lambda: all(psutil.Process(pid).status() == "stopped" for pid in processes), 20, "all are stopped")
    os.kill(own, signal.SIGKILL)
    assert_gone([own, *processes])
    for client in clients:
        with pytest.raises(EngineDeadError, match="daemon"):
            client.generate([[1]], use_tqdm=False)
    daemon.address.unlink()  # nobody is there to be stopped
    assert not is_running(own)
