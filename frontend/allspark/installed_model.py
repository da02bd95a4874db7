"""One model of an `Engine`: its state, its process tree while it runs, and its requests.

Starting, stopping and releasing take turns; requests come and go meanwhile. A tree that dies leaves the model stopped,
with the cause; it can be started again.
"""

import threading
import time
import weakref
from collections.abc import Iterable
from contextlib import suppress
from enum import StrEnum
from typing import TYPE_CHECKING, Any, cast

from ...protocol.errors import LimitError, PenstockError
from ..session import open_model
from ..text.template_input import too_long
from .configuration.generation_keys import Generation
from .configuration.model_config import AsModelConfig
from .request_handle import RequestHandle
from .result_queue import ResultQueue
from .status import AsStatus, StatusError, denied, invalid_call, shutting_down, wrong_argument

if TYPE_CHECKING:
    from ..session.private import PrivateSession

# Requests of a model that have not ended, at most; DashInfer's queue takes a thousand.
_MOST_REQUESTS = 4096
# How long the ends of requests that were cancelled are waited for.
_DRAIN_SECONDS = 5.0


class ModelState(StrEnum):
    Initial = "Initial"
    Running = "Running"
    Stop = "Stop"
    Released = "Released"


class InstalledModel:
    def __init__(self, config: AsModelConfig, source: str, options: dict[str, Any]) -> None:
        self.name = config.model_name
        self.config = config
        self.source = source
        self.options = options  # of a tree
        self.session: PrivateSession | None = None  # while it runs, and of a tree that died until the next change
        self._starting: PrivateSession | None = None  # that isn't ready yet
        self._state = ModelState.Initial
        self._is_ending = False
        self._state_change = threading.Lock()  # held by whoever changes the state
        # Of what stands below. The collector may end the engine in a thread that holds it, hence reentrant.
        self._lock = threading.RLock()
        self._handles: weakref.WeakSet[RequestHandle] = weakref.WeakSet()  # that were not released
        self._unfinished: set[ResultQueue] = set()

    @property
    def state(self) -> ModelState:
        if self._state is ModelState.Running and self.death is not None:
            return ModelState.Stop
        return self._state

    @property
    def death(self) -> PenstockError | None:
        """The error that killed its tree."""
        session = self.session
        return session.transport.error if session is not None else None

    def running_session(self) -> "PrivateSession":
        """Raises if it isn't running."""
        session = self.session
        if session is None or self.state is not ModelState.Running:
            raise self._not_now("is not running")
        return session

    def _not_now(self, what: str) -> StatusError:
        died = f", since its processes have ended: {self.death}" if self.death is not None else ""
        return invalid_call(f"The model {self.name!r} {what}; its state is {self.state}{died}.")

    # --- its states ----------------------------------------------------------------------------------------------

    def start(self, threads: int | None) -> None:
        """Load the tree, with so many threads if its configuration names no number; returns when it is ready."""
        with self._state_change:
            if self.state not in (ModelState.Initial, ModelState.Stop):
                raise self._not_now("can't be started")
            self._state = self.state  # a death has made it Stop, which is known only as long as the dead tree is
            self._close_tree()
            self.session = self._ready_session(threads)
            self._state = ModelState.Running

    def _ready_session(self, threads: int | None) -> "PrivateSession":
        given = {"num_threads": threads} if threads and "num_threads" not in self.options else {}
        session = cast("PrivateSession", open_model(self.source, {**self.options, **given}))
        self._starting = session
        try:
            if self._is_ending:
                raise shutting_down()
            session.transport.closed_meanwhile = f"The model {self.name!r} was stopped while this request ran."
            session.wait_until_ready()
        except BaseException as error:
            session.transport.close()
            if self._is_ending and isinstance(error, PenstockError):
                raise shutting_down() from error
            raise
        finally:
            self._starting = None
        return session

    def stop(self) -> None:
        """End its requests, which keep what they have, and its processes."""
        with self._state_change:
            if self.state is not ModelState.Running:
                raise self._not_now("can't be stopped")
            self._stop()

    def release(self) -> None:
        """The same, for good: its handles are forgotten."""
        with self._state_change:
            if self._state is ModelState.Released:
                raise self._not_now("was released before")
            if self._state is ModelState.Running:
                self._stop()
            self._close_tree()
            with self._lock:
                self._state = ModelState.Released
                self._handles.clear()

    def prepare_end(self) -> None:
        """The engine ends: a start that is under way fails, and no other begins."""
        self._is_ending = True
        starting = self._starting
        if starting is not None and not starting.transport.is_ready:
            starting.transport.terminate()

    def end(self) -> None:
        """Release it, whatever its state is."""
        self.prepare_end()
        with suppress(StatusError):  # it was released before
            self.release()

    def end_at_once(self) -> None:
        """The same without waiting for what requests still have to say: the thread that hears them may be this one."""
        self.prepare_end()
        session = self.session
        if session is not None:
            session.transport.close()

    def _stop(self) -> None:
        with self._lock:
            self._state = ModelState.Stop
            unfinished = list(self._unfinished)
        deadline = time.monotonic() + _DRAIN_SECONDS
        try:
            for queue in unfinished:
                with suppress(PenstockError):  # the tree has died
                    queue.cancel()
            for queue in unfinished:
                queue.wait(max(0.0, deadline - time.monotonic()))
        finally:  # also where Ctrl-C ends the waiting
            self._close_tree()

    def _close_tree(self) -> None:
        session, self.session = self.session, None
        if session is not None:
            session.transport.close()

    # --- requests ------------------------------------------------------------------------------------------------

    def start_text(self, text: str, generation: Generation) -> RequestHandle:
        session = self.running_session()
        if not text:
            raise wrong_argument("The prompt is empty.")
        if len(text) > session.door.most_characters:
            raise LimitError(too_long(len(text), session.door.most_characters))
        return self.start_ids(session.tokenizer.encode(text), generation)

    def start_ids(self, ids: list[int], generation: Generation) -> RequestHandle:
        session = self.running_session()
        adapter = generation.params.lora_name
        if adapter is not None and adapter not in session.adapters.loaded:
            raise StatusError(AsStatus.ALLSPARK_LORA_NOT_FOUND, f"{self.name!r} has no adapter {adapter!r}.")
        on_gpu = session.plan is not None and session.plan.device != "cpu"
        queue = ResultQueue(len(ids), generation.num_top, on_gpu, self._ended)
        # The prompt is named, so that no list of numbers could pass for several prompts.
        prompt = {"prompt_token_ids": ids, "lora_name": adapter}
        stream = session.stream(prompt, generation.params_for(len(ids)), queue.hear)
        if not stream.has_to_wait:
            raise stream.refusal or wrong_argument("The request was refused.")
        queue.attach(stream)
        handle = RequestHandle(generation.name or stream.request_id, queue)
        self._let_in(handle)
        try:
            stream.submit()
        except PenstockError:
            self._forget(handle)
            raise
        if self._state is not ModelState.Running:  # whoever stopped it meanwhile found nothing to cancel
            with suppress(PenstockError):
                queue.cancel()
        return handle

    def _let_in(self, handle: RequestHandle) -> None:
        with self._lock:
            if self._state is not ModelState.Running:
                raise self._not_now("is not running")
            if len(self._unfinished) >= _MOST_REQUESTS:
                raise denied(f"{self.name!r} has {_MOST_REQUESTS:,} requests that have not ended. Ask again later.")
            self._unfinished.add(handle.queue)
            self._handles.add(handle)

    def _ended(self, queue: ResultQueue) -> None:
        with self._lock:
            self._unfinished.discard(queue)

    def _forget(self, handle: RequestHandle) -> None:
        with self._lock:
            self._unfinished.discard(handle.queue)
            self._handles.discard(handle)

    def stop_request(self, handle: RequestHandle) -> None:
        """End it; it keeps what it has. One that has ended already is left alone."""
        self._require(handle)
        with suppress(PenstockError):  # its tree has died, which ends it
            handle.queue.cancel()
        if not handle.queue.wait(_DRAIN_SECONDS):  # its step takes long
            handle.queue.interrupt("The request was stopped.")

    def release_request(self, handle: RequestHandle) -> None:
        with self._lock:
            self._require(handle)
            self._handles.discard(handle)
            self._unfinished.discard(handle.queue)
        handle.queue.interrupt("The request was released.")

    def sync_request(self, handle: RequestHandle | None) -> None:
        """Wait for its end; without a handle, for that of all the requests that the model has now."""
        if handle is not None:
            self._require(handle)
        with self._lock:
            awaited: Iterable[ResultQueue] = list(self._unfinished) if handle is None else [handle.queue]
        for queue in awaited:
            queue.wait()

    def _require(self, handle: RequestHandle) -> None:
        if handle not in self._handles:
            raise invalid_call(f"The model {self.name!r} has no such request: it was released, or is another model's.")
