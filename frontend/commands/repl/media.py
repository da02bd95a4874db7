"""Pictures and videos of a chat: read from files that a command names, with what is told of each.

A message holds the file itself as `data:` URL. So a conversation that is saved is complete, whatever becomes of the
file, and `LLM.chat` and the web page take it as it is.
"""

import mimetypes
import os
from base64 import b64encode
from typing import Any, NamedTuple

from ....protocol.errors import RequestError
from ....protocol.media import MediumKind
from ...llm import LLM
from ...requests.encoded_media import EncodedMedium
from ...requests.media_sources import encoded
from .files import unquoted


class AddedMedium(NamedTuple):
    part: dict[str, Any]  # of a message
    told: str  # what the person reads of it


def named_file(argument: str) -> tuple[str, str]:
    """A file's name and the text behind it. A name without quotes may have spaces if there is a file of that name."""
    if argument[:1] in ("'", '"') and (end := argument.find(argument[0], 1)) > 0:
        return unquoted(argument[: end + 1]), argument[end + 1 :].strip()
    words = argument.split(" ")
    names = [" ".join(words[:count]) for count in range(len(words), 0, -1)]
    name = next((each for each in names if os.path.isfile(os.path.expanduser(each))), words[0])
    return name, argument[len(name) :].strip()


def added_medium(llm: LLM, kind: MediumKind, name: str) -> AddedMedium:
    """A file of the person's; raises `RequestError` where the model can't be asked about it."""
    if not llm._session.sees:
        raise RequestError("This model sees no pictures and no videos; /model NAME goes on with one that does.")
    medium = encoded(kind, name, may_open=True)
    told = f"{os.path.basename(name)}: {_size(len(medium.data))}{_tokens(llm, medium)}"
    media_type = mimetypes.guess_type(name)[0] or ""
    media_type = media_type if media_type.startswith(f"{kind}/") else "application/octet-stream"
    url = f"data:{media_type};base64,{b64encode(medium.data).decode()}"
    return AddedMedium({"type": f"{kind}_url", f"{kind}_url": {"url": url}}, told)


def _tokens(llm: LLM, medium: EncodedMedium) -> str:
    """How many it takes; a daemon's client knows them once it has asked."""
    sight = getattr(llm._session, "sight", None)
    if sight is None:
        return ""
    [decoded] = sight.read([medium])
    if isinstance(decoded, RequestError):
        raise decoded
    return f", {sight.family.num_rows(decoded):,} tokens"


def _size(count: int) -> str:
    return f"{count:,} bytes" if count < 10_000 else f"{count / 1000:,.0f} KB"
