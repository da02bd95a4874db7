"""What the hub says of a model: the commit that a revision means, and its files with their sizes.

And why it says nothing, as a sentence with what to do about it. Knows nothing of what is done with the files.
"""

import os
from typing import NamedTuple

from ..model_names import HubName
from .library import prepare_hub

# A hub that doesn't answer within so long is taken for unreachable; what is cached then runs.
_SECONDS = 10.0
# The library listens to both.
_OFFLINE = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")
_OFF = ("", "0", "no", "false", "off")
_WITHOUT_NETWORK = "or bring the model's folder from another machine and give its path"


class HubFile(NamedTuple):
    name: str
    size: int
    etag: str  # names its content: SHA-256 of a large file, git's digest of a small one


class Listing(NamedTuple):
    """A repository at one commit."""

    model: HubName
    commit: str
    files: list[HubFile]


def listing_of(model: HubName) -> Listing:
    """Raises what `reason_of` has a sentence for."""
    prepare_hub()
    from huggingface_hub import HfApi

    found = HfApi().model_info(model.id, revision=model.asked_revision, files_metadata=True, timeout=_SECONDS)
    files = []
    for each in found.siblings or []:
        size = each.lfs.size if each.lfs is not None else each.size
        etag = each.lfs.sha256 if each.lfs is not None else each.blob_id
        files.append(HubFile(each.rfilename, size or 0, etag or ""))
    return Listing(model, found.sha or "", files)


def hub_errors() -> tuple[type[Exception], ...]:
    """Whatever goes wrong between here and a hub, in all versions of the library."""
    from huggingface_hub import errors

    return (OSError, errors.HTTPError, errors.HFValidationError, errors.EntryNotFoundError)


def is_broken_connection(error: Exception) -> bool:
    """Rather than an answer of the hub's, or a fault of this machine's, which has a number."""
    from huggingface_hub import errors

    return not isinstance(error, errors.HfHubHTTPError) and getattr(error, "errno", None) is None


def reason_of(error: Exception, model: HubName) -> str:
    """Why the hub gave nothing, and what to do."""
    from huggingface_hub import errors, get_token

    # What is more special stands before what it is a kind of.
    match error:
        case errors.HFValidationError():
            return f"this is no id of a model: {_first_line(error)}"
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
    return f"{_endpoint()} is not reachable: {_first_line(error)}. Check the network, {_WITHOUT_NETWORK}"


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


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")
