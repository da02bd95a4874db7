"""What there is and how it does: the list of models, health, figures."""

import asyncio

from msgspec import UNSET

from ....protocol.errors import PenstockError
from ....protocol.messages import Stats
from ..endpoint import Call
from ..errors import ApiError
from ..models import Card, UnknownModel
from ..reply import Reply
from ..schemas.others import Health, ModelCard, ModelList

_HEALTH_SECONDS = 5.0


async def models(call: Call, body: None) -> Reply:
    return Reply.of(ModelList(data=[_as_told(card) for card in await call.server.models.listing()]))


async def model(call: Call, body: None) -> Reply:
    for card in await call.server.models.listing():
        if card.name == call.named:
            return Reply.of(_as_told(card))
    raise UnknownModel(f"There is no model {call.named!r} here; /v1/models lists what there is.")


def _as_told(card: Card) -> ModelCard:
    return ModelCard(
        id=card.name,
        created=card.created,
        is_loaded=card.is_loaded,
        max_model_len=UNSET if card.max_model_len is None else card.max_model_len,
        parent=UNSET if card.parent is None else card.parent,
    )


async def health(call: Call, body: None) -> Reply:
    return Reply.of(Health(status="ok", models=dict.fromkeys(await _asked(call), "ok")))


async def metrics(call: Call, body: None) -> Reply:
    """What the server knows by itself is told even where an engine has died."""
    try:
        engines = await _asked(call)
    except ApiError:
        engines = {}
    text = call.server.metrics.text(engines, call.server.places.waiting)
    return Reply(text.encode(), b"text/plain; version=0.0.4; charset=utf-8")


async def _asked(call: Call) -> dict[str, Stats]:
    """Of every loaded model, by its engine itself."""
    try:
        return await asyncio.wait_for(call.server.models.stats(), _HEALTH_SECONDS)
    except TimeoutError:
        raise ApiError(503, f"A model's engine has not answered for {_HEALTH_SECONDS:g} s.") from None
    except PenstockError:
        raise ApiError(503, "A model's processes have ended; the log says why.", retry_after=2) from None
