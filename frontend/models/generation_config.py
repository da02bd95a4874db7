"""Reads a model's `generation_config.json`. One that cannot be used is refused before anything is started."""

from pathlib import Path
from typing import Any

import msgspec

from ...protocol.errors import ConfigError, RequestError
from ...protocol.files.model_file import read_model_file
from ...protocol.parameters.sampling import DRAW, PENALTIES, SamplingParams

_PARAMS = (*DRAW, *PENALTIES, "stop_strings")
_OTHER_NAMES = {"stop_strings": "stop"}


def default_params(model_folder: Path) -> SamplingParams:
    """The sampling defaults in the file, or plain sampling."""
    path = model_folder / "generation_config.json"
    try:
        content = read_model_file(path)
    except FileNotFoundError:
        return SamplingParams()
    try:
        found = msgspec.json.decode(content, type=dict[str, Any])
        _check(found)
        chosen = {_OTHER_NAMES.get(name, name): found[name] for name in _PARAMS if found.get(name) is not None}
        if found.get("do_sample") is False:
            chosen["temperature"] = 0.0
        return SamplingParams(**chosen)
    except (msgspec.DecodeError, UnicodeDecodeError, RequestError, RecursionError) as error:
        raise ConfigError(f"{path} cannot be used: {error}") from error


def _check(found: dict[str, Any]) -> None:
    """Check types also for values that are read elsewhere; ids are checked once the vocabulary is known."""
    if not isinstance(found.get("do_sample"), bool | None):
        raise RequestError(f"do_sample={found['do_sample']!r}: must be true or false.")
    ends = found.get("eos_token_id")
    listed = ends if isinstance(ends, list) else [] if ends is None else [ends]
    if not all(isinstance(token, int) and not isinstance(token, bool) for token in listed):
        raise RequestError(f"eos_token_id={ends!r}: must be a token id or a list of them.")
