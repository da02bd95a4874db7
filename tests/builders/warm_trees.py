"""Sessions over process trees that stay warm: what an `Engine` or an `LLM` opens is a tree that is lent.

The processes are real. Closing such a session drops its requests and gives the tree back, so that a test of thousands
of starts and stops takes the time of the calls alone.
"""

import copy
import itertools
import os
import queue
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

from builders.watching import wait_until

from penstock.frontend import llm
from penstock.frontend.allspark import installed_model
from penstock.frontend.console import logs
from penstock.frontend.console.start_table import start_words
from penstock.frontend.requests.pending_request import PendingRequest
from penstock.frontend.session import opening
from penstock.frontend.session.private import PrivateSession
from penstock.frontend.session.session import Session
from penstock.frontend.session.transport import Transport
from penstock.protocol.errors import AdapterError, ClosedError, OutOfMemoryError, PenstockError
from penstock.protocol.options.config import EngineConfig
from penstock.protocol.options.foreign_options import notices
from penstock.protocol.parameters.sampling import SamplingParams
from penstock.protocol.stats import Stats

SETTINGS = {
    "load_format": "stand-in", "max_model_len": 256, "num_gpu_blocks_override": 256, "quiet": True,
    "enable_lora": True, "max_loras": 2, "max_num_seqs": 16,
}  # fmt: skip


class WarmTransport(Transport[PendingRequest]):
    """The way to a tree for the time that it is lent."""

    def __init__(self, trees: "WarmTrees | LentTrees", tree: PrivateSession) -> None:
        super().__init__()
        self.closed_meanwhile = "closed"
        self.inner = tree.transport
        self.tree = SimpleNamespace(is_ready=True)
        self.in_use = threading.Lock()
        self._trees = trees
        self._lent = tree

    def submit(self, requests: Sequence[PendingRequest]) -> None:
        self.check()
        self._begin(requests)
        self.inner.submit(requests)
        if self.is_closed:  # meanwhile, after all requests that were known then had been dropped
            self._drop_all(ClosedError(self.closed_meanwhile))

    def abort(self, requests: Iterable[PendingRequest]) -> None:
        self.inner.abort(self._forget(request.request_id for request in requests))

    def cancel(self, requests: Iterable[PendingRequest]) -> None:
        self.check()
        self.inner.cancel(requests)

    def stats(self) -> Stats:
        self.check()
        return self.inner.stats()

    def close(self) -> None:
        with self._lock:
            if self.is_closed:
                return
            self.is_closed = True
        self._drop_all(ClosedError(self.closed_meanwhile))
        with self.in_use:
            self._trees.take_back(self._lent)

    def _drop_all(self, error: PenstockError) -> None:
        dropped = [request for request in self._forget(list(self._pending)) if not request.is_finished]
        self.inner.abort(dropped)
        for request in dropped:
            request.error = error
            request.tell()


class WarmAdapters:
    """A tree's adapters, for the time that it is lent; giving it back waits for what is under way."""

    def __init__(self, transport: WarmTransport, tree: PrivateSession) -> None:
        self._transport = transport
        self._inner = tree.adapters

    @property
    def loaded(self) -> dict[str, str]:
        return self._inner.loaded

    def load(self, name: str, path: Any) -> None:
        with self._transport.in_use:
            self._transport.check()
            self._inner.load(name, path)

    def unload(self, name: str) -> None:
        with self._transport.in_use:
            self._transport.check()
            self._inner.unload(name)

    def names(self) -> list[str]:
        return self._inner.names()

    def folders(self) -> dict[str, str]:
        return self._inner.folders()


class WarmSession(Session[PendingRequest]):
    def __init__(self, trees: "WarmTrees", tree: PrivateSession) -> None:
        self.config, self.is_quiet, self.plan, self.daemon = tree.config, True, tree.plan, None
        self._tree = tree
        self.door, self.tokenizer = tree.door, tree.tokenizer
        self.transport = WarmTransport(trees, tree)
        self.adapters = WarmAdapters(self.transport, tree)

    @property
    def tree_config(self) -> EngineConfig:
        return self._tree.tree_config

    @property
    def model_folders(self) -> tuple[Path, Path]:
        return self._tree.model_folders

    def wait_until_ready(self) -> None: ...

    def render(self, *arguments: Any, **options: Any) -> str:
        raise NotImplementedError

    def render_batch(self, *arguments: Any, **options: Any) -> list[Any]:
        raise NotImplementedError


class WarmTrees:
    def __init__(self, model: Path, count: int) -> None:
        self._trees = [PrivateSession.open(model, dict(SETTINGS)) for _ in range(count)]
        for tree in self._trees:
            tree.wait_until_ready()
        self._free = list(self._trees)
        self._lock = threading.Lock()

    def lend(self, model: Any, options: dict[str, Any]) -> WarmSession:
        with self._lock:
            if not self._free:
                raise OutOfMemoryError("All trees are lent.")
            return WarmSession(self, self._free.pop())

    def take_back(self, tree: PrivateSession) -> None:
        for name in tree.adapters.names():
            wait_until(lambda name=name: is_unloaded(tree, name), f"nobody uses {name}")
        with self._lock:
            self._free.append(tree)

    def check_that_nothing_is_left(self) -> None:
        """No tree is lent, and none has a request or a block in use."""
        assert len(self._free) == len(self._trees), "a tree was not given back"
        for tree in self._trees:
            wait_until(lambda tree=tree: is_idle(tree.transport.stats()), "the tree is idle")
            assert not tree.transport._pending and not tree.adapters.names()

    @contextmanager
    def in_place(self) -> Iterator["WarmTrees"]:
        """Within it the models of every `Engine` run on these trees."""
        with mock.patch.object(installed_model, "open_model", self.lend):
            yield self

    def close(self) -> None:
        for tree in self._trees:
            tree.transport.close()


class LentTrees:
    """A tree for each model and set of options that an `LLM` was opened with; it is lent to one after another.

    Options `alike` make no difference to what is tested; they are checked, and their trees are the same. `own` are the
    options of every tree, whatever was asked for.
    """

    def __init__(self, alike: Iterable[str] = (), **own: Any) -> None:
        self._alike = {"quiet", *alike}
        self._own = own
        self._trees: dict[str, PrivateSession] = {}

    def lend(self, model: Any, options: dict[str, Any]) -> PrivateSession:
        EngineConfig.from_options(model, **options)
        for notice in notices(options):
            logs.say(notice, quiet=logs.is_quiet(bool(options.get("quiet"))))
        chosen = {name: value for name, value in sorted(options.items()) if name not in self._alike} | self._own
        faults = os.environ.get("PENSTOCK_FAULTS")  # which a worker reads when it starts
        key = repr((os.path.realpath(model) if os.path.exists(model) else model, chosen, faults))
        if key in self._trees and self._trees[key].transport.error is not None:
            del self._trees[key]
        if key not in self._trees:
            self._trees[key] = PrivateSession.open(model, {**chosen, "quiet": True})
            self._trees[key].wait_until_ready()
            self._trees[key].door.numbers = itertools.count(1 << 20)  # those of a session begin with 0
        return self._lent(self._trees[key], is_quiet=logs.is_quiet(bool(options.get("quiet"))))

    def _lent(self, tree: PrivateSession, *, is_quiet: bool) -> PrivateSession:
        session = copy.copy(tree)
        session.is_quiet = is_quiet
        session.transport = WarmTransport(self, tree)
        session.door = copy.copy(tree.door)
        session.door.numbers, session.door._seeds = itertools.count(), itertools.count()
        table = start_words(tree.config, tree.plan, logs.columns(), is_verbose=logs.is_verbose())
        session.wait_until_ready = lambda: logs.say(table, quiet=is_quiet)
        return session

    def take_back(self, tree: PrivateSession) -> None:
        """Whoever comes next finds it idle, and nothing of a request with the same number is still on its way: what a
        later request is told comes behind it."""
        if tree.transport.error is None and not tree.transport.is_closed:
            wait_until(lambda: is_idle(tree.transport.stats()), "the tree is idle")
            arrived: queue.SimpleQueue[PendingRequest] = queue.SimpleQueue()
            with tree.stream([5], SamplingParams(max_tokens=1), arrived.put) as stream:
                while not stream.is_over:
                    if stream.has_to_wait:  # a model that gives numbers refuses it at once
                        arrived.get(timeout=60)
                    stream.poll()

    def is_busy(self) -> bool:
        """Whether any of them computes an answer."""
        return any(tree.transport.stats().running for tree in list(self._trees.values()) if tree.plan is not None)

    @contextmanager
    def in_place(self) -> Iterator["LentTrees"]:
        """Within it each `LLM`, `AsyncLLM` and model of an `Engine` runs on these trees."""
        with ExitStack() as patches:
            for module in (llm, opening, installed_model):
                patches.enter_context(mock.patch.object(module, "open_model", self.lend))
            yield self

    def close(self) -> None:
        for tree in self._trees.values():
            tree.transport.close()


def is_idle(stats: Stats) -> bool:
    return (stats.running, stats.waiting, stats.free_blocks) == (0, 0, stats.blocks)


def is_unloaded(tree: PrivateSession, name: str) -> bool:
    try:
        tree.adapters.unload(name)
    except AdapterError as error:
        return error.reason != "busy"
    return True
