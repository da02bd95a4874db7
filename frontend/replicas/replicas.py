"""The transport to several trees of one model, which looks like the transport to one.

Each request goes to the tree that `choice.py` names. If a tree dies, its requests go on in the others from what they
have said, and it is started again; while no tree is open, requests wait here. The transport is dead only if its trees
can't be started again.
"""

import asyncio
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from functools import partial

from ...protocol.errors import ClosedError, PenstockError
from ...protocol.memory_plan import MemoryPlan
from ...protocol.options.config import EngineConfig, sized
from ...protocol.stats import Stats
from ..models.model_files import ModelFiles
from ..requests.pending_request import PendingRequest
from ..requests.prompts import ParsedPrompt
from ..session.engine_transport import EngineTransport, Heir
from ..session.tree.going_on import end_cancelled
from .adapters import ReplicaAdapters
from .choice import Choice, Work
from .moves import Moves
from .prefix_keys import key_ends, prefix_keys
from .replica import Replica, ReplicaTransport, Start, starter
from .shares import shares_of
from .starts import Starts
from .totals import Life, Totals

Decode = Callable[[PendingRequest], "Future[ParsedPrompt]"]


class Replicas(EngineTransport):
    """Requests that wait for a tree are its own pending ones; all others are those of the trees' transports."""

    def __init__(self, config: EngineConfig, files: ModelFiles, shown: Sequence[str], decode_again: Decode) -> None:
        """`decode_again` decodes the media of a request whose tree has died."""
        super().__init__()
        self.config = config
        self.decode_again = decode_again
        # Held while requests get their tree, so that a request is in one place for whoever looks for it.
        self.turn = threading.RLock()
        self.choice = Choice(config.data_parallel_size)
        self._ends: Sequence[int] = ()  # lengths of the prefixes by which trees are chosen
        self.moves = Moves(self)
        self.starts = Starts(self, files)
        self._totals = Totals()
        self.replicas: list[Replica] = []
        try:
            start = self._starter(files, tuple(shown))
            for number, share in enumerate(shares_of(config)):
                self.replicas.append(Replica(number, share, start, self.choice))
        except BaseException:
            self._close_trees()
            raise
        self.adapters = ReplicaAdapters(self.replicas, self._is_used)

    def _starter(self, files: ModelFiles, shown: tuple[str, ...]) -> Start:
        return starter(files, shown)

    def wait_until_ready(self) -> MemoryPlan:
        try:
            plans = [self._ready(replica) for replica in self.replicas]
            plan = self.plan = min(plans, key=lambda plan: plan.max_model_len)
            # Where every token sees all others, and where nothing is shared, there are no prefixes to find.
            if self.config.enable_prefix_caching and not plan.has_whole_texts:
                self._ends = key_ends(self.config.block_size, plan.max_model_len)
            for replica, own in zip(self.replicas, plans):
                replica.hold_to(plan)
                self.open(replica, own)
        except BaseException:
            self.close()
            raise
        return plan

    def _ready(self, replica: Replica) -> MemoryPlan:
        try:
            return replica.transport.wait_until_ready()
        except PenstockError as error:
            given = self.config.kv_cache_memory
            is_share = given is not None and "kv_cache_memory" in str(error)
            share = f" The figures are one tree's, which has a part of kv_cache_memory={given:,}." if is_share else ""
            words = f"{sized(self.config)}: {self.name_of(replica)} could not be started. {error}{share}"
            raise type(error)(words) from error

    def name_of(self, replica: Replica) -> str:
        return f"tree {replica.number}"

    @property
    def is_ready(self) -> bool:
        return self.plan is not None

    def terminate(self) -> None:
        for replica in self.replicas:
            replica.transport.terminate()

    @property
    def _successor(self) -> Heir | None:
        """Who has the requests, if no tree is started again."""
        return self.heir if self.error is not None else None

    # --- requests ----------------------------------------------------------------------------------------------------

    def submit(self, requests: Sequence[PendingRequest]) -> None:
        if (heir := self._successor) is not None:
            heir.submit(self, requests)
            return
        self.check()
        if self.heir is not None:
            self.heir.prepare(requests)
        self.give(requests)

    def give(self, requests: Sequence[PendingRequest]) -> None:
        """Give requests to trees; they wait while none is open."""
        groups: dict[ReplicaTransport, list[PendingRequest]] = {}
        with self.turn:
            for request in requests:
                if (work := self._chosen(request)) is None:
                    self._begin([request])
                    continue
                transport = self.replicas[work.tree].transport
                transport.works[request.request_id] = work
                groups.setdefault(transport, []).append(request)
            if self.error is not None:
                # In its own thread: the heir has a lock that others hold while they give requests to us.
                threading.Thread(target=self._fail_all, args=(self.error,), daemon=True).start()
            elif self.is_closed:
                self._fail_all(ClosedError(self.closed_meanwhile))
        for transport, group in groups.items():
            transport.submit(group)
            if ended := [request for request in group if any(sample.has_ended for sample in request.progress)]:
                transport.end_samples(ended)

    def keep_waiting(self, requests: Sequence[PendingRequest]) -> None:
        self._begin(requests)

    def take_waiting(self, request_ids: Iterable[int]) -> list[PendingRequest]:
        """Those of the requests that still wait, which no longer do."""
        return self._forget(request_ids)

    def _chosen(self, request: PendingRequest) -> Work | None:
        prompt, params = request.prompt, request.prompt.params
        # Whoever wants something of every row of the prompt has them all computed.
        needs_all = prompt.pooled is not None or params.prompt_logprobs is not None
        keys = () if needs_all or not self._ends else prefix_keys(prompt, self._ends)
        most = 0 if prompt.pooled is not None else params.max_tokens or 0
        return self.choice.give(keys, self._ends, len(prompt.token_ids) // 4, most, params.n)

    def abort(self, requests: Iterable[PendingRequest]) -> None:
        requests = list(requests)
        with self.turn:
            self._forget(request.request_id for request in requests)
            for replica in self.replicas:
                replica.transport.abort(requests)
        if (heir := self._successor) is not None:
            heir.abort(self, requests)

    def cancel(self, requests: Iterable[PendingRequest]) -> None:
        requests = list(requests)
        for request in requests:
            request.is_cancelled = True  # first of all: its tree may die before it has ended them
        if (heir := self._successor) is not None:
            heir.cancel(self, requests)
            return
        self.check()
        with self.turn:
            for request in self._forget(request.request_id for request in requests):
                end_cancelled(request)
            for transport, group in self._by_tree(requests):
                with suppress(PenstockError):  # it is being closed, which ends them
                    transport.cancel(group)

    def end_samples(self, requests: Iterable[PendingRequest]) -> None:
        """`give` has done so."""

    def find(self, request_id: int) -> PendingRequest | None:
        with self.turn:
            every = (self._pending.get(request_id), *(each.transport.find(request_id) for each in self.replicas))
            return next((found for found in every if found is not None), None)

    def _by_tree(self, requests: Sequence[PendingRequest]) -> list[tuple[ReplicaTransport, list[PendingRequest]]]:
        transports = [replica.transport for replica in self.replicas]
        return [(each, own) for each in transports if (own := [one for one in requests if each.find(one.request_id)])]

    def _is_used(self, adapter: str) -> bool:
        with self.turn:
            every = [*self._pending.values(), *(one for each in self.replicas for one in each.transport.requests)]
        return any(request.prompt.params.lora_name == adapter for request in every)

    def _fail_all(self, error: PenstockError) -> None:
        if (heir := self._successor) is not None:
            heir.take_over(self, error)
        else:
            self._fail(list(self._pending), error)

    # --- the trees --------------------------------------------------------------------------------------------------

    def open(self, replica: Replica, plan: MemoryPlan) -> None:
        """Let a tree take requests, first those that wait for one."""
        transport = replica.transport
        transport.heir = self.moves
        transport.closed_meanwhile = self.closed_meanwhile
        transport.on_death = partial(self.starts.died, replica, transport)
        with self.turn:
            replica.open(plan)
            self.give(self.moves.ready_to_go(sorted(self._pending)))
        if transport.error is not None:  # it died before it could say so
            self.moves.take_over(transport, transport.error)
            self.starts.died(replica, transport, transport.error)

    def die(self, error: PenstockError) -> None:
        """No tree is started again."""
        self.error = error
        self._fail_all(error)
        self.on_death(error)

    def close(self) -> None:
        if self.is_closed or self.is_forked:
            return
        self.is_closed = True
        for replica in self.replicas:
            replica.transport.closed_meanwhile = self.closed_meanwhile
        self.starts.close()
        self._close_trees()
        self.on_close()
        self._fail_all(ClosedError(self.closed_meanwhile))

    def _close_trees(self) -> None:
        """Close all trees at the same time."""
        threads = [threading.Thread(target=replica.transport.close, daemon=True) for replica in self.replicas]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    # --- looking ----------------------------------------------------------------------------------------------------

    def ask_stats(self, sequence_ids: Sequence[int] = ()) -> "Future[Stats]":
        self.check()
        return self._totals.of([self._asked(replica, sequence_ids) for replica in self.replicas])

    def _asked(self, replica: Replica, sequence_ids: Sequence[int]) -> "tuple[Life, Future[Stats]] | None":
        with suppress(PenstockError):  # it has just died
            if replica.is_open:
                life = (replica.number, replica.num_lives)
                return life, replica.transport.ask_stats(sequence_ids)
        return None

    async def silent(self, seconds: float) -> list[str]:
        """Trees that are being started again aren't silent, as long as another is there."""
        self.check()
        opened = [replica for replica in self.replicas if replica.is_open]
        if not opened:
            return [self.name_of(replica) for replica in self.replicas]
        asked = (replica.transport.silent(seconds) for replica in opened)
        found = await asyncio.gather(*asked, return_exceptions=True)
        pairs = ((each, roles) for each, roles in zip(opened, found) if isinstance(roles, list))
        return [f"{self.name_of(replica)}: {role}" for replica, roles in pairs for role in roles]
