"""`EngineConfig`: every option of a tree, frozen, from which the command line is made too.

An option is a field with its sentence; its check is a row of a table. Options that other engines have and that mean
nothing here are accepted with a notice or refused with a sentence, each a row as well.
Knows nothing of the model or the machine: what depends on them stays None until a process that knows fills it in.
"""

import os
import re
from collections.abc import Callable, Iterator
from typing import Annotated, Any, NamedTuple

import msgspec
from msgspec import Meta

from .early_stop import SENTENCE as EARLY_STOP_SENTENCE
from .early_stop import EarlyStop, as_early_stop
from .errors import ConfigError
from .rules import shown, written_out
from .sampling import SamplingParams
from .suggestion import suggestion

BLOCK_SIZES = (16, 32, 64, 128)
DTYPES = ("auto", "float32", "float16", "bfloat16")
KV_DTYPES = ("auto", "fp32", "fp16", "bf16", "int8", "uint4")
CONNECTS = ("auto", "require", "start", "never")
QUANTIZATIONS = ("int8", "int4", "wint8", "wint4")


class EngineConfig(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One tree's options. `EngineConfig.from_options` is the door for what a person wrote."""

    model: Annotated[str, Meta(description="bundled name, folder, or hub id")]
    tokenizer: Annotated[str | None, Meta(description="where the tokenizer is, if not with the model")] = None
    revision: Annotated[str | None, Meta(description="branch, tag or commit of a hub id")] = None
    dtype: Annotated[str, Meta(description="auto (the checkpoint's), float32, float16 or bfloat16")] = "auto"
    quantization: Annotated[str | None, Meta(description="of weights: int8, int4, wint8 or wint4")] = None
    kv_cache_dtype: Annotated[str, Meta(description="auto (= dtype), fp32, fp16, bf16, int8 or uint4")] = "auto"
    load_format: Annotated[str, Meta(description="auto, dummy (random weights) or stand-in (no model)")] = "auto"
    max_model_len: Annotated[int | None, Meta(description="prompt and output tokens together")] = None
    tensor_parallel_size: Annotated[int, Meta(description="processes that share each layer")] = 1
    block_size: Annotated[int, Meta(description="tokens a KV block: 16, 32, 64 or 128")] = 32
    max_num_seqs: Annotated[int | None, Meta(description="sequences computed together; unset: 256 GPU, 64 CPU")] = None
    max_num_batched_tokens: Annotated[int | None, Meta(description="tokens a step; unset: 8192 GPU, 512 CPU")] = None
    gpu_memory_utilization: Annotated[float, Meta(description="share of the card's memory in use at most")] = 0.9
    kv_cache_memory: Annotated[int | None, Meta(description='bytes for KV blocks, or "4GiB"')] = None
    num_gpu_blocks_override: Annotated[int | None, Meta(description="KV blocks, whatever the plan says")] = None
    swap_space: Annotated[float | None, Meta(description="GiB a rank of CPU memory for evicted KV blocks")] = None
    kv_cache_ratio: Annotated[float | None, Meta(description="share of blocks for prompts in computation")] = None
    static_decode_blocks: Annotated[int, Meta(description="blocks kept free for each request admitted")] = 2
    enable_prefix_caching: Annotated[bool, Meta(description="reuse the KV blocks of equal prefixes")] = True
    enable_chunked_prefill: Annotated[bool, Meta(description="spread long prompts over several steps")] = True
    max_num_partial_prefills: Annotated[int | None, Meta(description="prompts in computation at once")] = None
    max_long_partial_prefills: Annotated[int | None, Meta(description="long ones among them")] = None
    long_prefill_token_threshold: Annotated[int | None, Meta(description="tokens that make a prompt long")] = None
    use_warmup: Annotated[bool, Meta(description="on a GPU, one full step before the first request")] = True
    deterministic: Annotated[bool | None, Meta(description="answers do not depend on the batch's company")] = None
    device: Annotated[str, Meta(description="auto, cpu or cuda")] = "auto"
    devices: Annotated[list[int] | None, Meta(description="which cards")] = None
    num_threads: Annotated[int | None, Meta(description="CPU threads of all ranks together; unset: the cores")] = None
    seed: Annotated[int, Meta(description="for requests that bring none")] = 0
    chat_template: Annotated[str | None, Meta(description="template text or file, instead of the model's")] = None
    reasoning_parser: Annotated[str | None, Meta(description="thoughts: auto, none, a family; unset: of chats")] = None
    tool_call_parser: Annotated[str | None, Meta(description="calls: auto, none, a family; unset: of chats")] = None
    reasoning_parser_plugin: Annotated[str | None, Meta(description="Python file with further families")] = None
    tool_parser_plugin: Annotated[str | None, Meta(description="the same for tool calls")] = None
    early_stop_config: Annotated[EarlyStop | None, Meta(description="early_stop of requests that bring none")] = None
    logits_processors: Annotated[list[str] | None, Meta(description="entry points that change logits")] = None
    guided_decoding_disable_any_whitespace: Annotated[bool, Meta(description="guided JSON is compact")] = False
    served_model_name: Annotated[str | None, Meta(description="the name in outputs and logs")] = None
    enable_lora: Annotated[bool, Meta(description="make room for LoRA adapters")] = False
    max_loras: Annotated[int, Meta(description="adapters in memory at once")] = 4
    max_lora_rank: Annotated[int, Meta(description="the largest rank that an adapter may have")] = 64
    connect: Annotated[str, Meta(description="use the daemon: auto, require, start, never or its address")] = "never"
    enforce_eager: Annotated[bool, Meta(description="no captured graphs on a GPU")] = False
    graph_batch_sizes: Annotated[list[int] | None, Meta(description="rows of captured steps; unset: many")] = (
        None
    )
    lm_head_fp32: Annotated[bool, Meta(description="keep the head's weights in float32")] = False
    enable_logprob: Annotated[bool, Meta(description="accepted; log-probabilities are always available")] = True
    disable_custom_all_reduce: Annotated[bool, Meta(description="let NCCL add up all that ranks add")] = False
    watchdog_timeout: Annotated[float, Meta(description="seconds until a silent process has hung; 0: never")] = 120.0
    limit_prompt_chars: Annotated[int | None, Meta(description="characters a prompt; unset: 16 x context")] = None
    limit_stop_strings: Annotated[int, Meta(description="stop strings a request")] = 64
    limit_stop_chars: Annotated[int, Meta(description="characters a stop string")] = 256
    limit_logit_bias: Annotated[int, Meta(description="logit_bias entries a request")] = 1024
    limit_bad_words: Annotated[int, Meta(description="bad_words a request")] = 1024
    limit_logprobs: Annotated[int, Meta(description="values where logprobs=-1 asks for whole vocabularies")] = 1 << 26
    window: Annotated[int, Meta(description="requests that a batch call keeps submitted")] = 1024
    trace: Annotated[str | None, Meta(description="write a timeline for Perfetto to this file")] = None
    record: Annotated[str | None, Meta(description="record the engine's messages to this file")] = None
    quiet: Annotated[bool, Meta(description="no tables, bars or notices")] = False

    @classmethod
    def from_options(cls, model: str | os.PathLike[str], **options: Any) -> "EngineConfig":
        """Check what a person wrote; aliases and foreign options are settled here."""
        known = {field.name for field in msgspec.structs.fields(cls)}
        settled: dict[str, Any] = {"model": _checked("model", model)}
        for name, value in _under_own_names(options):
            if name in _REFUSED:
                _refuse(name, value)
            elif name not in known and name not in _ACCEPTED:
                raise TypeError(_unknown(name, known))
            elif name in known and value is not None:
                settled[name] = _checked(name, value)
        if settled.get("max_model_len") == -1:
            settled.pop("max_model_len")
        if "gpu_memory_utilization" not in settled and (ratio := os.environ.get("BFC_MEM_RATIO")):
            settled["gpu_memory_utilization"] = _checked("gpu_memory_utilization", _number(ratio))
        return cls(**settled)

    @classmethod
    def given(cls, options: dict[str, Any]) -> dict[str, Any]:
        """The options that a person wrote, under our own names and checked, without those that have no effect."""
        known = {field.name for field in msgspec.structs.fields(cls)}
        named = ((name, value) for name, value in _under_own_names(options) if name in known)
        return {name: _checked(name, value) for name, value in named if value is not None}

    def step_limits(self, device: str) -> tuple[int, int]:
        """`max_num_seqs` and `max_num_batched_tokens`, where unset what suits the device ("cpu", "cuda:0")."""
        num_seqs, num_tokens = _STEP_LIMITS[device.split(":")[0]]
        return self.max_num_seqs or num_seqs, self.max_num_batched_tokens or num_tokens

    @staticmethod
    def notices(options: dict[str, Any]) -> list[str]:
        """One sentence for each option that was accepted and has no effect here."""
        return [f"{name} has no effect: {_ACCEPTED[name]}." for name in options if _ACCEPTED.get(name)]


# The CPU's tokens a step are measured (`scripts/bench_budget.py`): more are slower, and a neighbour waits longer.
_STEP_LIMITS = {"cpu": (64, 512), "cuda": (256, 8192)}


# Another spelling of an option.
_ALIASES = {"tool_parser": "tool_call_parser"}
# The same said the other way round.
_OPPOSITES = {"use_cudagraph": "enforce_eager"}


def _under_own_names(options: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    for alias, name in _ALIASES.items():
        if options.get(alias) is not None and options.get(name) not in (None, options[alias]):
            raise ConfigError(f"{alias} is another name of {name}; give one of them.")
    for name, value in options.items():
        if (opposite := _OPPOSITES.get(name)) is None:
            yield _ALIASES.get(name, name), value
        elif value is not None:
            is_on = not _told(name, value, _FLAG)
            if options.get(opposite) not in (None, is_on):
                raise ConfigError(f"{name}={value!r} means {opposite}={is_on}; give one of them.")
            yield opposite, is_on


def _unknown(name: str, known: set[str]) -> str:
    if name in SamplingParams.__struct_fields__:
        return f"There is no option {name!r}. It is a field of SamplingParams, which a call is given."
    hint = suggestion(name, known | set(_ACCEPTED) | set(_REFUSED) | set(_ALIASES) | set(_OPPOSITES))
    return f"There is no option {name!r}.{hint or ' See `penstock generate --help` for all options.'}"


def _refuse(name: str, value: Any) -> None:
    harmless, sentence = _REFUSED[name]
    if value not in harmless:
        raise ConfigError(f"{name}={value!r}: {sentence}.")


def _checked(name: str, value: Any) -> Any:
    return _told(name, value, _CHECKS[name])


def _told(name: str, value: Any, check: "Check") -> Any:
    try:
        return check.convert(value)
    except (AttributeError, TypeError, ValueError, OverflowError, RecursionError):
        hint = suggestion(value, check.choices) + written_out(value, check.convert)
        raise ConfigError(f"{name}={shown(value)}: {check.sentence}.{hint}") from None


# --- checks: each returns the value in the field's own type or raises -------------------------------------------------


class Check(NamedTuple):
    convert: Callable[[Any], Any]
    sentence: str
    choices: tuple[Any, ...] = ()  # where only these are right


def _number(value: Any) -> float:
    return float(value)


def size(value: Any) -> int:
    """Bytes from an int, or from "512MiB", "4GiB", "4GB"."""
    if isinstance(value, str):
        found = re.fullmatch(r"\s*([\d.]+)\s*([kmgt]?)(i?)b?\s*", value.lower())
        if not found:
            raise ValueError
        base = 1024 if found[3] or not found[2] else 1000
        value = int(float(found[1]) * base ** " kmgt".index(found[2] or " "))
    return _positive(value)


def _whole(low: int) -> Callable[[Any], int]:
    def convert(value: Any) -> int:
        if isinstance(value, bool) or int(value) != value or not low <= value < 2**63:
            raise ValueError
        return int(value)

    return convert


_positive = _whole(1)


def _context(value: Any) -> int:
    """-1 is FastDeploy's way to leave it to the model."""
    return -1 if value == -1 and not isinstance(value, bool) else _positive(value)


def _fraction(value: Any) -> float:
    if isinstance(value, bool) or not 0 < float(value) <= 1:
        raise ValueError
    return float(value)


def _amount(value: Any) -> float:
    if isinstance(value, bool) or not 0 <= float(value) < float("inf"):
        raise ValueError
    return float(value)


def _flag(value: Any) -> bool:
    if value not in (True, False, 0, 1):
        raise ValueError
    return bool(value)


def _text(value: Any) -> str:
    text: str = os.fspath(value)
    str.encode(text)  # raises: other processes are told of it in UTF-8
    if "\0" in text:
        raise ValueError
    return text


def _names(value: Any) -> list[str]:
    names = [value] if isinstance(value, str) else list(value)
    if not all(isinstance(name, str) for name in names):
        raise TypeError
    return names


def _one_of(*choices: Any) -> Check:
    def convert(value: Any) -> Any:
        if value not in choices:
            raise ValueError
        return value

    return Check(convert, "must be one of " + ", ".join(map(str, choices)), choices)


def _connect(value: Any) -> str:
    text: str = os.fspath(value)
    if text not in CONNECTS and os.sep not in text:
        raise ValueError
    return text


def _dtype(value: Any) -> str:
    name = _DTYPE_NAMES.get(str(value).removeprefix("torch."), str(value).removeprefix("torch."))
    if name not in DTYPES:
        raise ValueError
    return name


def _whole_list(least: int) -> Callable[[Any], list[int]]:
    return lambda value: [_whole(least)(item) for item in ([value] if isinstance(value, int) else value)]


_DTYPE_NAMES = {"fp32": "float32", "float": "float32", "fp16": "float16", "half": "float16", "bf16": "bfloat16"}
_COUNT = Check(_positive, "must be a whole number, 1 or more")
_FLAG = Check(_flag, "must be True or False")
_TEXT = Check(_text, "must be text or a path, in UTF-8")
_FAMILY = Check(_text, "must be auto, none or a family's name")
_FRACTION = Check(_fraction, "must be more than 0 and at most 1")

_CHECKS: dict[str, Check] = {
    "model": _TEXT,
    "tokenizer": _TEXT,
    "revision": _TEXT,
    "dtype": Check(_dtype, "must be one of " + ", ".join(DTYPES), DTYPES),
    "quantization": _one_of(*QUANTIZATIONS),
    "kv_cache_dtype": _one_of(*KV_DTYPES),
    "load_format": _one_of("auto", "safetensors", "dummy", "stand-in"),
    "max_model_len": Check(_context, "must be a whole number, 1 or more; None or -1 is the model's own"),
    "tensor_parallel_size": _COUNT,
    "block_size": _one_of(*BLOCK_SIZES),
    "max_num_seqs": _COUNT,
    "max_num_batched_tokens": _COUNT,
    "gpu_memory_utilization": _FRACTION,
    "kv_cache_memory": Check(size, 'must be bytes, or text such as "4GiB"'),
    "num_gpu_blocks_override": _COUNT,
    "swap_space": Check(_amount, "must be GiB, 0 or more"),
    "kv_cache_ratio": _FRACTION,
    "static_decode_blocks": Check(_whole(0), "must be a whole number, 0 or more"),
    "enable_prefix_caching": _FLAG,
    "enable_chunked_prefill": _FLAG,
    "max_num_partial_prefills": _COUNT,
    "max_long_partial_prefills": _COUNT,
    "long_prefill_token_threshold": _COUNT,
    "use_warmup": _FLAG,
    "deterministic": _FLAG,
    "device": _one_of("auto", "cpu", "cuda"),
    "devices": Check(_whole_list(0), "must be a list of card numbers"),
    "num_threads": _COUNT,
    "seed": Check(_whole(0), "must be a whole number, 0 or more"),
    "chat_template": _TEXT,
    "reasoning_parser": _FAMILY,
    "tool_call_parser": _FAMILY,
    "reasoning_parser_plugin": _TEXT,
    "tool_parser_plugin": _TEXT,
    "early_stop_config": Check(as_early_stop, EARLY_STOP_SENTENCE),
    "logits_processors": Check(_names, "must be names of entry points in the group penstock.logits_processors"),
    "enable_lora": _FLAG,
    "max_loras": _COUNT,
    "max_lora_rank": _COUNT,
    "guided_decoding_disable_any_whitespace": _FLAG,
    "served_model_name": _TEXT,
    "connect": Check(_connect, "must be auto, require, start, never, or the path of a daemon's socket", CONNECTS),
    "enforce_eager": _FLAG,
    "graph_batch_sizes": Check(_whole_list(1), "must be a list of whole numbers, 1 or more"),
    "lm_head_fp32": _FLAG,
    "enable_logprob": _FLAG,
    "disable_custom_all_reduce": _FLAG,
    "watchdog_timeout": Check(_amount, "must be seconds, 0 or more; 0 waits forever"),
    "limit_prompt_chars": _COUNT,
    "limit_stop_strings": _COUNT,
    "limit_stop_chars": _COUNT,
    "limit_logit_bias": _COUNT,
    "limit_bad_words": _COUNT,
    "limit_logprobs": _COUNT,
    "window": _COUNT,
    "trace": _TEXT,
    "record": _TEXT,
    "quiet": _FLAG,
}

# --- options of other engines ----------------------------------------------------------------------------------------

_PRIVATE = "processes talk over private sockets here, and servers are the daemon's"
# Why there is no effect, or "" where there is nothing to say.
_ACCEPTED: dict[str, str] = {
    "port": _PRIVATE,
    "metrics_port": _PRIVATE,
    "engine_worker_queue_port": _PRIVATE,
    "cache_queue_port": _PRIVATE,
    "max_waiting_time": _PRIVATE,
    "max_concurrency": _PRIVATE,
    "graph_optimization_config": "",
    "guided_decoding_backend": "",
}

# The values that ask for nothing, and the sentence for any other.
_REFUSED: dict[str, tuple[tuple[Any, ...], str]] = {
    "enable_mm": ((None, False), "multimodal models are not supported yet"),
    "limit_mm_per_prompt": ((None,), "multimodal models are not supported yet"),
    "mm_processor_kwargs": ((None,), "multimodal models are not supported yet"),
    "speculative_config": ((None,), "speculative decoding is not supported yet"),
    "data_parallel_size": ((None, 1), "data parallelism is not supported yet; start several LLMs"),
    "enable_expert_parallel": ((None, False), "mixture-of-experts models are not supported yet"),
    "splitwise_role": ((None, "mixed"), "a split of prefill and decode is not supported yet"),
    "dynamic_load_weight": ((None, False), "weights cannot be exchanged while a tree runs; make a new LLM"),
    "trust_remote_code": ((None, False), "code from a checkpoint is never run; supported families need none"),
}
