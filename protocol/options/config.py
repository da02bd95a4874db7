"""`EngineConfig`: every option of a tree, frozen; the command line is made from it, too.

A field states an option completely: type, meaning, rule and default. Options of other engines stand in
`foreign_options.py`. Defaults that depend on the model or the machine stay None until a process that knows these fills
them in.
"""

import os
from typing import Annotated, Any

import msgspec

from ..errors import ConfigError
from ..fields.described import described, rules_of
from ..fields.suggestion import suggestion
from ..parameters.early_stop import EarlyStop
from ..parameters.sampling import SamplingParams
from .foreign_options import ACCEPTED, REFUSED, TRANSLATED, under_own_names
from .option_rules import (
    AMOUNT,
    BLOCK_SIZE,
    CARDS,
    CONNECT,
    CONTEXT,
    COUNT,
    COUNTS,
    DEVICE,
    DTYPE,
    EARLY_STOP,
    FAMILY,
    FLAG,
    FRACTION,
    GIB,
    KV_DTYPE,
    LOAD_FORMAT,
    MEDIA_LIMITS,
    PROCESSOR,
    PROCESSORS,
    QUANTIZATION,
    ROPE,
    SECONDS,
    SIZE,
    TEXT,
    TTL,
)


class EngineConfig(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One tree's options. `EngineConfig.from_options` makes one of what a person wrote."""

    model: Annotated[str, described("bundled name, folder, or hub id", TEXT)]
    tokenizer: Annotated[str | None, described("where the tokenizer is, if not with the model", TEXT)] = None
    revision: Annotated[str | None, described("branch, tag or commit of a hub id", TEXT)] = None
    dtype: Annotated[str, described("auto (the checkpoint's), float32, float16 or bfloat16", DTYPE)] = "auto"
    quantization: Annotated[
        str | None, described("of weights: int8, int4, wint8 or wint4, or JSON that maps layers to these", QUANTIZATION)
    ] = None
    kv_cache_dtype: Annotated[str, described("auto (= dtype), fp32, fp16, bf16, int8 or uint4", KV_DTYPE)] = "auto"
    load_format: Annotated[str, described("auto, dummy (random weights) or stand-in (no model)", LOAD_FORMAT)] = "auto"
    max_model_len: Annotated[int | None, described("prompt and output tokens together", CONTEXT)] = None
    rope_scaling: Annotated[
        dict[str, Any] | None, described("rotary positions, instead of the model's own scaling of them", ROPE)
    ] = None
    tensor_parallel_size: Annotated[int, described("processes that share each layer", COUNT)] = 1
    block_size: Annotated[int, described("tokens a KV block: 16, 32, 64 or 128", BLOCK_SIZE)] = 32
    max_num_seqs: Annotated[int | None, described("sequences computed together; unset: 256 GPU, 64 CPU", COUNT)] = None
    max_num_batched_tokens: Annotated[int | None, described("tokens a step; unset: 8192 GPU, 512 CPU", COUNT)] = None
    gpu_memory_utilization: Annotated[float, described("share of the card's memory in use at most", FRACTION)] = 0.9
    kv_cache_memory: Annotated[int | None, described('bytes for KV blocks, or "4GiB"', SIZE)] = None
    num_gpu_blocks_override: Annotated[int | None, described("KV blocks, whatever the plan says", COUNT)] = None
    swap_space: Annotated[float | None, described("GiB a rank of CPU memory for evicted KV blocks", GIB)] = None
    kv_cache_ratio: Annotated[float | None, described("share of blocks for prompts in computation", FRACTION)] = None
    static_decode_blocks: Annotated[int, described("blocks kept free for each request admitted", AMOUNT)] = 2
    enable_prefix_caching: Annotated[bool, described("reuse the KV blocks of equal prefixes", FLAG)] = True
    prefix_cache_ttl: Annotated[float | None, described("seconds until an unused prefix is forgotten", TTL)] = None
    enable_chunked_prefill: Annotated[bool, described("spread long prompts over several steps", FLAG)] = True
    max_num_partial_prefills: Annotated[int | None, described("prompts in computation at once", COUNT)] = None
    max_long_partial_prefills: Annotated[int | None, described("long ones among them", COUNT)] = None
    long_prefill_token_threshold: Annotated[int | None, described("tokens that make a prompt long", COUNT)] = None
    use_warmup: Annotated[bool, described("on a GPU, one full step before the first request", FLAG)] = True
    deterministic: Annotated[bool | None, described("answers do not depend on the batch's company", FLAG)] = None
    device: Annotated[str, described("auto, cpu or cuda", DEVICE)] = "auto"
    devices: Annotated[list[int] | None, described("which cards", CARDS)] = None
    num_threads: Annotated[int | None, described("CPU threads of all ranks together; unset: the cores", COUNT)] = None
    seed: Annotated[int, described("for requests that bring none", AMOUNT)] = 0
    chat_template: Annotated[str | None, described("template text or file, instead of the model's", TEXT)] = None
    reasoning_parser: Annotated[str | None, described("thoughts: auto, none, a family; unset: of chats", FAMILY)] = None
    tool_call_parser: Annotated[str | None, described("calls: auto, none, a family; unset: of chats", FAMILY)] = None
    reasoning_parser_plugin: Annotated[str | None, described("Python file with further families", TEXT)] = None
    tool_parser_plugin: Annotated[str | None, described("the same for tool calls", TEXT)] = None
    early_stop_config: Annotated[EarlyStop | None, described("early_stop of requests that bring none", EARLY_STOP)] = (
        None
    )
    logits_processors: Annotated[list[str] | None, described("entry points that change logits", PROCESSORS)] = None
    guided_decoding_disable_any_whitespace: Annotated[bool, described("guided JSON is compact", FLAG)] = False
    served_model_name: Annotated[str | None, described("the name in outputs and logs", TEXT)] = None
    enable_expert_parallel: Annotated[bool, described("ranks have whole experts, not a part of each", FLAG)] = False
    enable_lora: Annotated[bool, described("make room for LoRA adapters", FLAG)] = False
    max_loras: Annotated[int, described("adapters in memory at once", COUNT)] = 4
    max_lora_rank: Annotated[int, described("the largest rank that an adapter may have", COUNT)] = 64
    enable_mm: Annotated[bool | None, described("pictures; unset: where the model sees", FLAG)] = None
    limit_mm_per_prompt: Annotated[
        dict[str, Any] | None, described("pictures and videos a prompt; unset: 100 and 8", MEDIA_LIMITS)
    ] = None
    mm_processor_kwargs: Annotated[
        dict[str, Any] | None, described("sizes of pictures, such as max_pixels", PROCESSOR)
    ] = None
    mm_cache: Annotated[int | None, described('bytes for pictures that were encoded, or "1GiB"', SIZE)] = None
    mm_encoder_budget: Annotated[
        int | None, described("patches x layers a step beside streams; unset: measured", COUNT)
    ] = None
    connect: Annotated[str, described("use the daemon: auto, require, start, never or its address", CONNECT)] = "never"
    enforce_eager: Annotated[bool, described("no captured graphs on a GPU", FLAG)] = False
    graph_batch_sizes: Annotated[list[int] | None, described("rows of captured steps; unset: many", COUNTS)] = None
    lm_head_fp32: Annotated[bool, described("keep the head's weights in float32", FLAG)] = False
    enable_logprob: Annotated[bool, described("requests may ask for log-probabilities", FLAG)] = True
    disable_custom_all_reduce: Annotated[bool, described("let NCCL add up all that ranks add", FLAG)] = False
    watchdog_timeout: Annotated[float, described("seconds until a silent process has hung; 0: never", SECONDS)] = 120.0
    limit_prompt_chars: Annotated[int | None, described("characters a prompt; unset: 16 x context", COUNT)] = None
    limit_stop_strings: Annotated[int, described("stop strings a request", COUNT)] = 64
    limit_stop_chars: Annotated[int, described("characters a stop string", COUNT)] = 256
    limit_logit_bias: Annotated[int, described("logit_bias entries a request", COUNT)] = 1024
    limit_bad_words: Annotated[int, described("bad_words a request", COUNT)] = 1024
    limit_logprobs: Annotated[int, described("values where logprobs=-1 asks for whole vocabularies", COUNT)] = 1 << 26
    window: Annotated[int, described("requests that a batch call keeps submitted", COUNT)] = 1024
    trace: Annotated[str | None, described("write a timeline for Perfetto to this file", TEXT)] = None
    record: Annotated[str | None, described("record the engine's messages to this file", TEXT)] = None
    quiet: Annotated[bool, described("no tables, bars or notices", FLAG)] = False

    @classmethod
    def from_options(cls, model: str | os.PathLike[str], **options: Any) -> "EngineConfig":
        """Check what a person wrote, and resolve aliases and options of other engines."""
        known = {field.name for field in msgspec.structs.fields(cls)}
        settled: dict[str, Any] = {"model": _checked("model", model)}
        for name, value in under_own_names(options):
            if name in REFUSED:
                _refuse(name, value)
            elif name not in known and name not in ACCEPTED:
                raise TypeError(_unknown(name, known))
            elif name in known and value is not None:
                settled[name] = _checked(name, value)
        if settled.get("max_model_len") == -1:
            settled.pop("max_model_len")
        if "gpu_memory_utilization" not in settled and (ratio := os.environ.get("BFC_MEM_RATIO")):
            settled["gpu_memory_utilization"] = _checked("gpu_memory_utilization", ratio)
        return cls(**settled)

    @classmethod
    def given(cls, options: dict[str, Any]) -> dict[str, Any]:
        """The options that a person wrote, checked and by our own names, without those that have no effect."""
        known = {field.name for field in msgspec.structs.fields(cls)}
        named = ((name, value) for name, value in under_own_names(options) if name in known)
        return {name: _checked(name, value) for name, value in named if value is not None}

    def step_limits(self, device: str) -> tuple[int, int]:
        """`max_num_seqs` and `max_num_batched_tokens`; if unset, what suits the device ("cpu", "cuda:0")."""
        num_seqs, num_tokens = _STEP_LIMITS[device.split(":")[0]]
        return self.max_num_seqs or num_seqs, self.max_num_batched_tokens or num_tokens


# The CPU's tokens a step are measured (`scripts/bench_budget.py`): more are slower, and delay other requests.
_STEP_LIMITS = {"cpu": (64, 512), "cuda": (256, 8192)}


def _unknown(name: str, known: set[str]) -> str:
    if name in SamplingParams.__struct_fields__:
        return f"There is no option {name!r}. It is a field of SamplingParams, which a call is given."
    hint = suggestion(name, known | {*ACCEPTED, *REFUSED, *TRANSLATED})
    return f"There is no option {name!r}.{hint or ' See `penstock generate --help` for all options.'}"


def _refuse(name: str, value: Any) -> None:
    harmless, sentence = REFUSED[name]
    if value not in harmless:
        raise ConfigError(f"{name}={value!r}: {sentence}.")


def _checked(name: str, value: Any) -> Any:
    return _CHECKS[name].checked(name, value, ConfigError)


_CHECKS = rules_of(EngineConfig)
