"""`AsModelConfig`: how a model is to run in an `Engine`, and the options of `LLM` that this becomes.

The names are DashInfer's. Dicts and YAML have the keys of its configuration files, which nest the compute unit.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ....protocol.errors import ConfigError
from ....protocol.fields.rules import BOOLEAN, Rule, at_least, shown
from ....protocol.options.option_rules import BLOCK_SIZE
from ...console import logs
from ..names import AsCacheMode
from .compute_unit import ComputeUnit, device_options, parsed

Quantization = str | Mapping[str, str | None]


@dataclass
class AsModelConfig:
    model_name: str = ""
    model_path: str = ""  # folder, bundled name or hub id
    compute_unit: str = str(ComputeUnit())
    num_threads: int = 0  # of each device of a CPU; 0: the cores, shared among the models of the engine
    engine_max_length: int = 2048  # prompt and output tokens of a request
    engine_max_batch: int = 32  # requests computed together
    engine_max_prefill_length: int = 0  # prompt tokens of a step; 0: what suits the device
    enable_prefix_cache: bool = True
    prefix_cache_ttl: int = 300  # seconds
    cache_mode: AsCacheMode = AsCacheMode.AsCacheDefault
    cache_span_size: int = 32  # tokens
    cache_span_num_init: int = 0
    lora_max_rank: int = 64
    lora_max_num: int = 5
    enable_sparsity_matmul: bool = False
    without_effect: tuple[str, ...] = ()  # keys of DashInfer's files, of `FOREIGN_KEYS`, that had a value
    # What a loader has recorded.
    data_type: str | None = None
    quantization: Quantization | None = None
    revision: str | None = None
    options: dict[str, Any] = field(default_factory=dict)  # further options of `LLM`

    def to_dict(self) -> dict[str, Any]:
        """The part that DashInfer's configuration files hold, by their keys."""
        unit = parsed(self.compute_unit)
        return {
            "model_name": self.model_name,
            "compute_unit": {
                "device_type": unit.device.name,
                "device_ids": list(unit.ids),
                "compute_thread_in_device": self.num_threads,
            },
            **{key: getattr(self, name) for key, name in FLAT_KEYS.items()},
            "kv_cache_mode": self.cache_mode.name,
            **({"rope_scaling": self.options["rope_scaling"]} if self.options.get("rope_scaling") else {}),
        }

    def to_yaml(self) -> str:
        from .yaml_text import as_yaml

        return as_yaml(self.to_dict())


# Keys of a dict, and the attribute that each sets. Name, compute unit and cache mode have forms of their own.
FLAT_KEYS = {
    "engine_max_length": "engine_max_length",
    "engine_max_batch": "engine_max_batch",
    "engine_max_prefill_length": "engine_max_prefill_length",
    "enable_prefix_cache": "enable_prefix_cache",
    "prefix_cache_ttl": "prefix_cache_ttl",
    "kv_cache_span_size": "cache_span_size",
    "cache_span_num_init": "cache_span_num_init",
    "enable_sparsity_matmul": "enable_sparsity_matmul",
    "lora_max_rank": "lora_max_rank",
    "lora_max_num": "lora_max_num",
}
_WITHOUT_EFFECT = {
    "cache_span_num_init": "KV memory is planned as a whole when a model starts",
    "enable_sparsity_matmul": "products over sparse weights are not built",
}
# Keys of DashInfer's files for which there is nothing to set, and why.
FOREIGN_KEYS = {
    "cuda_mem": "BFC_MEM_RATIO is the share of a card's memory",
    "eviction_strategy": "where KV memory runs out, the youngest request waits",
    "lora_names": "adapters are loaded by the engine's load_lora",
    "matmul_precision": "products are computed in the model's own numbers",
    "scheduling_strategy": "requests go in the order in which they came",
}


def _number(value: Any) -> int:
    """Files and shells give numbers as text, too, or as 8.0."""
    if isinstance(value, bool) or (isinstance(value, float) and not value.is_integer()):
        raise ValueError
    return int(value)


def _whole(least: int) -> Rule:
    own = at_least(least)
    return Rule(_number, own.holds, own.sentence)


# What a value must be, wherever it is set.
RULES: dict[str, Rule] = {
    "engine_max_length": _whole(1),
    "engine_max_batch": _whole(1),
    "engine_max_prefill_length": _whole(0),
    "enable_prefix_cache": BOOLEAN,
    "prefix_cache_ttl": _whole(1),
    "cache_span_size": BLOCK_SIZE._replace(convert=lambda value: BLOCK_SIZE.convert(_number(value))),
    "cache_span_num_init": _whole(0),
    "enable_sparsity_matmul": BOOLEAN,
    "lora_max_rank": _whole(1),
    "lora_max_num": _whole(0),
    "num_threads": _whole(0),
}


def checked_config(config: AsModelConfig) -> AsModelConfig:
    """Return the settings with numbers instead of text. Raises `ConfigError` for settings that can't work."""
    values = {name: rule.checked(name, getattr(config, name), ConfigError) for name, rule in RULES.items()}
    if not isinstance(config.cache_mode, AsCacheMode):
        raise ConfigError(f"cache_mode={shown(config.cache_mode)}: must be an AsCacheMode.")
    if not isinstance(config.options, Mapping):
        raise ConfigError(f"options={shown(config.options)}: must be a dict of options of LLM.")
    return replace(config, **values)


def engine_options(config: AsModelConfig, context: int) -> dict[str, Any]:
    """The options of `LLM` for a model of that context."""
    is_whole = config.engine_max_length >= context
    return {
        **device_options(parsed(config.compute_unit), config.num_threads),
        # The whole context is cut to what KV memory holds, as nobody asked for exactly that; less is asked for.
        "max_model_len": None if is_whole else config.engine_max_length,
        "max_num_seqs": config.engine_max_batch,
        "max_num_batched_tokens": config.engine_max_prefill_length or None,
        "enable_prefix_caching": config.enable_prefix_cache,
        "prefix_cache_ttl": config.prefix_cache_ttl,
        "kv_cache_dtype": AsCacheMode(config.cache_mode).value,
        "block_size": config.cache_span_size,
        "enable_lora": config.lora_max_num > 0,
        "max_loras": config.lora_max_num or None,
        "max_lora_rank": config.lora_max_rank,
        "dtype": config.data_type,
        "quantization": config.quantization,
        "revision": config.revision,
        "served_model_name": config.model_name,
        **config.options,
    }


def say_notices(config: AsModelConfig, context: int) -> None:
    """One sentence for each setting that has no effect, or not the whole of it."""
    is_quiet = logs.is_quiet(bool(config.options.get("quiet")))
    found = {name: why for name, why in _WITHOUT_EFFECT.items() if getattr(config, name)}
    found |= {key: FOREIGN_KEYS[key] for key in config.without_effect}
    for name, why in found.items():
        logs.say(f"{config.model_name}: {name} has no effect: {why}.", quiet=is_quiet)
    if config.engine_max_length > context:
        logs.say(
            f"{config.model_name}: engine_max_length={config.engine_max_length:,} is more than the model's own context "
            f"of {context:,}, which is used.",
            quiet=is_quiet,
        )


def model_folder(path: str, prefix: str = "") -> str:
    """The folder of a serialized model: a folder of its name or, if only one was written, the folder itself."""
    folder = os.path.expanduser(path)
    own = Path(folder) / prefix if prefix else None
    return str(own) if own is not None and own.is_dir() else folder
