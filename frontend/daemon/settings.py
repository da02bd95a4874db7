"""A daemon's settings, including its models and their options, read from the command line and a TOML file.

keep_alive = 600            # seconds of quiet until a model is unloaded; inf: never
[models.pocket]
model = "pocket"
max_num_seqs = 16           # any option of EngineConfig
preload = true              # load at the start, and again should it die
[http]
address = "127.0.0.1:8000"  # and any option of HttpOptions; `http = false`: none
"""

import math
import os
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from ...protocol.errors import ConfigError
from ...protocol.fields.decoding_fault import DecodingFault
from ...protocol.fields.rules import shown
from ...protocol.fields.suggestion import suggestion
from ...protocol.files.owner_file import read_owner_file
from ...protocol.memory_plan import MemoryPlan
from ...protocol.options.config import EngineConfig
from ...protocol.options.option_rules import size
from ..http.options import HttpOptions

KEEP_ALIVE = 600.0


class ModelSettings(msgspec.Struct, frozen=True):
    """One named model."""

    name: str
    model: str  # a bundled name, a folder or a hub id
    options: dict[str, Any]
    config: EngineConfig
    keep_alive: float
    preload: bool = False
    is_required: bool = False  # the daemon ends if it can't be loaded


class DaemonSettings(msgspec.Struct, frozen=True):
    models: dict[str, ModelSettings] = {}
    keep_alive: float = KEEP_ALIVE  # of models without their own
    load_wait: float = 30.0  # seconds that a load waits for memory in use
    max_loaded: int | None = None  # models loaded at once; None: what memory holds
    drain: float = 30.0  # seconds that running requests have when the daemon ends
    linger: float = math.inf  # seconds without clients and models until the daemon ends by itself
    max_held_bytes: int | None = None  # for all clients together; None: a share of the memory
    max_client_bytes: int | None = None  # for one client; None: a quarter of that
    http: HttpOptions | None = None  # None: no HTTP, only the socket


def read_settings(
    path: Path | None,
    words: list[str],
    options: dict[str, Any],
    own: dict[str, Any],
    http: dict[str, Any] | None,
) -> DaemonSettings:
    """The file's settings, overridden by the command line's.

    `words` are MODEL or NAME=MODEL, `options` belong to all of these models, `own` to the daemon, `http` to the HTTP
    server; if `http` is None there is no HTTP, whatever the file says.
    """
    told = _read(path) if path else {}
    tables, table = told.pop("models", {}), told.pop("http", {})
    server = None if http is None or table is False else _http(table, http, path)
    values = {**_checked_own(told, str(path)), **_checked_own(own, "the command line")}
    keep_alive = values.get("keep_alive", KEEP_ALIVE)
    models = [_model(name, table, keep_alive) for name, table in _tables(tables, path)]
    for word in words:
        name, model = _named(word)
        settings = _model(options.get("served_model_name") or name, {"model": model, **options}, keep_alive)
        models.append(msgspec.structs.replace(settings, is_required=settings.preload))
    names = [model.name for model in models]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ConfigError(f"Two models have the name {twice[0]!r}; give one of them another with NAME=MODEL.")
    return DaemonSettings(models={model.name: model for model in models}, http=server, **values)


def added_model(name: str, model: str, options: dict[str, Any], keep_alive: float) -> ModelSettings:
    """Settings of a model that a client has added. It can't load plugins: only the daemon's own configuration can."""
    if brought := sorted(_FROM_CONFIGURATION_ONLY & options.keys()):
        raise ConfigError(f"{brought[0]} can be given in the daemon's own configuration only; see docs/daemon.md.")
    return _model(name, {"model": model, **options}, keep_alive)


_FROM_CONFIGURATION_ONLY = {"reasoning_parser_plugin", "tool_parser_plugin", "logits_processors", "trace", "record"}


def _named(word: str) -> tuple[str, str]:
    """Parse `NAME=MODEL`, or a model by its own name."""
    from ..models.model_names import name_of

    name, equals, model = word.partition("=")
    if equals and name and "/" not in name:
        return name, _absolute(model)
    path = _absolute(word)
    return name_of(path), path


def _absolute(model: str) -> str:
    from ..models.model_names import BUNDLED

    path = Path(os.path.expanduser(model))
    return str(path.resolve()) if model not in BUNDLED and os.path.exists(path) else model


def _read(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(read_owner_file(path).decode())
    except OSError as error:
        raise ConfigError(f"The configuration {path} cannot be read: {error.strerror}.") from error
    except ConfigError:
        raise
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"The configuration {path} is not valid TOML: {error}.") from error


def _tables(tables: Any, path: Path | None) -> list[tuple[str, dict[str, Any]]]:
    from ..models.model_names import name_of

    if not isinstance(tables, dict) or not all(isinstance(table, dict) for table in tables.values()):
        raise ConfigError(f"{path}: models are tables of their own, such as [models.pocket].")
    # Without `model`, the table's name is the model itself.
    named = ((name if "model" in table else name_of(name), name, table) for name, table in tables.items())
    return [(own, {"model": name, **table}) for own, name, table in named]


def _http(table: Any, given: dict[str, Any], path: Path | None) -> HttpOptions:
    if not isinstance(table, dict) or "http" in table:
        raise ConfigError(f"{path}: http is a table, [http], whose address is `address`; or false for none.")
    names = {"address", *HttpOptions.__struct_fields__} - {"http"}
    if unknown := sorted(table.keys() - names):
        raise ConfigError(
            f"{path}: [http] has no setting {unknown[0]!r}; there are {', '.join(sorted(names))}."
            f"{suggestion(unknown[0], names)}"
        )
    if "address" in table:
        address = table["address"]
        table = {**table, "http": str(address) if type(address) is int else address}  # a port alone
        del table["address"]
    try:
        return msgspec.convert({**table, **given}, HttpOptions)
    except msgspec.ValidationError as error:
        if isinstance(error.__cause__, ConfigError):  # one of our own messages, better than msgspec's
            raise ConfigError(f"HTTP: {error.__cause__}") from error
        fault = DecodingFault.of(error, HttpOptions, whole="[http]", given={**table, **given})
        raise ConfigError(f"HTTP: {fault.sentence}") from error


def _model(name: str, table: Mapping[str, Any], keep_alive: float) -> ModelSettings:
    options = dict(table)
    model = str(options.pop("model", name))
    own = {key: _OWN[key].checked(f"{name}: {key}", options.pop(key)) for key in ("keep_alive",) if key in options}
    preload = options.pop("preload", False)
    if not isinstance(preload, bool):
        raise ConfigError(f"{name}: preload={preload!r}: must be true or false.")
    if options.get("connect", "never") != "never":
        raise ConfigError(f"{name}: connect: the daemon's own models are not another daemon's; leave it out.")
    try:
        config = EngineConfig.from_options(_absolute(model), **options)
    except (ConfigError, TypeError) as error:
        raise ConfigError(f"{name}: {error}") from error
    if config.speculative_config is not None and config.speculative_config.method == "replay":
        raise ConfigError(
            f"{name}: speculative_config: a daemon's model replays no run; a client does, with LLM(connect=…) or "
            "`penstock batch --replay`."
        )
    return ModelSettings(name, config.model, options, config, preload=preload, **{"keep_alive": keep_alive, **own})


class _Rule(NamedTuple):
    convert: Callable[[Any], Any]
    sentence: str

    def checked(self, name: str, value: Any) -> Any:
        try:
            return self.convert(value)
        except (TypeError, ValueError, OverflowError):
            raise ConfigError(f"{name}={shown(value)}: {self.sentence}.") from None


def _seconds(value: Any) -> float:
    if isinstance(value, bool) or not float(value) >= 0:
        raise ValueError
    return float(value)


def _count(value: Any) -> int:
    if isinstance(value, bool) or int(value) != value or value < 1:
        raise ValueError
    return int(value)


_BYTES = _Rule(size, 'must be bytes, or text such as "512MiB"')
_SECONDS = _Rule(_seconds, "must be seconds, 0 or more; inf is forever")
_OWN = {
    "keep_alive": _SECONDS,
    "load_wait": _SECONDS,
    "max_loaded": _Rule(_count, "must be a whole number, 1 or more"),
    "drain": _SECONDS,
    "linger": _SECONDS,
    "max_held_bytes": _BYTES,
    "max_client_bytes": _BYTES,
}


def _checked_own(told: dict[str, Any], where: str) -> dict[str, Any]:
    if unknown := sorted(told.keys() - _OWN.keys()):
        words = f"there is no setting {unknown[0]!r}; there are {', '.join(_OWN)}, [http] and [models.…]."
        raise ConfigError(f"{where}: {words}{suggestion(unknown[0], [*_OWN, 'http', 'models'])}")
    return {name: _OWN[name].checked(name, value) for name, value in told.items()}


def disagreement(written: EngineConfig, config: EngineConfig, plan: MemoryPlan, given: dict[str, Any]) -> str:
    """A sentence that names every option that differs; empty if all agree.

    `written` is what the model's owner gave, `config` what the model's files have made of it; `given` has structs as
    dicts, as they are sent. `watchdog_timeout` isn't compared, since each client may wait as long as it likes.
    """
    if unknown := [name for name in given if name not in EngineConfig.__struct_fields__]:
        hint = suggestion(unknown[0], EngineConfig.__struct_fields__)
        return f"The daemon's models have no option {', '.join(map(repr, unknown))}.{hint}"
    different = [
        f"{name}={value!r} (here {_as_sent(has(config, plan, name))!r})"
        for name, value in given.items()
        if name != "watchdog_timeout"
        and value not in map(_as_sent, (getattr(written, name), getattr(config, name), has(config, plan, name)))
    ]
    if not different:
        return ""
    advice = f"Leave {'that' if len(different) == 1 else 'those'} out to share it."
    return f"The daemon's model was loaded with other options than {', '.join(different)}. {advice}"


def _as_sent(value: Any) -> Any:
    return msgspec.to_builtins(value)


def has(config: EngineConfig, plan: MemoryPlan, name: str) -> Any:
    """The value of an option in the running model, even if it was unset or "auto"."""
    num_seqs, num_tokens = config.step_limits(plan.device)
    settled = {
        "max_model_len": plan.max_model_len,
        "max_num_seqs": num_seqs,
        "max_num_batched_tokens": num_tokens,
        "num_gpu_blocks_override": plan.num_blocks,
        "kv_cache_memory": plan.kv_bytes * config.data_parallel_size,
        "device": plan.device.split(":")[0],
        "dtype": plan.dtype,
        "kv_cache_dtype": plan.kv_dtype,
    }
    return settled.get(name, getattr(config, name))
