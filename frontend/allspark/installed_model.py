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

from ...protocol.errors import ClosedError, LimitError, PenstockError
from ..session import open_model
from ..text.template_input import too_long
from .generation_keys import Generation
from .model_config import AsModelConfig
from .request_handle import RequestHandle
from .result_queue import ResultQueue
from .status import AsStatus, StatusError, denied, invalid_call, wrong_argument

if TYPE_CHECKING:
    from ..session.private import PrivateSession

# Requests of a model that have not ended, at most; DashInfer's queue takes a thousand.
_MOST_REQUESTS = 4096
# How long requests that were told to end are waited for.
_LAST_WORDS_SECONDS = 5.0


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
        self.session: PrivateSession | None = None  # while it runs, and of a tree that died until the next turn
        self._state = ModelState.Initial
        self._is_ending = False
        self._turn = threading.Lock()  # of those who change the state
        self._lock = threading.Lock()  # of what stands below
        self._handles: weakref.WeakSet[RequestHandle] = weakref.WeakSet()  # that were not released
        self._unfinished: set[ResultQueue] = set()

    @property
    def state(self) -> ModelState:
        if self._state is ModelState.Running and self.death is not None:
            return ModelState.Stop
        return self._state

    @property
    def death(self) -> PenstockError | None:
        """What ended its tree from without."""
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
        with self._turn:
            if self.state not in (ModelState.Initial, ModelState.Stop):
                raise self._not_now("can't be started")
            self._close_tree()
            given = {"num_threads": threads} if threads and "num_threads" not in self.options else {}
            session = cast("PrivateSession", open_model(self.source, {**self.options, **given}))
            self.session = session
            session.transport.closed_meanwhile = f"The model {self.name!r} was stopped while this request ran."
            try:
                if self._is_ending:
                    raise ClosedError("The engine is shutting down.")
                session.wait_until_ready()
            except BaseException:
                session.transport.close()
                self.session = None
                raise
            self._state = ModelState.Running

    def stop(self) -> None:
        """End its requests, which keep what they have, and its processes."""
        with self._turn:
            if self.state is not ModelState.Running:
                raise self._not_now("can't be stopped")
            self._stop()

    def release(self) -> None:
        """The same, for good: its handles are forgotten."""
        with self._turn:
            if self._state is ModelState.Released:
                raise self._not_now("was released before")
            if self._state is ModelState.Running:
                self._stop()
            self._close_tree()
            with self._lock:
                self._state = ModelState.Released
                self._handles.clear()

    def abandon(self) -> None:
        """Release it, whatever it is doing: a start that is under way fails."""
        self._is_ending = True
        session = self.session
        if self._turn.locked() and session is not None and not session.transport.tree.is_ready:
            session.transport.tree.terminate()
        with suppress(StatusError):
            self.release()

    def _stop(self) -> None:
        with self._lock:
            self._state = ModelState.Stop
            unfinished = list(self._unfinished)
        deadline = time.monotonic() + _LAST_WORDS_SECONDS
        for queue in unfinished:
            with suppress(PenstockError):  # the tree has died
                queue.cancel()
        for queue in unfinished:
            queue.wait(max(0.0, deadline - time.monotonic()))
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
        prompt = {"prompt_token_ids": ids}
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
        handle.queue.wait(_LAST_WORDS_SECONDS)

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
