"""sentence-transformers' settings of a whole model, which `frontend/pooling/scores.py` and the door next to it apply.

`config_sentence_transformers.json` has the words before texts, how long vectors are, how two of them are compared, and
what becomes of a score.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple

from ...protocol.errors import ConfigError
from ...protocol.fields.rules import shown
from ...protocol.files.model_file import read_model_settings
from .sentence_modules import MODULES

SETTINGS = "config_sentence_transformers.json"
Similarity = Literal["cosine", "dot", "euclidean", "manhattan"]
_SIMILARITIES: tuple[Similarity, ...] = ("cosine", "dot", "euclidean", "manhattan")
_NO_LIMIT = 1 << 40
# torch's classes whose names here are those of `PooledModel.activation`.
_NAMES = {"Identity": "", "Sigmoid": "sigmoid", "Softmax": "softmax"}


class SentenceSettings(NamedTuple):
    prompts: Mapping[str, str] = {}
    default_prompt: str | None = None
    cut: int | None = None  # numbers of a vector, if fewer than the modules make
    similarity: Similarity = "cosine"
    activation: str | None = None  # None: the file doesn't name it


def read_sentence_settings(folder: Path) -> SentenceSettings:
    said = read_model_settings(folder / SETTINGS)
    prompts, default = said.get("prompts"), said.get("default_prompt_name")
    texts = prompts.items() if isinstance(prompts, dict) else ()
    known = {name: text for name, text in texts if isinstance(text, str)}
    if default is not None and default not in known:
        raise ConfigError(
            f"{folder / SETTINGS}: default_prompt_name is {shown(default)}, and prompts has no text of that name."
        )
    cut, similarity = said.get("truncate_dim"), said.get("similarity_fn_name")
    if cut is not None and (type(cut) is not int or cut < 1):
        raise ConfigError(f"{folder / SETTINGS}: truncate_dim must be a number from 1 on, not {shown(cut)}.")
    if similarity is not None and similarity not in _SIMILARITIES:
        raise ConfigError(
            f"{folder / SETTINGS}: similarity_fn_name must be {', '.join(_SIMILARITIES)}, not {shown(similarity)}."
        )
    own = said.get("activation_fn")
    activation = None if own is None else activation_of(own, f"{folder / SETTINGS}: activation_fn")
    return SentenceSettings(known, default, cut, similarity or "cosine", activation)


def activation_of(function: Any, where: str) -> str:
    """The activation that a class of torch computes, by its path; raises if it isn't known."""
    from ...protocol.pooling.activations import ACTIVATIONS, known_activations  # few models name one

    path, _, name = function.rpartition(".") if isinstance(function, str) else ("", "", "")
    if not name or name not in ACTIVATIONS or (path and path.partition(".")[0] != "torch"):
        raise ConfigError(f"{where} must be a class of torch.nn that is known here, not {shown(function)}; "
                          f"known are {known_activations()}.")  # fmt: skip
    return _NAMES.get(name, name)


def read_longest(folder: Path) -> tuple[int | None, str]:
    """The most tokens of a text that sentence-transformers takes, and the file that says so.

    Its releases since 6 leave the number to the tokenizer, which has a huge one where there is none.
    """
    names = {"sentence_bert_config.json": "max_seq_length", "tokenizer_config.json": "model_max_length"}
    for file, key in names.items():
        if file == "tokenizer_config.json" and not (folder / MODULES).is_file():
            break  # a model of transformers, whose positions are its limit
        longest = read_model_settings(folder / file).get(key)
        if type(longest) is int and 0 < longest < _NO_LIMIT:
            return longest, file
    return None, ""
