"""The options of `LLM(…)` as type checkers and editors see them, each with every type it accepts.

`EngineConfig` has the meanings and defaults; tests check that both have the same names. Options of other engines that
have no effect here are left out, so that a checker reports them.
"""

import os
from collections.abc import Mapping, Sequence
from inspect import Parameter, Signature
from typing import Any, Literal, Protocol, TypedDict, TypeVar

from ..fields.field_help import in_words, parameters
from ..parameters.early_stop import EarlyStop
from .config import EngineConfig
from .kv_events import KvEventsConfig
from .speculation import SpeculativeConfig

FilePath = str | os.PathLike[str]
QuantizedKind = Literal["int8", "int4", "wint8", "wint4"]
Class = TypeVar("Class", bound=type)


class NumberType(Protocol):
    """The type of torch.float16 and the like, without importing torch."""

    @property
    def itemsize(self) -> int: ...


class EngineOptions(TypedDict, total=False):
    tokenizer: FilePath | None
    revision: str | None
    dtype: Literal["auto", "float32", "float16", "bfloat16", "fp32", "float", "fp16", "half", "bf16"] | NumberType
    quantization: QuantizedKind | Mapping[str, str | None] | None
    kv_cache_dtype: Literal["auto", "fp32", "fp16", "bf16", "int8", "uint4"]
    load_format: Literal["auto", "safetensors", "dummy", "stand-in"]
    load_choices: Literal["default", "default_v1", "dummy"] | None  # FastDeploy's name for it
    max_model_len: int | None
    rope_scaling: Mapping[str, Any] | None
    tensor_parallel_size: int
    nnodes: int
    node_rank: int
    master_addr: str
    master_port: int
    node_key_file: FilePath | None
    data_parallel_size: int
    block_size: Literal[16, 32, 64, 128]
    max_num_seqs: int | None
    max_num_batched_tokens: int | None
    gpu_memory_utilization: float
    kv_cache_memory: int | str | None
    kv_cache_memory_bytes: int | str | None  # vLLM's name for it
    num_gpu_blocks_override: int | None
    swap_space: float | None
    kv_cache_ratio: float | None
    static_decode_blocks: int
    enable_prefix_caching: bool
    prefix_cache_ttl: float | None
    prefix_cache_dir: FilePath | None
    prefix_cache_size: int | str | None
    kv_events_config: KvEventsConfig | Mapping[str, Any] | str | bool | None
    enable_chunked_prefill: bool
    max_num_partial_prefills: int | None
    max_long_partial_prefills: int | None
    long_prefill_token_threshold: int | None
    use_warmup: bool
    speculative_config: SpeculativeConfig | Mapping[str, Any] | str | bool | None
    # vLLM's earlier form of it
    speculative_model: FilePath | None
    num_speculative_tokens: int | None
    ngram_prompt_lookup_min: int | None
    ngram_prompt_lookup_max: int | None
    runner: Literal["auto", "generate", "pooling"]
    task: str | None  # an earlier option of vLLM's and FastDeploy's for it
    deterministic: bool | Literal["portable"] | None
    device: Literal["auto", "cpu", "cuda"]
    devices: int | Sequence[int] | Sequence[Sequence[int]] | None
    num_threads: int | None
    seed: int | None
    chat_template: FilePath | None
    reasoning_parser: str | None
    tool_call_parser: str | None
    tool_parser: str | None  # FastDeploy's name for tool_call_parser
    reasoning_parser_plugin: FilePath | None
    tool_parser_plugin: FilePath | None
    early_stop_config: EarlyStop | Mapping[str, Any] | None
    logits_processors: str | Sequence[str] | None
    guided_decoding_disable_any_whitespace: bool
    served_model_name: str | None
    enable_expert_parallel: bool
    enable_lora: bool
    max_loras: int
    max_lora_rank: int
    enable_mm: bool | None
    limit_mm_per_prompt: Mapping[str, Any] | None
    mm_processor_kwargs: Mapping[str, Any] | None
    mm_cache: int | str | None
    mm_encoder_budget: int | None
    connect: FilePath | None
    enable_early_stop: bool | None  # FastDeploy's switch for early_stop_config
    enforce_eager: bool
    use_cudagraph: bool | None  # the opposite of enforce_eager
    graph_optimization_config: str | Mapping[str, Any] | None  # FastDeploy's form of this and the next
    graph_batch_sizes: int | Sequence[int] | None
    cudagraph_capture_sizes: int | Sequence[int] | None  # vLLM's name for it, and an earlier one
    cuda_graph_sizes: int | Sequence[int] | None
    lm_head_fp32: bool
    enable_logprob: bool
    logprobs_mode: Literal["raw_logprobs", "processed_logprobs", "raw_logits", "processed_logits"]
    max_logprobs: int | None
    disable_custom_all_reduce: bool
    watchdog_timeout: float
    limit_prompt_chars: int | None
    limit_stop_strings: int
    limit_stop_chars: int
    limit_logit_bias: int
    limit_bad_words: int
    limit_logprobs: int
    window: int
    trace: FilePath | None
    record: FilePath | None
    quiet: bool


def explain_options(kind: Class) -> Class:
    """Add the options to a class's docstring and signature, so that `help()` and notebooks list them."""
    kind.__doc__ = f"{kind.__doc__ or ''}\n\nOptions:\n\n{in_words(EngineConfig, leave_out=('model',))}\n"
    given = [Parameter(name, Parameter.POSITIONAL_OR_KEYWORD) for name in ("self", "model")]
    constructor: Any = kind.__init__  # type: ignore[misc]
    constructor.__signature__ = Signature([*given, *parameters(EngineConfig, leave_out=("model",))])
    return kind
