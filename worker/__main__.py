"""A worker's process: load, plan memory, allocate, then one step after another until told to stop.

The runner executes the plans; this file handles the sockets and the order of the start.
"""

import gc
import queue
import threading
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, Generic, TypeVar

from ..protocol.adapter_messages import AdapterOrder
from ..protocol.messages import Allocate, Allocated, Loaded, MaskFrame, StepPlan, Stop, WorkerInbox
from ..protocol.processes.child import Child, run_child
from ..protocol.processes.heartbeat import Heartbeat, WatchedInbox
from ..protocol.processes.sockets import Inbox, Outbox
from ..protocol.processes.trace import Trace
from ..protocol.ranks.nccl_failures import with_explanation
from ..protocol.stats import StartProgress
from ..protocol.wire import values
from .importing import no_collections


class Stopped(Exception):
    """A request to stop arrived while the worker waited for something else."""


class Plans:
    """The engine's messages, in order; a mask may arrive before or after the plans around it."""

    def __init__(self, inbox: Inbox[WorkerInbox]) -> None:
        self.inbox = inbox
        self._allocate: Allocate | None = None
        self._waiting: deque[StepPlan | AdapterOrder] = deque()
        self._masks: dict[int, MaskFrame] = {}

    def allocation(self) -> Allocate:
        """Receive the allocation, which arrives once, before all plans."""
        while self._allocate is None:
            self._receive()
        return self._allocate

    def next(self) -> StepPlan | AdapterOrder:
        while not self._waiting:
            self._receive()
        return self._waiting.popleft()

    def mask(self, step: int) -> MaskFrame:
        while step not in self._masks:
            self._receive()
        return self._masks.pop(step)

    def forget_masks(self, step: int) -> None:
        """Drop the masks that this rank didn't use."""
        self._masks = {later: frame for later, frame in self._masks.items() if later > step}

    def _receive(self) -> None:
        message = self.inbox.receive()
        if isinstance(message, Stop):
            raise Stopped
        if isinstance(message, MaskFrame):
            self._masks[message.step] = message
        elif isinstance(message, Allocate):
            self._allocate = message
        else:
            self._waiting.append(message)


Result = TypeVar("Result")


class ResultSender(Generic[Result]):
    """Sends step results to the engine, in order: at once on a CPU, from a thread that waits for each on a GPU.

    So the next plan is received, and its step launched, while the one before still runs.
    """

    def __init__(self, send: Callable[[Result], None], fail: Callable[[BaseException], None], in_thread: bool) -> None:
        """`in_thread`: a thread waits for the steps and passes its errors to `fail`."""
        self._send = send
        self._fail = fail
        self._launched: queue.SimpleQueue[Callable[[], Result]] | None = None
        if in_thread:
            self._launched = queue.SimpleQueue()
            threading.Thread(target=self._run, name="results", daemon=True).start()

    def take(self, finish: Callable[[], Result]) -> None:
        """Take the result of a step that was launched after all steps taken before."""
        if self._launched is None:
            self._send(finish())
        else:
            self._launched.put(finish)

    def _run(self) -> None:
        try:
            while True:
                self._send(self._launched.get()())  # type: ignore[union-attr]
        except BaseException as error:
            self._fail(error)


def main(child: Child) -> None:
    try:
        _work(child)
    except Exception as error:
        raise with_explanation(error)  # noqa: B904  # it has the error as its cause


def _work(child: Child) -> None:
    trace = Trace(child.launch.config.trace, child.role)
    trace.reached("messages")
    # Bound before the other modules are imported, so that the engine's messages can queue in it.
    heartbeat = Heartbeat.of(child.role, child.launch.heartbeats)
    plans = Plans(WatchedInbox[WorkerInbox](child.directory, f"worker{child.rank}", WorkerInbox, heartbeat))
    engine = Outbox(child.directory, "engine")

    with no_collections():
        from .start.start import Start
    trace.reached("imports")
    start = Start(child.launch, child.rank, child.directory)
    trace.reached("weights")
    try:
        engine.send(Loaded(child.rank, start.plan()))
        runner = start.runner(plans.allocation(), trace, partial(_report_capture, child))
        if child.launch.config.keeps_prefixes:
            start.open_disk(runner, engine.send, child.fail)
        if start.drafts:
            start.open_drafting(runner, engine.send)
        engine.send(Allocated(child.rank))
        trace.reached("memory")
        start.begin_background_work(runner)
        adapters = start.adapter_thread(engine.send)
        send: Callable[[Any], None] = engine.send if child.rank == 0 else _forget
        results: ResultSender[Any] = ResultSender(send, partial(_fail, child), in_thread=start.is_asynchronous)
        # Imported and loaded objects live as long as the process: exempt them from garbage collection.
        gc.freeze()
        while True:
            plan = plans.next()
            if isinstance(plan, AdapterOrder):
                if adapters is None:
                    raise ValueError("An adapter came to a worker that has no room for any.")
                adapters.take(plan)
                continue
            heartbeat.begin_step(_num_tokens(plan, runner.forward_pass.num_layers))
            finish = runner.launch(plan, plans.mask)
            if child.rank == 0:
                results.take(_with_heartbeat(finish, heartbeat))
            elif start.is_asynchronous:
                # A rank whose device fails, or waits for another's in a collective, says so itself.
                results.take(_with_heartbeat(start.device_end(), heartbeat))
            else:
                heartbeat.end_step()
            plans.forget_masks(plan.step)
    except Stopped:
        trace.flush()
        start.close()


def _num_tokens(plan: StepPlan, num_layers: int) -> int:
    layered = sum(each.num_tokens * (each.end_layer - each.first_layer) for each in plan.layered)
    return sum(values(plan.num_tokens)) + sum(values(plan.rooms)) + layered // num_layers


def _report_capture(child: Child, number: int, total: int) -> None:
    """Show the user how many steps have been captured."""
    if child.rank == 0:
        child.frontend.send(StartProgress("Capturing steps", number, total))


def _fail(child: Child, error: BaseException) -> None:
    child.fail(with_explanation(error))


def _forget(result: object) -> None:
    """The engine has rank 0's."""


def _with_heartbeat(finish: Callable[[], Result], heartbeat: Heartbeat) -> Callable[[], Result]:
    """Wait for the result, then mark the step as ended."""

    def finished() -> Result:
        result = finish()
        heartbeat.end_step()
        return result

    return finished


if __name__ == "__main__":
    run_child("worker", main)
