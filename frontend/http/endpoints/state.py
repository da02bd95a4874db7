"""What there is and how it does: the list of models, health, figures."""

import asyncio
from contextlib import suppress

from msgspec import UNSET

from ....protocol.errors import PenstockError
from ....protocol.messages import Stats
from ..endpoint import Call
from ..errors import ApiError
from ..models import Card, UnknownModel, unknown_model
from ..reply import Reply
from ..schemas.others import Health, ModelCard, ModelList

# How long processes have to answer whether they are there, and engines to tell their figures.
_ANSWER_SECONDS, _FIGURES_SECONDS = 5.0, 2.0


async def models(call: Call, body: None) -> Reply:
    return Reply.of(ModelList(data=[_as_told(card) for card in await call.server.models.listing()]))


async def model(call: Call, body: None) -> Reply:
    cards = await call.server.models.listing()
    for card in cards:
        if card.name == call.named:
            return Reply.of(_as_told(card))
    raise UnknownModel(unknown_model(call.named, [card.name for card in cards]))


def _as_told(card: Card) -> ModelCard:
    return ModelCard(
        id=card.name,
        created=card.created,
        is_loaded=card.is_loaded,
        max_model_len=UNSET if card.max_model_len is None else card.max_model_len,
        parent=UNSET if card.parent is None else card.parent,
    )


async def health(call: Call, body: None) -> Reply:
    """Every process of every loaded model answers this very question; a step that is running may end first."""
    try:
        found = await asyncio.wait_for(call.server.models.silent(_ANSWER_SECONDS), 2 * _ANSWER_SECONDS)
    except TimeoutError:
        raise ApiError(503, "A model is still being loaded.", retry_after=2) from None
    except PenstockError:
        raise ApiError(503, "A model's processes have ended; the log says why.", retry_after=2) from None
    if silent := {name: roles for name, roles in found.items() if roles}:
        words = "; ".join(f"{name}: {', '.join(roles)}" for name, roles in silent.items())
        raise ApiError(503, f"Processes do not answer: {words}.", retry_after=2)
    return Reply.of(Health(status="ok", models=dict.fromkeys(found, "ok")))


async def metrics(call: Call, body: None) -> Reply:
    """What the server knows by itself is told even where an engine has died, or says nothing."""
    engines: dict[str, Stats] = {}
    with suppress(TimeoutError, PenstockError):
        engines = await asyncio.wait_for(call.server.models.stats(), _FIGURES_SECONDS)
    text = call.server.metrics.text(engines, call.server.places.waiting)
    return Reply(text.encode(), b"text/plain; version=0.0.4; charset=utf-8")
