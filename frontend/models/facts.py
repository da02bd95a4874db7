"""The facts about a loaded model that its answers' bits depend on, for journals and receipts.

A fact is a word for people and a value. Digests of large files take seconds the first time, so the facts are found when
somebody first wants them, in that thread, and kept.
"""

import hashlib
import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from ... import __version__
from ...protocol.memory_plan import MemoryPlan
from ...protocol.options.config import EngineConfig
from .digests import digest_of_files, tokenizer_files, weight_files

# Options that change no bit of an answer, or whose effect another fact has.
_NO_FACTS = {
    *("model", "tokenizer", "revision", "dtype", "kv_cache_dtype", "max_model_len", "seed", "served_model_name"),
    *("max_num_seqs", "max_num_batched_tokens", "gpu_memory_utilization", "kv_cache_memory"),
    *("num_gpu_blocks_override", "swap_space", "kv_cache_ratio", "static_decode_blocks", "enable_prefix_caching"),
    *("prefix_cache_ttl", "prefix_cache_dir", "prefix_cache_size", "enable_chunked_prefill"),
    *("max_num_partial_prefills", "max_long_partial_prefills"),
    *("long_prefill_token_threshold", "use_warmup", "devices", "num_threads", "mm_cache", "mm_encoder_budget"),
    *("data_parallel_size", "nnodes", "node_rank", "master_addr", "master_port", "node_key_file"),
    *("enable_lora", "max_loras", "max_lora_rank", "connect", "watchdog_timeout", "window", "trace", "record"),
    *("quiet", "enforce_eager", "graph_batch_sizes", "device", "speculative_config", "kv_events_config"),
}


def facts_of(plan: MemoryPlan, config: EngineConfig, folder: Path, tokenizer_folder: Path) -> dict[str, str]:
    return {
        **facts_of_files(folder, tokenizer_folder),
        "kernels": plan.kernels,
        "version of the kernels": plan.kernels_digest,
        "dtype": plan.dtype,
        "KV cache": plan.kv_dtype,
        "max_model_len": str(plan.max_model_len),
        **facts_of_options(config),
    }


def facts_of_files(folder: Path, tokenizer_folder: Path) -> dict[str, str]:
    return {
        "Penstock's version": __version__,
        "weights": digest_of_files(weight_files(folder), folder),
        "tokenizer and templates": digest_of_files(
            {*tokenizer_files(folder), *tokenizer_files(tokenizer_folder)}, tokenizer_folder
        ),
    }


def facts_of_options(config: EngineConfig) -> dict[str, str]:
    """The options that aren't at their defaults. Files that they name count by their content."""
    given = msgspec.to_builtins(config)  # leaves defaults out
    return {f"option {name}": _value(value) for name, value in given.items() if name not in _NO_FACTS}


def _value(value: Any) -> str:
    if isinstance(value, str) and "\n" not in value and len(value) < 4096 and (path := Path(value)).is_file():
        return hashlib.sha256(path.read_bytes()).hexdigest()
    return json.dumps(value, sort_keys=True, ensure_ascii=False)


def digest_of_adapter(path: Path) -> str:
    """Of the folder that PEFT has saved, or of a GGUF file."""
    files, folder = ([path], path.parent) if path.is_file() else (path.glob("adapter_*"), path)
    return digest_of_files(files, folder)


class ModelFacts:
    """A model's facts, and the digests of its adapters, once they are wanted."""

    def __init__(self, find: Callable[[], dict[str, str]], adapter_path: Callable[[str], str | None]) -> None:
        self._find = find
        self._adapter_path = adapter_path
        self._lock = threading.Lock()
        self._found: dict[str, str] | None = None

    def of_model(self) -> dict[str, str]:
        with self._lock:
            if self._found is None:
                self._found = self._find()
            return self._found

    def of_adapter(self, name: str | None) -> str | None:
        """The digest of an adapter's files; None without one, or for one that isn't there."""
        if name is None or (path := self._adapter_path(name)) is None:
            return None
        return digest_of_adapter(Path(path))
