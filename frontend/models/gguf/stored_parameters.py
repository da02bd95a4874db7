"""Reads the sampling parameters and stops that a store (`frontend/models/stores/ollama.py`) keeps for a model.

Ollama keeps them in a file next to the model's:

    {"temperature": 0.6, "top_k": 20, "stop": ["<|im_end|>", "User:"], "num_ctx": 4096}

Names become those of generation_config.json. A stop text becomes the end token of that name if there is one, since such
tokens are not part of an answer's text. Parameters of Ollama's own engine (`num_ctx` and others) change nothing here.
"""

from pathlib import Path
from typing import Any

import msgspec

from ....protocol.errors import ConfigError, RequestError
from ....protocol.fields.rules import shown
from ....protocol.files.model_file import read_model_file
from ....protocol.files.utf8 import shown as shown_path
from ....protocol.parameters.sampling import DRAW, PENALTIES, SamplingParams
from ...text.gguf.token_list import TokenList

_NAMES = {"repeat_penalty" if name == "repetition_penalty" else name: name for name in (*DRAW, *PENALTIES)}


def with_stored_parameters(generation_config: dict[str, Any], path: Path, tokens: TokenList | None) -> dict[str, Any]:
    """The config, overridden by these parameters; without tokens, every stop is a text."""
    try:
        found = msgspec.json.decode(read_model_file(path), type=dict[str, Any])
        given = {key: found[key] for key in _NAMES if found.get(key) is not None}
        chosen: dict[str, Any] = {_NAMES[key]: _number(key, value) for key, value in given.items()}
        stops = _texts(found.get("stop"))
        SamplingParams(**chosen, stop=stops or None)
    except (msgspec.DecodeError, OSError, RecursionError, RequestError, UnicodeDecodeError) as error:
        why = str(error).rstrip(".")
        raise ConfigError(
            f"{shown_path(path)}, which says how Ollama samples the model, can't be used: {why}. `ollama pull` the "
            "model again, or give the GGUF file itself."
        ) from error
    ids = {} if tokens is None else {tokens.texts[at]: at for at in tokens.added()}
    ends = [*generation_config["eos_token_id"], *(ids[stop] for stop in stops if stop in ids)]
    config = {**generation_config, **chosen, "eos_token_id": list(dict.fromkeys(ends))}
    if chosen:
        config["do_sample"] = True
    if texts := [stop for stop in stops if stop not in ids]:
        config["stop_strings"] = texts
    return config


def _number(key: str, value: Any) -> int | float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise RequestError(f"{key} is {shown(value)}, which is no number")
    return int(value) if key == "top_k" and value == int(value) else value


def _texts(value: Any) -> list[str]:
    listed = [] if value is None else value if isinstance(value, list) else [value]
    if not all(isinstance(each, str) for each in listed):
        raise RequestError(f"stop is {shown(value)}, and must be a text or a list of them")
    return [each for each in listed if each]
