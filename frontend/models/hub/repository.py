"""Queries the hub about a model: a revision's commit, and the files with their sizes.

If the hub doesn't answer, an error says why and what to do about it. Its answers are checked before use: names become
paths, sizes are added up, and a network's login page may answer instead of the hub.
"""

import os
import re
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

from ....protocol.fields.rules import shown
from ..model_names import HubName
from .cache import prepare_hub

# A hub that doesn't answer within this time counts as unreachable; then cached models are used.
_SECONDS = 10.0
# A list that arrives too slowly is not waited for any longer.
_MOST_SECONDS = 120.0
# The library honours both.
_OFFLINE = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")
_OFF = ("", "0", "no", "false", "off")
_WITHOUT_NETWORK = "or bring the model's folder from another machine and give its path"
# A commit becomes the name of a folder in the cache.
_COMMIT = re.compile(r"[\w+=:-][\w+=:.-]{0,199}", re.ASCII)
_SHA256 = re.compile(r"[0-9a-fA-F]{64}")
_GIT_DIGEST = re.compile(r"[0-9a-fA-F]{40}")


class NoHub(OSError):
    """Something answered, but not like a hub; the message is a clause that describes the answer."""


class HubFile(NamedTuple):
    name: str
    size: int
    digest: str  # of its content: SHA-256 of a large file, git's digest of a small one; empty if unknown


class Listing(NamedTuple):
    """A repository at one commit."""

    model: HubName
    commit: str
    files: list[HubFile]


def listing_of(model: HubName) -> Listing:
    """The listing of a model; raises errors that `reason_of` explains."""
    prepare_hub()
    from huggingface_hub import HfApi

    ask = partial(HfApi().model_info, model.id, revision=model.asked_revision, files_metadata=True, timeout=_SECONDS)
    with checked_answer():
        found = _answer_to(ask)
        if not isinstance(found.sha, str) or not _COMMIT.fullmatch(found.sha):
            raise NoHub(f"it names a commit by {shown(found.sha)}")
        return Listing(model, found.sha, [_file(each) for each in found.siblings or []])


def _answer_to(ask: Callable[[], Any]) -> Any:
    answer: Future[Any] = Future()

    def work() -> None:
        try:
            answer.set_result(ask())
        except BaseException as error:
            answer.set_exception(error)

    threading.Thread(target=work, name="listing", daemon=True).start()
    done, _ = wait([answer], _MOST_SECONDS)
    if not done:
        raise NoHub(f"its list of files did not arrive within {_MOST_SECONDS:.0f} s")
    return answer.result()


@contextmanager
def checked_answer() -> Iterator[None]:
    """Raise `NoHub` if the library can't parse the answer that it gets within."""
    from huggingface_hub.errors import HFValidationError

    try:
        yield
    except HFValidationError:
        raise
    except (ValueError, TypeError, LookupError, AttributeError) as error:
        raise NoHub(f"its answer makes no sense ({first_line(error)})") from error


def _file(sibling: Any) -> HubFile:
    large = sibling.lfs
    name, size = sibling.rfilename, sibling.size if large is None else large.size
    digest, form = (sibling.blob_id, _GIT_DIGEST) if large is None else (large.sha256, _SHA256)
    if not isinstance(name, str) or (size is not None and (type(size) is not int or size < 0)):
        raise NoHub(f"it lists the file {shown(name)} of {shown(size)} bytes")
    if size is None or not digest:  # as for models without permission to read
        return HubFile(name, size or 0, "")
    if not isinstance(digest, str) or not form.fullmatch(digest):
        raise NoHub(f"it lists the file {shown(name)} with the digest {shown(digest)}")
    return HubFile(name, size, digest.lower())


def hub_errors() -> tuple[type[Exception], ...]:
    """The errors of talking to a hub, in all versions of the library."""
    from huggingface_hub import errors

    return (OSError, errors.HTTPError, errors.HFValidationError, errors.EntryNotFoundError)


def is_broken_connection(error: Exception) -> bool:
    """Whether the connection broke, as opposed to an answer of the hub, or a local error, which has a number."""
    from huggingface_hub import errors

    return not isinstance(error, errors.HfHubHTTPError) and getattr(error, "errno", None) is None


def is_unknown(error: Exception) -> bool:
    """Whether the hub has nothing with that name, or hides it."""
    from huggingface_hub import errors

    kinds = (errors.HFValidationError, errors.RepositoryNotFoundError, errors.RevisionNotFoundError)
    return isinstance(error, kinds) and not isinstance(error, errors.GatedRepoError)


def reason_of(error: Exception, model: HubName) -> str:
    """Why the hub returned nothing, and what to do."""
    from huggingface_hub import errors, get_token

    # Subclasses come before their base classes.
    match error:
        case errors.HFValidationError():
            return f"this is no id of a model: {first_line(error)}"
        case errors.GatedRepoError() if get_token():
            return (
                f"{model} needs its owner's consent, and the account of your token (HF_TOKEN, `hf auth login`) has not "
                f"got it. Ask for it at {_page(model)}"
            )
        case errors.GatedRepoError():
            return (
                f"{model} needs its owner's consent. Ask for it at {_page(model)}, then log in with `hf auth login` or "
                "set HF_TOKEN to a token of that account"
            )
        case errors.RevisionNotFoundError():
            return f"{model.id} has no revision {model.asked_revision}; {_page(model)}/tree/main lists what there is"
        case errors.RepositoryNotFoundError():
            return (
                f"there is no model {model.id}, or it is private. Check the spelling of its id (OWNER/NAME); for a "
                "private one log in with `hf auth login` or set HF_TOKEN"
            )
        case errors.OfflineModeIsEnabled():
            named = next((name for name in _OFFLINE if os.environ.get(name, "0").lower() not in _OFF), _OFFLINE[0])
            return f"{named} says to ask no hub. Unset it, {_WITHOUT_NETWORK}"
        case errors.HfHubHTTPError():
            return _refused(error.response.status_code, model)
        case NoHub():
            return (
                f"{_endpoint()} answers, and not as a hub does: {error}. A proxy, or this network's login page, may "
                "stand between; HF_ENDPOINT names another hub"
            )
    return f"{_endpoint()} is not reachable: {first_line(error)}. Check the network, {_WITHOUT_NETWORK}"


def _refused(status: int, model: HubName) -> str:
    if status == 401:
        return "the token is not valid; log in again with `hf auth login`, or set HF_TOKEN to a token that is"
    if status == 403:
        return f"access to {model} is refused; look at {_page(model)}, and whether the token (HF_TOKEN) may read models"
    if status == 429:
        return "it was asked too often from here; wait a few minutes, or log in with `hf auth login`"
    return f"it answers with status {status}; try again later" if status >= 500 else f"it answers with status {status}"


def _page(model: HubName) -> str:
    return f"{_endpoint()}/{model.id}"


def _endpoint() -> str:
    from huggingface_hub import constants

    return constants.ENDPOINT


def first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")
