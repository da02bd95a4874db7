"""/api/tags, /api/show, /api/ps and /api/version: the served models, in the form of Ollama's clients."""

import hashlib
from datetime import UTC, datetime

import msgspec

from .... import __version__
from ....protocol.files.model_file import read_model_settings
from ..answers.errors import ApiError
from ..answers.reply import Reply
from ..endpoint import Call
from ..models import ModelNotServedError, ServedName, unknown_model
from ..schemas.ollama import (
    LoadedTag,
    LoadedTags,
    ModelDetails,
    OllamaVersion,
    ShownModel,
    ShowRequest,
    TaggedModel,
    TagList,
)
from .ollama import served_name, tagged_name

# The version of Ollama whose API this is. Clients refuse versions that lack what they use.
API_VERSION = "0.13.0"
# Models leave when their memory is needed, which nobody knows in advance.
_NEVER = "9999-12-31T23:59:59Z"


async def tags(call: Call, body: None) -> Reply:
    return Reply.of(TagList(models=[_tag(card) for card in await call.server.models.listing()]))


async def loaded(call: Call, body: None) -> Reply:
    cards = [card for card in await call.server.models.listing() if card.is_loaded]
    return Reply.of(LoadedTags(models=[_loaded_tag(card) for card in cards]))


async def show(call: Call, request: ShowRequest) -> Reply:
    given = request.model or request.name
    if not given:
        raise ApiError(400, "The body needs model, a name from /api/tags.", param="model")
    name, cards = await served_name(call, given) or "", await call.server.models.listing()
    card = next((card for card in cards if card.name == name), None)
    if card is None:
        raise ModelNotServedError(unknown_model(name, [card.name for card in cards]))
    details = _details(card)
    info: dict[str, object] = {"general.architecture": details.family, "general.basename": card.name}
    if card.max_model_len is not None:
        info[f"{details.family}.context_length"] = card.max_model_len
    modified_at = _time(card)
    return Reply.of(
        ShownModel(details=details, model_info=info, capabilities=_capabilities(card), modified_at=modified_at)
    )


async def version(call: Call, body: None) -> Reply:
    return Reply.of(OllamaVersion(version=API_VERSION, penstock=__version__))


def _tag(card: ServedName) -> TaggedModel:
    plan = None if card.session is None else card.session.plan
    return TaggedModel(
        name=(name := tagged_name(card.name)),
        model=name,
        modified_at=_time(card),
        digest=hashlib.sha256(card.name.encode()).hexdigest(),  # tells entries apart; some clients cut it
        size=0 if plan is None else plan.weight_bytes,
        details=_details(card),
        capabilities=_capabilities(card),
    )


def _loaded_tag(card: ServedName) -> LoadedTag:
    fields = msgspec.structs.asdict(_tag(card))
    return LoadedTag(**fields, context_length=card.max_model_len or 0, expires_at=_NEVER)


def _time(card: ServedName) -> str:
    return datetime.fromtimestamp(card.created, UTC).isoformat().replace("+00:00", "Z")


def _details(card: ServedName) -> ModelDetails:
    if card.session is None:
        return ModelDetails()
    config = read_model_settings(card.session.files.folder / "config.json")
    family = str(config.get("model_type") or "")
    return ModelDetails(family=family, families=[family] if family else None)


def _capabilities(card: ServedName) -> list[str]:
    """Say what the model can do; of one that isn't loaded only that it completes texts."""
    if (session := card.session) is None:
        return ["completion"]
    if session.pooled is not None:
        return ["embedding"] if session.pooled.task == "embed" else []
    parsings = session.parsings
    can = {
        "vision": "image" in session.media_kinds,
        "tools": parsings.calls_of_chats is not None,
        "thinking": parsings.thoughts_of_chats is not None,
    }
    return ["completion", *(name for name, is_there in can.items() if is_there)]
