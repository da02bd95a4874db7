"""What becomes of a request whose tree has died, whoever is the tree's heir.

It goes on in another tree from the tokens that its samples have said, with the same bits. A request that is computed at
one death after another may be their cause, so it fails after a few.
"""

from collections.abc import Iterable
from concurrent.futures import Future
from typing import Protocol

from ....protocol.errors import EngineDeadError, PenstockError, RequestError
from ....protocol.messages import Delta
from ...requests.door import Door
from ...requests.pending_request import PendingRequest
from ...requests.prompts import ParsedPrompt
from ...requests.sample_progress import STARTED_AGAIN
from ..threads import ModelThreads


class MediaSession(Protocol):
    """What decodes media: a session."""

    threads: ModelThreads
    door: Door


# An answer that isn't streamed brings its tokens this often, so that it can go on from them.
_DELTA_TOKENS = 32


def prepare(requests: Iterable[PendingRequest]) -> None:
    """Let requests that are about to be sent to a tree tell what is needed to go on in another."""
    for request in requests:
        prompt = request.prompt
        prompt.reports_start = True
        if prompt.delta_tokens == 0 and not prompt.is_streamed:
            prompt.delta_tokens = _DELTA_TOKENS


def end_after_death(
    request: PendingRequest, error: PenstockError, most_deaths: int, cause: str = STARTED_AGAIN
) -> PenstockError | None:
    """Return why a request ends with its tree; None if it goes on, for which it has been prepared.

    `cause` is the beginning of the notice that its client gets.
    """
    if not request.prompt.params.continue_on_restart:
        return error
    if not request.has_started:
        return None
    request.deaths += 1
    if request.deaths > most_deaths:
        return _once_too_often(error, request.deaths)
    request.begin_again(cause)
    return None


def _once_too_often(error: PenstockError, deaths: int) -> PenstockError:
    before = "the death before" if deaths == 2 else f"the {deaths - 1} deaths before"
    return EngineDeadError(f"{error} This request was being computed then and at {before}, so it has failed.")


def end_cancelled(request: PendingRequest) -> None:
    """End a request that waits for a tree with its output so far, as an engine does."""
    for sequence, progress in zip(request.sequence_ids, request.progress, strict=True):
        if not progress.has_ended:
            request.add(Delta(sequence, "", b"", 0, "abort", error_code=499, error_msg="The request was aborted."))
    request.tell()


def needs_media(request: PendingRequest) -> bool:
    """Whether its media have to be decoded again, since the tree that had them is gone."""
    return request.source is not None and not request.prompt.media


def decoded_again(session: MediaSession, request: PendingRequest) -> "Future[ParsedPrompt]":
    return session.threads.media.submit(_placed, session, request.source, client=request.prompt.client)


def _placed(session: MediaSession, source: ParsedPrompt) -> ParsedPrompt:
    """The prompt with its media, decoded again."""
    if session.door.media is None:
        raise RequestError("The model was started again, and sees no pictures any more.")
    [placed] = session.door.media.placed([source])
    return placed


def take_media(request: PendingRequest, decoded: "Future[ParsedPrompt]") -> PenstockError | None:
    """Put decoded media into the request; returns the error that it ends with if they can't be read again."""
    try:
        placed = decoded.result().placed
        if placed is None:
            raise RequestError(decoded.result().refusal or "The media of this request can't be read again.")
    except PenstockError as error:
        return error
    except Exception as error:
        return unreadable(error)
    request.prompt.media, request.prompt.positions = placed.media, placed.positions
    return None


def unreadable(error: BaseException) -> PenstockError:
    """The error of a request whose media can't be read again."""
    if isinstance(error, PenstockError):
        return error
    found = RequestError(f"The media of this request can't be read again: {type(error).__name__}: {error}")
    found.__cause__ = error
    return found
