"""The head of a job's journal: the facts that its answers depend on, and how those of two runs differ.

A fact is a word for people and a value. Whatever changes an answer's bits is among them; what changes only the speed
is not: threads, batch sizes, memory, and whether a daemon has the model.
"""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from ... import __version__
from ...protocol.errors import ConfigError
from ...protocol.options.config import EngineConfig
from ..session.session import Session
from .digests import digest_of_files, tokenizer_files, weight_files

# Options that change no bit of an answer, or whose effect another fact has.
_NO_FACTS = {
    *("model", "tokenizer", "revision", "dtype", "kv_cache_dtype", "max_model_len", "seed", "served_model_name"),
    *("max_num_seqs", "max_num_batched_tokens", "gpu_memory_utilization", "kv_cache_memory"),
    *("num_gpu_blocks_override", "swap_space", "kv_cache_ratio", "static_decode_blocks", "enable_prefix_caching"),
    *("prefix_cache_ttl", "prefix_cache_dir", "prefix_cache_size", "enable_chunked_prefill"),
    *("max_num_partial_prefills", "max_long_partial_prefills"),
    *("long_prefill_token_threshold", "use_warmup", "devices", "num_threads", "mm_cache", "mm_encoder_budget"),
    *("enable_lora", "max_loras", "max_lora_rank", "connect", "watchdog_timeout", "window", "trace", "record"),
    *("quiet", "enforce_eager", "graph_batch_sizes", "device"),
}
_LONGEST_VALUE = 48  # characters of a value in an error


def facts_of_model(session: Session[Any]) -> dict[str, str]:
    """The facts that are known once the model is loaded."""
    plan, config = session.plan, session.tree_config
    if plan is None:
        raise ConfigError("A job needs a model that is loaded.")
    folder, tokenizer_folder = session.model_folders
    return {
        "Penstock's version": __version__,
        "weights": digest_of_files(weight_files(folder), folder),
        "tokenizer and templates": digest_of_files(
            {*tokenizer_files(folder), *tokenizer_files(tokenizer_folder)}, tokenizer_folder
        ),
        **{f"adapter {name}": _digest_of_adapter(Path(path)) for name, path in session.adapters.folders().items()},
        "kernels": plan.kernels,
        "version of the kernels": plan.kernels_digest,
        "dtype": plan.dtype,
        "KV cache": plan.kv_dtype,
        "max_model_len": str(plan.max_model_len),
        "model's sampling defaults": _json(session.door.defaults),
        **_facts_of_options(config),
    }


def _digest_of_adapter(folder: Path) -> str:
    return digest_of_files(folder.glob("adapter_*"), folder)


def _facts_of_options(config: EngineConfig) -> dict[str, str]:
    """The options that aren't at their defaults. Files that they name count by their content."""
    given = msgspec.to_builtins(config)  # leaves defaults out
    return {f"option {name}": _value(value) for name, value in given.items() if name not in _NO_FACTS}


def _value(value: Any) -> str:
    if isinstance(value, str) and "\n" not in value and len(value) < 4096 and (path := Path(value)).is_file():
        return hashlib.sha256(path.read_bytes()).hexdigest()
    return _json(value)


def facts_of_settings(**settings: Any) -> dict[str, str]:
    """The facts that a job is given."""
    return {
        name.replace("_", " "): value if isinstance(value, str) else _json(value) for name, value in settings.items()
    }


def differences(earlier: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """A phrase for each fact of this run that was another one before."""
    names = [*now, *(name for name in earlier if name not in now)]
    return [
        f"{name} was {_shown(earlier.get(name))} and is {_shown(now.get(name))}"
        for name in names
        if (earlier.get(name) or "") != (now.get(name) or "")
    ]


def refusal(phrases: list[str]) -> ConfigError:
    return ConfigError(
        f"This job was begun otherwise: {'; '.join(phrases)}. Its other answers would not be those of an uninterrupted "
        "run. Run it as it was begun, give another output, or accept the change with --accept-change "
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
