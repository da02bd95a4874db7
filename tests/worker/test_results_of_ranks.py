"""Every rank on a card waits for its own steps: one whose device fails within a replayed graph says so itself."""

import queue
from types import SimpleNamespace

from penstock.worker.__main__ import ResultSender, _forget, _with_heartbeat


def test_what_fails_on_a_device_behind_a_launch_is_told_by_its_own_rank_and_its_step_never_ends():
    ended, failed = [], queue.SimpleQueue()
    heartbeat = SimpleNamespace(end_step=lambda: ended.append("step"))
    results = ResultSender(_forget, failed.put, in_thread=True)

    def lost() -> None:
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    results.take(_with_heartbeat(lambda: None, heartbeat))
    results.take(_with_heartbeat(lost, heartbeat))
    assert "illegal memory access" in str(failed.get(timeout=60))
    assert ended == ["step"]
