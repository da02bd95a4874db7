"""Options of other engines: what each is translated to, and what is said of those without effect.

To add one that means an option of Penstock's, add a row to `TRANSLATED`; `foreign_names.py` has all others.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ..errors import ConfigError
from ..fields.rules import FLAG, shown
from ..fields.suggestion import suggestion
from ..parameters.early_stop import as_early_stop
from .foreign_names import ACCEPTED
from .option_rules import COUNTS, EARLY_STOP, one_of
from .speculation import notices_of

Options = dict[str, Any]

_BACKENDS = one_of("auto", "off", "xgrammar", "guidance", "outlines", "lm-format-enforcer")
_LOADERS = {"default": "auto", "default_v1": "auto", "dummy": "dummy"}
# vLLM's and FastDeploy's earlier option for runner.
_RUNNERS = {"auto": "auto", "generate": "generate"} | dict.fromkeys(
    ("embed", "embedding", "classify", "score", "reward", "encode", "pooling"), "pooling"
)
# Keys of graph_optimization_config that have no effect; others become options.
_IDLE_GRAPH_KEYS = (
    "graph_opt_level", "sot_warmup_sizes", "use_unique_memory_pool", "cudagraph_num_of_warmups", "full_cuda_graph",
    "cudagraph_only_prefill", "cudagraph_copy_inputs", "max_capture_size", "draft_model_use_cudagraph",
)  # fmt: skip
# vLLM's earlier options for speculative_config, and its keys.
_OLDER_SPECULATION = {
    "speculative_model": "model",
    "num_speculative_tokens": "num_speculative_tokens",
    "ngram_prompt_lookup_min": "prompt_lookup_min",
    "ngram_prompt_lookup_max": "prompt_lookup_max",
}
_GRAPH_KEYS = {"use_cudagraph": "use_cudagraph", "cudagraph_capture_sizes": "graph_batch_sizes"}


def under_own_names(options: Options) -> Iterator[tuple[str, Any]]:
    """The options, with those of other engines translated to ours."""
    given = dict(options)
    for name, value in options.items():
        translate = TRANSLATED.get(name)
        if translate is None:
            if name == "guided_decoding_backend" and value is not None:
                _BACKENDS.checked(name, value, ConfigError)
            yield name, value
        elif value is not None:
            for own, meant in translate(value, options).items():
                if given.get(own) not in (None, meant):
                    raise ConfigError(f"{name}={shown(value)} means {own}={shown(meant)}; give one of them.")
                given[own] = meant
                yield own, meant


def notices(options: Options) -> list[str]:
    """One sentence for each option that was accepted and has no effect here."""
    given = {name: value for name, value in options.items() if value is not None}
    if given.get("guided_decoding_backend") == "auto":  # which names no particular backend
        del given["guided_decoding_backend"]
    found = [f"{name} has no effect: {ACCEPTED[name]}." for name in given if name in ACCEPTED]
    config = _graph_config(given.get("graph_optimization_config", {}))
    if idle := [key for key in _IDLE_GRAPH_KEYS if key in config]:
        verb = "have" if len(idle) > 1 else "has"
        words = f"{', '.join(idle)} {verb} no effect: steps are captured in one way here."
        found.append(f"graph_optimization_config: {words}")
    speculation = given.get("speculative_config") or _older_speculation(None, given)["speculative_config"]
    return found + (notices_of(speculation) if speculation else [])


def _same_as(own: str) -> Callable[[Any, Options], Options]:
    return lambda value, options: {own: value}


def _eager(value: Any, options: Options) -> Options:
    return {"enforce_eager": not FLAG.checked("use_cudagraph", value, ConfigError)}


def _load_format(value: Any, options: Options) -> Options:
    return {"load_format": _LOADERS[one_of(*_LOADERS).checked("load_choices", value, ConfigError)]}


def _runner(value: Any, options: Options) -> Options:
    return {"runner": _RUNNERS[one_of(*_RUNNERS).checked("task", value, ConfigError)]}


def _early_stop(value: Any, options: Options) -> Options:
    """FastDeploy's switch next to `early_stop_config`; raises if the two contradict."""
    is_on = FLAG.checked("enable_early_stop", value, ConfigError)
    config = options.get("early_stop_config")
    if config is None:
        return {"early_stop_config": as_early_stop({"enable_early_stop": is_on})}
    if EARLY_STOP.checked("early_stop_config", config, ConfigError).enable_early_stop != is_on:
        raise ConfigError(f"enable_early_stop={is_on} contradicts early_stop_config={shown(config)}; give one of them.")
    return {}


def _older_speculation(value: Any, options: Options) -> Options:
    keys = {key: options[name] for name, key in _OLDER_SPECULATION.items() if options.get(name) is not None}
    return {"speculative_config": keys}


def _graphs(value: Any, options: Options) -> Options:
    found: Options = {}
    for key, meant in _graph_config(value).items():
        if key == "use_cudagraph" and meant is not None:
            found |= _eager(meant, options)
        elif key == "cudagraph_capture_sizes" and meant is not None:
            found["graph_batch_sizes"] = COUNTS.checked(key, meant, ConfigError)
    return found


def _graph_config(value: Any) -> Mapping[str, Any]:
    name = "graph_optimization_config"
    try:
        config = json.loads(value) if isinstance(value, str) else value
    except (ValueError, RecursionError):
        config = None
    if not isinstance(config, Mapping):
        raise ConfigError(f'{name}={shown(value)}: must be a dict such as {{"use_cudagraph": true}}.')
    known = (*_GRAPH_KEYS, *_IDLE_GRAPH_KEYS)
    for key in config:
        if key not in known:
            raise ConfigError(f"{name} has no key {shown(key)}.{suggestion(key, known)}")
    return config


TRANSLATED: dict[str, Callable[[Any, Options], Options]] = {
    "tool_parser": _same_as("tool_call_parser"),
    "use_cudagraph": _eager,
    "load_choices": _load_format,
    "enable_early_stop": _early_stop,
    "graph_optimization_config": _graphs,
    "cudagraph_capture_sizes": _same_as("graph_batch_sizes"),
    "cuda_graph_sizes": _same_as("graph_batch_sizes"),
    "kv_cache_memory_bytes": _same_as("kv_cache_memory"),
    "task": _runner,
    **dict.fromkeys(_OLDER_SPECULATION, _older_speculation),
}
