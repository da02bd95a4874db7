"""The list of models, their health, metrics, and the caller's own running requests."""

import asyncio
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import chain
from typing import Literal

import msgspec
from msgspec import UNSET, UnsetType

from ....protocol.errors import PenstockError
from ....protocol.parameters.sampling import DRAW, PENALTIES, SamplingParams
from ....protocol.stats import Stats
from ...replicas.totals import total
from ...session.private import PrivateSession
from ..answers.errors import without_paths
from ..answers.reply import Reply
from ..endpoint import Call, Server
from ..metrics import HttpFigures
from ..models import ModelNotServedError, ModelState, ServedName, unknown_model
from ..schemas.others import (
    Alive,
    Architecture,
    Done,
    Fault,
    Health,
    LastError,
    ModelCard,
    ModelList,
    ModelLoad,
    ModelName,
    RequestList,
    ServerLoad,
    StoppedRequest,
)

# How long processes may take to answer a health check, and engines to give their statistics.
_ANSWER_SECONDS, _FIGURES_SECONDS = 5.0, 2.0
# What models give that write no text, in the words of OpenRouter.
GIVEN = {"embed": "embeddings", "classify": "classes"}
# States of models that will answer later.
_COMING = ("loading", "restarting")


async def models(call: Call, body: None) -> Reply:
    cards = [_model_card(card) for card in await call.server.models.listing()]
    ends = (cards[0].id, cards[-1].id) if cards else (None, None)
    return Reply.of(ModelList(data=cards, first_id=ends[0], last_id=ends[1]))


async def model(call: Call, body: None) -> Reply:
    cards = await call.server.models.listing()
    for card in cards:
        if card.name == call.named:
            return Reply.of(_model_card(card))
    raise ModelNotServedError(unknown_model(call.named, [card.name for card in cards]))


def _model_card(card: ServedName) -> ModelCard:
    return ModelCard(
        id=card.name,
        created=card.created,
        created_at=datetime.fromtimestamp(card.created, UTC).isoformat(),
        display_name=card.name,
        is_loaded=card.is_loaded,
        max_model_len=UNSET if card.max_model_len is None else card.max_model_len,
        parent=UNSET if card.parent is None else card.parent,
        default_parameters=UNSET if card.defaults is None else _numbers(card.defaults),
        architecture=UNSET if card.session is None else _architecture(card.session),
    )


def _architecture(session: PrivateSession) -> Architecture:
    gives = "text" if session.pooled is None else GIVEN[session.pooled.task]
    return Architecture(input_modalities=["text", *session.media_kinds], output_modalities=(gives,))


def _numbers(defaults: SamplingParams) -> dict[str, float]:
    """Return the defaults that clients show next to their own fields."""
    return {name: getattr(defaults, name) for name in (*DRAW, *PENALTIES)}


async def load(call: Call, body: ModelName) -> Reply:
    async with call.server.models.lease(body.model):
        return Reply.of(Done())


async def unload(call: Call, body: ModelName) -> Reply:
    call.server.models.unload(body.model)
    return Reply.of(Done())


async def ping(call: Call, body: None) -> Reply:
    """For monitors that restart a stuck server, but should not restart one that is loading."""
    return Reply.of(Alive(status="ok"))


async def ready(call: Call, body: None) -> Reply:
    """Like health, but nobody is asked, so that it answers at once."""
    return _reply_of(call.server.models.states())


async def health(call: Call, body: None) -> Reply:
    """Ask every process of every loaded model; a running step may end before they answer."""
    models = call.server.models
    try:
        found = await asyncio.wait_for(models.silent(_ANSWER_SECONDS), 2 * _ANSWER_SECONDS)
    except TimeoutError:
        ready = [name for name, each in models.states().items() if each.state == "ready"]
        found = {name: ["its processes"] for name in ready}
    states = models.states()
    silent = {name: roles for name, roles in found.items() if roles}
    if silent:
        words = "; ".join(f"{name}: {', '.join(roles)}" for name, roles in silent.items())
        return _unwell("silent", f"Processes do not answer: {words}.", states, silent)
    return _reply_of(states)


def _reply_of(states: Mapping[str, ModelState]) -> Reply:
    if failed := [name for name, each in states.items() if each.state == "failed"]:
        words = " ".join(f"{name} could not be loaded: {_without_paths(states[name].reason)}" for name in failed)
        return _unwell("failed", words, states)
    if loading := [name for name, each in states.items() if each.state in _COMING]:
        return _unwell("loading", f"Loading {', '.join(loading)}.", states)
    return Reply.of(Health(status="ok", models=_words(states), last_errors=_last_errors(states)))


def _unwell(
    status: Literal["loading", "failed", "silent"],
    words: str,
    states: Mapping[str, ModelState],
    silent: Collection[str] = (),
) -> Reply:
    """A 503 with an error, which llama.cpp's clients look for, and with every model's state."""
    faults = {name: each for name, each in states.items() if each.reason and each.state in ("failed", *_COMING)}
    body = Health(
        status=status,
        models=_words(states, silent),
        reasons={name: _without_paths(each.reason) for name, each in faults.items()} or UNSET,
        last_errors=_last_errors(states),
        error=Fault(message=words, type="server_error", code=503),
    )
    return Reply(msgspec.json.encode(body), status=503, headers=[(b"retry-after", b"2")])


def _words(states: Mapping[str, ModelState], silent: Collection[str] = ()) -> dict[str, str]:
    names = {"ready": "ok"}
    return {name: "silent" if name in silent else names.get(each.state, each.state) for name, each in states.items()}


def _last_errors(states: Mapping[str, ModelState]) -> dict[str, LastError] | UnsetType:
    found = {name: each for name, each in states.items() if each.last_error}
    return {
        name: LastError(message=_without_paths(each.last_error), time=int(each.last_error_time))
        for name, each in found.items()
    } or UNSET


def _without_paths(reason: str) -> str:
    """Write the reason on one line, without paths: no reply reveals where a model is stored."""
    return " ".join(without_paths(reason).split())


@dataclass(frozen=True, slots=True)
class Report:
    """How a server, or several that look like one, are doing."""

    engines: dict[str, Stats]  # by model
    http: HttpFigures
    num_active: int  # requests over HTTP that are being answered
    stored: dict[str, int] = field(default_factory=dict)  # files and batches

    @classmethod
    async def of(cls, server: Server) -> "Report":
        """The server's own figures even if an engine has died or doesn't answer."""
        engines: dict[str, Stats] = {}
        with suppress(TimeoutError, PenstockError):
            engines = await asyncio.wait_for(server.models.stats(), _FIGURES_SECONDS)
        http, num_active = server.metrics.figures(server.concurrency.waiting), len(server.active_requests)
        return cls(engines, http, num_active, server.stored.figures() if server.stored is not None else {})

    @classmethod
    def total(cls, each: "Sequence[Report]") -> "Report":
        """Join the reports of several servers that look like one: the trees of all are those of its models."""
        engines = {}
        for model in dict.fromkeys(chain.from_iterable(report.engines for report in each)):
            found = [report.engines[model] for report in each if model in report.engines]
            engines[model] = total(list(chain.from_iterable(stats.replicas or [stats] for stats in found)))
        http = HttpFigures.total(report.http for report in each)
        return cls(engines, http, sum(report.num_active for report in each))

    def load(self) -> Reply:
        loads = [
            _load_of(name, rank, each)
            for name, stats in self.engines.items()
            for rank, each in enumerate(stats.replicas or [stats])
        ]
        count = 1 + max((load.dp_rank for load in loads), default=0)
        now = datetime.now(UTC).isoformat()
        return Reply.of(ServerLoad(server_load=self.num_active, timestamp=now, dp_rank_count=count, loads=loads))

    def metrics(self) -> Reply:
        return Reply(self.http.text(self.engines, self.stored).encode(), b"text/plain; version=0.0.4; charset=utf-8")


async def server_load(call: Call, body: None) -> Reply:
    return (await Report.of(call.server)).load()


async def metrics(call: Call, body: None) -> Reply:
    return (await Report.of(call.server)).metrics()


def _load_of(model: str, rank: int, stats: Stats) -> ModelLoad:
    return ModelLoad(
        model=model,
        num_running_reqs=stats.running,
        num_waiting_reqs=stats.waiting,
        num_total_reqs=stats.running + stats.waiting,
        max_running_requests=stats.num_slots,
        num_used_tokens=(stats.blocks - stats.free_blocks) * stats.block_size,
        max_total_num_tokens=stats.blocks * stats.block_size,
        token_usage=stats.kv_usage,
        cache_hit_rate=stats.cached_tokens / max(stats.prompt_tokens, 1),
        dp_rank=rank,
    )


async def requests(call: Call, body: None) -> Reply:
    return Reply.of(RequestList(data=await call.server.active_requests.of(call.active_request.owner)))


async def stop(call: Call, body: None) -> Reply:
    call.server.active_requests.find(call.named, call.active_request.owner).stop()
    return Reply.of(StoppedRequest(id=call.named))
