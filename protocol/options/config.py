"""`EngineConfig`: every option of a tree, frozen. The command line is generated from it.

A field states an option completely: type, meaning, rule and default. Options of other engines are in
`foreign_options.py` and `foreign_names.py`. Defaults that depend on the model or the machine stay None until a process
that knows these fills them in.
"""

import os
from typing import Annotated, Any, Literal

import msgspec

from ..errors import ConfigError
from ..fields.described import described, rules_of
from ..fields.rules import FLAG, Rule
from ..fields.suggestion import suggestion
from ..parameters.early_stop import EarlyStop
from ..parameters.sampling import SamplingParams
from .foreign_names import ACCEPTED, REFUSED
from .foreign_options import TRANSLATED, under_own_names
from .kv_events import KvEventsConfig
from .nodes import check_nodes
from .option_rules import (
    AMOUNT,
    BLOCK_SIZE,
    CARDS,
    CONNECT,
    CONTEXT,
    COUNT,
    COUNTS,
    DETERMINISM,
    DEVICE,
    DTYPE,
    EARLY_STOP,
    FAMILY,
    FRACTION,
    GIB,
    KV_DTYPE,
    KV_EVENTS,
    LOAD_FORMAT,
    LOGPROBS_MODE,
    LOGPROBS_PER_TOKEN,
    MEDIA_LIMITS,
    PATH,
    PORT,
    PROCESSOR,
    PROCESSORS,
    QUANTIZATION,
    RANKS,
    ROPE,
    RUNNER,
    SECONDS,
    SIZE,
    SPECULATION,
    TEXT,
    TTL,
)
from .speculation import SpeculativeConfig


class EngineConfig(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The options of one tree; `EngineConfig.from_options` makes one from a caller's options."""

    model: Annotated[str, described("bundled name, folder, or hub id", TEXT)]
    tokenizer: Annotated[str | None, described("tokenizer to use, if it isn't the model's own", TEXT)] = None
    revision: Annotated[str | None, described("branch, tag or commit of a hub id", TEXT)] = None
    dtype: Annotated[str, described("auto (the checkpoint's), float32, float16 or bfloat16", DTYPE)] = "auto"
    quantization: Annotated[
        str | None, described("weight format: int8, int4, wint8 or wint4, or JSON by layer", QUANTIZATION)
    ] = None
    kv_cache_dtype: Annotated[str, described("auto (= dtype), fp32, fp16, bf16, int8 or uint4", KV_DTYPE)] = "auto"
    load_format: Annotated[str, described("auto, dummy (random weights) or stand-in (no model)", LOAD_FORMAT)] = "auto"
    max_model_len: Annotated[int | None, described("maximum context: prompt and output tokens", CONTEXT)] = None
    rope_scaling: Annotated[dict[str, Any] | None, described("RoPE scaling, instead of the model's own", ROPE)] = None
    tensor_parallel_size: Annotated[int, described("number of ranks that share each layer", RANKS)] = 1
    nnodes: Annotated[int, described("number of machines that share the ranks of a tree", COUNT)] = 1
    node_rank: Annotated[int, described("number of this machine among them; 0 has the front end", AMOUNT)] = 0
    master_addr: Annotated[str, described("address of node 0, at which the others join", TEXT)] = "127.0.0.1"
    master_port: Annotated[int, described("port of node 0, at which the others join", PORT)] = 29501
    node_key_file: Annotated[
        str | None, described("file of mode 0600 with the machines' shared key; else PENSTOCK_NODE_KEY", PATH)
    ] = None
    data_parallel_size: Annotated[
        int, described("number of trees, which share kv_cache_memory and num_threads", COUNT)
    ] = 1
    block_size: Annotated[int, described("tokens per KV block: 16, 32, 64 or 128", BLOCK_SIZE)] = 32
    max_num_seqs: Annotated[int | None, described("maximum sequences per step (GPU 256, CPU 64)", COUNT)] = None
    max_num_batched_tokens: Annotated[int | None, described("maximum tokens per step (GPU 8192, CPU 512)", COUNT)] = (
        None
    )
    gpu_memory_utilization: Annotated[float, described("maximum share of the GPU's memory in use", FRACTION)] = 0.9
    kv_cache_memory: Annotated[int | None, described('size of the KV cache: bytes, or "4GiB"', SIZE)] = None
    num_gpu_blocks_override: Annotated[int | None, described("number of KV blocks, overriding the plan", COUNT)] = None
    swap_space: Annotated[float | None, described("GiB of CPU memory per rank for evicted KV blocks", GIB)] = None
    kv_cache_ratio: Annotated[float | None, described("share of KV blocks for running prompts", FRACTION)] = None
    static_decode_blocks: Annotated[int, described("KV blocks kept free for each admitted request", AMOUNT)] = 2
    enable_prefix_caching: Annotated[bool, described("reuse the KV blocks of shared prefixes", FLAG)] = True
    prefix_cache_ttl: Annotated[float | None, described("seconds until an unused prefix is dropped", TTL)] = None
    prefix_cache_dir: Annotated[str | None, described("folder that keeps KV blocks between runs", PATH)] = None
    prefix_cache_size: Annotated[
        int | None, described('size of that folder: bytes, or "20GiB"; alone, in the cache folder', SIZE)
    ] = None
    kv_events_config: Annotated[
        KvEventsConfig | None, described("publish which KV blocks can be found, for routers", KV_EVENTS)
    ] = None
    enable_chunked_prefill: Annotated[bool, described("spread long prompts over several steps", FLAG)] = True
    max_num_partial_prefills: Annotated[int | None, described("maximum prompts computed at once", COUNT)] = None
    max_long_partial_prefills: Annotated[int | None, described("maximum long prompts among them", COUNT)] = None
    long_prefill_token_threshold: Annotated[int | None, described("tokens from which a prompt is long", COUNT)] = None
    use_warmup: Annotated[bool, described("run a full step before the first request (GPU)", FLAG)] = True
    speculative_config: Annotated[
        SpeculativeConfig | None, described("how to draft tokens; None: where it pays, False: never", SPECULATION)
    ] = None
    runner: Annotated[str, described("auto (as the model's files say), generate or pooling", RUNNER)] = "auto"
    deterministic: Annotated[
        bool | Literal["portable"] | None,
        described("make answers independent of the rest of the batch; portable: and of the CPU", DETERMINISM),
    ] = None
    device: Annotated[str, described("auto, cpu or cuda", DEVICE)] = "auto"
    devices: Annotated[
        list[int | list[int]] | None, described("numbers of the GPUs to use, or a list of them for each tree", CARDS)
    ] = None
    num_threads: Annotated[int | None, described("CPU threads of all ranks; default: the cores", COUNT)] = None
    seed: Annotated[int, described("seed of requests that set none", AMOUNT)] = 0
    chat_template: Annotated[str | None, described("chat template to use: text, or a file", TEXT)] = None
    reasoning_parser: Annotated[str | None, described("parser of thoughts: auto, none or a family", FAMILY)] = None
    tool_call_parser: Annotated[str | None, described("parser of tool calls: auto, none or a family", FAMILY)] = None
    reasoning_parser_plugin: Annotated[str | None, described("Python file with more reasoning parsers", TEXT)] = None
    tool_parser_plugin: Annotated[str | None, described("Python file with more tool call parsers", TEXT)] = None
    early_stop_config: Annotated[EarlyStop | None, described("early_stop of requests that set none", EARLY_STOP)] = None
    logits_processors: Annotated[list[str] | None, described("logits processors to load, by name", PROCESSORS)] = None
    guided_decoding_disable_any_whitespace: Annotated[bool, described("write guided JSON compactly", FLAG)] = False
    served_model_name: Annotated[str | None, described("name of the model in outputs and logs", TEXT)] = None
    enable_expert_parallel: Annotated[bool, described("give each rank whole experts", FLAG)] = False
    enable_lora: Annotated[bool, described("reserve memory for LoRA adapters", FLAG)] = False
    max_loras: Annotated[int, described("maximum number of adapters in memory", COUNT)] = 4
    max_lora_rank: Annotated[int, described("maximum rank of an adapter", COUNT)] = 64
    enable_mm: Annotated[bool | None, described("accept pictures; default: if the model can", FLAG)] = None
    limit_mm_per_prompt: Annotated[
        dict[str, Any] | None, described("maximum pictures and videos per prompt; default: 100 and 8", MEDIA_LIMITS)
    ] = None
    mm_processor_kwargs: Annotated[
        dict[str, Any] | None, described("options of the image processor, such as max_pixels", PROCESSOR)
    ] = None
    mm_cache: Annotated[int | None, described('memory for encoded pictures: bytes, or "1GiB"', SIZE)] = None
    mm_encoder_budget: Annotated[
        int | None, described("patches x layers encoded per step next to streams; default: measured", COUNT)
    ] = None
    connect: Annotated[str, described("use the daemon: auto, require, start, never or its address", CONNECT)] = "never"
    enforce_eager: Annotated[bool, described("don't capture CUDA graphs", FLAG)] = False
    graph_batch_sizes: Annotated[list[int] | None, described("batch sizes of captured CUDA graphs", COUNTS)] = None
    lm_head_fp32: Annotated[bool, described("keep the output head in float32", FLAG)] = False
    enable_logprob: Annotated[bool, described("allow requests for log-probabilities", FLAG)] = True
    logprobs_mode: Annotated[
        str, described("what logprobs are: of the model, or processed as the draw sees it", LOGPROBS_MODE)
    ] = "raw_logprobs"
    max_logprobs: Annotated[
        int | None, described("maximum logprobs per token; default: 20, or all with -1", LOGPROBS_PER_TOKEN)
    ] = None
    disable_custom_all_reduce: Annotated[bool, described("use NCCL for every all-reduce", FLAG)] = False
    watchdog_timeout: Annotated[float, described("seconds until a silent process is hung; 0: never", SECONDS)] = 120.0
    limit_prompt_chars: Annotated[int | None, described("maximum characters per prompt (16 x context)", COUNT)] = None
    limit_stop_strings: Annotated[int, described("maximum stop strings per request", COUNT)] = 64
    limit_stop_chars: Annotated[int, described("maximum characters per stop string", COUNT)] = 256
    limit_logit_bias: Annotated[int, described("maximum logit_bias entries per request", COUNT)] = 1024
    limit_bad_words: Annotated[int, described("maximum bad_words per request", COUNT)] = 1024
    limit_logprobs: Annotated[int, described("maximum values per request with logprobs=-1", COUNT)] = 1 << 26
    window: Annotated[int, described("requests that a batch call submits ahead", COUNT)] = 1024
    trace: Annotated[str | None, described("write a timeline for Perfetto to this file", TEXT)] = None
    record: Annotated[str | None, described("record the engine's messages to this file", TEXT)] = None
    quiet: Annotated[bool, described("hide tables, progress bars and notices", FLAG)] = False

    @classmethod
    def from_options(cls, model: str | os.PathLike[str], **options: Any) -> "EngineConfig":
        """Check a caller's options, and resolve aliases and options of other engines."""
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
        return _fitting(cls(**settled))

    @property
    def keeps_prefixes(self) -> bool:
        """Whether KV blocks are kept on disk: either option is enough."""
        return self.prefix_cache_dir is not None or self.prefix_cache_size is not None

    @property
    def ranks_per_node(self) -> int:
        return self.tensor_parallel_size // self.nnodes

    @property
    def own_devices(self) -> list[int]:
        """The devices of a single tree; empty if none are chosen."""
        given = self.devices or []
        return [number for each in given for number in (each if isinstance(each, list) else [each])]

    @property
    def drafts(self) -> bool:
        """Whether tokens may be drafted."""
        return hindrance_of_drafts(self) is None

    @classmethod
    def given(cls, options: dict[str, Any]) -> dict[str, Any]:
        """The caller's options, checked and under our own names, without those that have no effect."""
        known = {field.name for field in msgspec.structs.fields(cls)}
        named = ((name, value) for name, value in under_own_names(options) if name in known)
        return {name: _checked(name, value) for name, value in named if value is not None}

    def step_limits(self, device: str) -> tuple[int, int]:
        """`max_num_seqs` and `max_num_batched_tokens`; if unset, the defaults for the device ("cpu", "cuda:0")."""
        num_seqs, num_tokens = _STEP_LIMITS[device.split(":")[0]]
        return self.max_num_seqs or num_seqs, self.max_num_batched_tokens or num_tokens


# The CPU's tokens per step are measured (`scripts/benchmark budget`): more are slower, and delay other requests.
_STEP_LIMITS = {"cpu": (64, 512), "cuda": (256, 8192)}


def _fitting(config: EngineConfig) -> EngineConfig:
    """The config, if its options go together."""
    if config.keeps_prefixes and not config.enable_prefix_caching:
        raise ConfigError(
            "prefix_cache_dir and prefix_cache_size keep prefixes on disk, and enable_prefix_caching=False lets no "
            "request use another's. Leave one of them out."
        )
    if config.keeps_prefixes and config.record:
        raise ConfigError(
            "record=… records plans, which can be replayed only where nothing comes from a disk. Leave out "
            "prefix_cache_dir and prefix_cache_size."
        )
    if config.kv_events_config is not None and not config.enable_prefix_caching:
        raise ConfigError(
            "kv_events_config publishes which prefixes can be found, and enable_prefix_caching=False lets no request "
            "find any. Leave one of them out."
        )
    _check_trees(config)
    check_nodes(config)
    method = None if config.speculative_config is None else config.speculative_config.method
    if method not in (None, "off") and (why := hindrance_of_drafts(config)) is not None:
        raise ConfigError(f"speculative_config={method!r}: {why}. Leave one of them out.")
    return config


def _check_trees(config: EngineConfig) -> None:
    """Raise if options can't be shared among `data_parallel_size` trees."""
    count, lists = config.data_parallel_size, [each for each in config.devices or () if isinstance(each, list)]
    if lists and len(lists) != count:
        raise ConfigError(
            f"devices={config.devices} is for {len(lists)} trees, and data_parallel_size={count}. Give "
            "a list for each tree, or the devices of all trees in one list."
        )
    if count > 1 and (name := next((each for each in ("trace", "record") if getattr(config, each)), None)):
        raise ConfigError(f"{name}=… writes down one tree, and data_parallel_size={count}. Leave one of them out.")
    if config.kv_events_config is not None:
        config.kv_events_config.check_trees(count)
    ranks = count * config.tensor_parallel_size
    if count > 1 and config.num_threads is not None and config.num_threads < ranks:
        raise ConfigError(
            f"num_threads={config.num_threads} is for all trees, and {sized(config)} needs {ranks}, one for each rank. "
            "Use fewer trees or more threads."
        )


def sized(config: EngineConfig) -> str:
    """The number of trees and ranks, in the options' words."""
    ranks = f" with tensor_parallel_size={config.tensor_parallel_size}" if config.tensor_parallel_size > 1 else ""
    return f"data_parallel_size={config.data_parallel_size}{ranks}"


def hindrance_of_drafts(config: EngineConfig) -> str | None:
    """Return why no tokens may be drafted; None if they may."""
    if config.speculative_config is not None and config.speculative_config.method == "off":
        return "speculative_config=False turns drafts off"
    if config.record is not None:
        return "record=… records plans, which fit only the drafts that were found then"
    if config.runner == "pooling":
        return "runner='pooling' gives numbers, and no token is drawn"
    if config.logits_processors:
        return "logits_processors would be called for drafts, which are not part of the answer"
    return None


def _unknown(name: str, known: set[str]) -> str:
    if name in SamplingParams.__struct_fields__:
        return f"There is no option {name!r}. It is a field of SamplingParams, which a call is given."
    hint = suggestion(name, known | {*ACCEPTED, *REFUSED, *TRANSLATED})
    return f"There is no option {name!r}.{hint or ' See `penstock generate --help` for all options.'}"


def _refuse(name: str, value: Any) -> None:
    harmless, sentence = REFUSED[name]
    Rule(lambda value: value, harmless.__contains__, sentence).checked(name, value, ConfigError)


def _checked(name: str, value: Any) -> Any:
    return _CHECKS[name].checked(name, value, ConfigError)


_CHECKS = rules_of(EngineConfig)
