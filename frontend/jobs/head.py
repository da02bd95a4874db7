"""The head of a job's journal: the facts that its answers depend on, and how those of two runs differ.

A fact is a word for people and a value. Whatever changes an answer's bits is among them; what changes only the speed
is not: threads, batch sizes, memory, and whether a daemon has the model.
"""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from ...protocol.errors import ConfigError
from ..models.digests import digest_of_files
from ..models.facts import digest_of_adapter, facts_of, facts_of_files, facts_of_options
from ..models.pooled_model import PooledModel
from ..session.session import Session

# Options whose effect is a fact of the loaded model alone.
_ASKED = ("dtype", "kv_cache_dtype", "max_model_len", "device")
_KERNELS = "PENSTOCK_CPU_VARIANT"
_OPTION = "option "
_LONGEST_VALUE = 48  # characters of a value in an error


def facts_of_model(session: Session[Any]) -> dict[str, str]:
    """The facts that are known once the model is loaded."""
    plan, config = session.plan, session.tree_config
    if plan is None:
        raise ConfigError("A job needs a model that is loaded.")
    return {
        **facts_of(plan, config, *session.model_folders),
        **{f"adapter {name}": digest_of_adapter(Path(path)) for name, path in session.adapters.folders().items()},
        "model's sampling defaults": _json(session.door.defaults),
        **({} if (pooled := session.pooled) is None else _facts_of_pooling(pooled, session.model_folders[0])),
    }


def _facts_of_pooling(pooled: PooledModel, folder: Path) -> dict[str, str]:
    layers = {path for layer in pooled.form.head if layer.folder for path in (folder / layer.folder).glob("*")}
    return {"pooling": _json(pooled), "layers behind the pooling": digest_of_files(layers, folder) if layers else ""}


def facts_before_loading(session: Session[Any]) -> dict[str, str]:
    return facts_of_files(*session.model_folders) | facts_of_options(session.tree_config)


def asked_of(session: Session[Any]) -> dict[str, str]:
    """What a run asks of its model, in its own words. It stands for the facts that only a loaded model has; those of a
    daemon's model are asked by somebody else."""
    if session.daemon is not None:
        return {}
    asked = {_OPTION + name: str(getattr(session.tree_config, name)) for name in _ASKED}
    return asked | {_KERNELS: os.environ.get(_KERNELS) or "unset"}


def without_model(facts: Mapping[str, str], names: Mapping[str, str]) -> dict[str, str]:
    """Of a head's facts the options, and those with these names."""
    return {name: value for name, value in facts.items() if name in names or name.startswith(_OPTION)}


def facts_of_settings(**settings: Any) -> dict[str, str]:
    """The facts that a job is given."""
    return {
        name.replace("_", " "): value if isinstance(value, str) else _json(value) for name, value in settings.items()
    }


def differences(earlier: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """A phrase for each fact of this run that was another one before."""
    names = [*now, *(name for name in earlier if name not in now)]
    return [
        f"{name} changed from {_shown(earlier.get(name))} to {_shown(now.get(name))}"
        for name in names
        if (earlier.get(name) or "") != (now.get(name) or "")
    ]


class ChangedFactsError(ConfigError):
    def __init__(self, phrases: list[str]) -> None:
        self.phrases = phrases
        super().__init__(
            f"This job began with other settings: {'; '.join(phrases)}. Its other answers would not be those of an "
            "uninterrupted run. Run it as at first, give another output, or accept the change with --accept-change "
            "(accept_change=True)."
        )


def _json(value: Any) -> str:
    return json.dumps(msgspec.to_builtins(value), sort_keys=True, ensure_ascii=False)


def _shown(value: str | None) -> str:
    if not value:
        return "none"
    if len(value) == 64 and all(letter in "0123456789abcdef" for letter in value):
        return f"{value[:12]}…"
    return value if len(value) <= _LONGEST_VALUE else f"{value[:_LONGEST_VALUE]}…"
