"""Options of FastDeploy's and vLLM's `EngineArgs` that have no effect here, or are refused, and why.

An option that only says how another engine works inside has no effect. One that would change answers, or ask for
something that isn't built, is refused unless its value asks for nothing. To add one, add its name to a row; a new
sentence is a new row. docs/coming-from.md has a table of them.
"""

from typing import Any

# Why the options have no effect, and their names.
_IDLE: tuple[tuple[str, str], ...] = (
    (
        "processes talk over private sockets here, and servers are the daemon's",
        "port metrics_port engine_worker_queue_port cache_queue_port pd_comm_port rdma_comm_ports skip_port_check "
        "innode_prefill_ports max_waiting_time max_concurrency data_parallel_rpc_port cache_transfer_protocol",
    ),
    (
        "requests wait in the engine's own queue, which needs no server",
        "scheduler_max_size scheduler_ttl scheduler_host scheduler_port scheduler_db scheduler_password "
        "scheduler_topic scheduler_min_load_score scheduler_load_shards_num scheduler_sync_period "
        "scheduler_expire_period scheduler_release_load_expire_period scheduler_reader_parallel "
        "scheduler_writer_parallel scheduler_reader_batch_size scheduler_writer_batch_size",
    ),
    (
        "KV blocks are managed in one way here",
        "use_v2_block_manager prealloc_dec_block_slot_num_threshold enable_output_caching write_policy "
        "prefix_caching_hash_algo disable_hybrid_kv_cache_manager kv_sharing_fast_prefill mamba_block_size "
        "num_lookahead_slots",
    ),
    (
        "layers, kernels and the ranks' collectives are Penstock's own, chosen when the model loads",
        "model_impl enable_flashinfer_allreduce_fusion use_internode_ll_two_stage disable_sequence_parallel_moe "
        "shutdown_comm_group_if_worker_idle enable_chunked_moe chunked_moe_size enable_eplb eplb_config "
        "all2all_backend enable_dbo dbo_decode_token_threshold dbo_prefill_token_threshold "
        "disable_nccl_for_dp_synchronization expert_placement_strategy num_redundant_experts eplb_window_size "
        "eplb_step_interval eplb_log_balancedness disable_cascade_attn fully_sharded_loras "
        "mm_encoder_tp_mode mm_encoder_attn_backend enable_multimodal_encoder_data_parallel",
    ),
    (
        "steps overlap and are captured in one way here",
        "enable_overlap_schedule async_scheduling compilation_config max_cudagraph_capture_size",
    ),
    (
        "a tree starts its own processes, one for each rank",
        "distributed_executor_backend max_parallel_loading_workers ray_workers_use_nsight data_parallel_backend",
    ),
    (
        "weights are read from safetensors or GGUF files in one way here",
        "safetensors_load_strategy model_loader_extra_config ignore_patterns use_tqdm_on_load pt_load_map_location "
        "config_format tokenizer_mode",
    ),
    (
        "encoded pictures are kept as long as mm_cache has room",
        "max_encoder_cache max_processor_cache disable_mm_preprocessor_cache mm_processor_cache_gb "
        "mm_processor_cache_type mm_shm_cache_max_object_size_mb skip_mm_profiling",
    ),
    ("pictures are encoded before the steps that need them", "disable_chunked_mm_input interleave_mm_strings"),
    (
        "figures are shown on demand (`LLM.stats()`, `penstock ps`, /metrics)",
        "disable_log_stats aggregate_engine_logging show_hidden_metrics_for_version",
    ),
    (
        "one library, llguidance, compiles every shape of an answer",
        "guided_decoding_backend guided_decoding_disable_fallback",
    ),
    ("adapters are computed in the model's own number format", "lora_dtype lora_extra_vocab_size max_cpu_loras"),
)

# Options without effect, and why.
ACCEPTED: dict[str, str] = {name: reason for reason, names in _IDLE for name in names.split()}

_NO_CODE = "code from a checkpoint is never run; supported families need none"
_NO_CLASSES = "a caller's classes can't replace parts of the engine; parsers and processors have entry points"
_FROM_FILES = (
    "a model's files say what it gives; runner='pooling' takes vectors from one that writes text, and PoolingParams "
    "has the rest"
)
_OVERRIDES = (
    "the model is computed as its config.json says, and a Qwen3-Reranker is known without it; change a copy of "
    "config.json"
)
_ONE_MACHINE = "a tree runs on one machine; put replicas behind a router of yours"
_WEIGHTS_STAY = "weights cannot be exchanged while a tree runs; make a new LLM"
_NO_SPLIT = "a split of prefill and decode is not supported yet"
_OWN_REPLICAS = "all trees are on this machine, and each request goes to one that is chosen; give data_parallel_size"
_ONE_REVISION = "a repository is read at one revision; give revision"
_UNGIVEN = "it is not given; logprobs are"
_CHANGED_MODEL = "the model is computed as its config.json says; change a copy of it, or give rope_scaling"
_NO_STORE = "KV blocks are kept in CPU memory (swap_space) and on disk (prefix_cache_dir)"
_NO_TRACES = "timelines are written by the option trace"
_OWN_NUMBERS = "states and scales have the format of kv_cache_dtype"
_DEFAULTS = "a request's parameters are given with it, and the defaults are the model's own"
# The values that change nothing, and the error message for any other.
REFUSED: dict[str, tuple[tuple[Any, ...], str]] = {
    **dict.fromkeys(("data_parallel_rank", "data_parallel_start_rank", "local_data_parallel_id"),
                    ((None, 0), _OWN_REPLICAS)),
    **dict.fromkeys(("data_parallel_size_local", "data_parallel_hybrid_lb"), ((None, 0, 1), _OWN_REPLICAS)),
    **dict.fromkeys(("pipeline_parallel_size", "decode_context_parallel_size"),
                    ((None, 1), "layers are not spread over ranks one after another; give tensor_parallel_size")),
    "splitwise_role": ((None, "mixed"), _NO_SPLIT),
    "kv_transfer_config": ((None,), _NO_SPLIT),
    "dynamic_load_weight": ((None, False), _WEIGHTS_STAY),
    "load_strategy": ((None, "normal"), _WEIGHTS_STAY),
    "rsync_config": ((None,), _WEIGHTS_STAY),
    "enable_sleep_mode": ((None, False), "close() gives the memory back; make a new one when it is needed"),
    "trust_remote_code": ((None, False), _NO_CODE),
    "code_revision": ((None,), _NO_CODE),
    "tokenizer_revision": ((None,), _ONE_REVISION),
    **dict.fromkeys(("worker_cls", "worker_extension_cls", "scheduler_cls"), ((None, "", "auto"), _NO_CLASSES)),
    **dict.fromkeys(("io_processor_plugin", "logits_processor_pattern"), ((None,), _NO_CLASSES)),
    "model_config_name": ((None, "config.json"), "a model's configuration is its config.json"),
    "hf_config_path": ((None,), "a model's configuration is its config.json"),
    "tokenizer_base_url": ((None,), "texts are tokenized in the caller's process; give tokenizer"),
    "skip_tokenizer_init": ((None, False), "a tree always has its tokenizer; token ids may be given and asked for"),
    "hf_token": ((None, True), "downloads read the token from HF_TOKEN"),
    "download_dir": ((None,), "downloads are kept where HF_HOME says"),
    "convert": ((None, "auto", "none"), _FROM_FILES),
    **dict.fromkeys(("override_pooler_config", "pooler_config"), ((None,), _FROM_FILES)),
    "hf_overrides": ((None, {}), _OVERRIDES),
    **dict.fromkeys(("override_attention_dtype", "rope_theta"), ((None, {}), _CHANGED_MODEL)),
    "plas_attention_config": ((None,), _CHANGED_MODEL),
    "disable_sliding_window": ((None, False), _CHANGED_MODEL),
    "ips": ((None, [], "0.0.0.0", "127.0.0.1"), _ONE_MACHINE),
    **dict.fromkeys(("router", "data_parallel_address"), ((None,), _ONE_MACHINE)),
    "scheduler_name": ((None, "local"), _ONE_MACHINE),
    "scheduling_policy": ((None, "fcfs", "priority"), "requests go by priority, then first come, first served"),
    "kvcache_storage_backend": ((None,), _NO_STORE),
    "cpu_offload_gb": ((None, 0), "weights stay on the device; quantization makes them smaller"),
    **dict.fromkeys(("enable_keep_sampling_mask", "enable_entropy"), ((None, False), _UNGIVEN)),
    "routing_replay_config": ((None,), "which experts a token passed is not recorded"),
    **dict.fromkeys(("enable_prompt_embeds", "enable_mm_embeds"),
                    ((None, False), "a prompt is text, token ids and pictures, not rows of its own")),
    **dict.fromkeys(("allowed_local_media_path", "allowed_media_domains"),
                    ((None, "", []), "LLM opens what its own script names, and the daemon has its own options")),
    **dict.fromkeys(("media_io_kwargs", "video_pruning_rate"), ((None, {}, 0), "give mm_processor_kwargs")),
    "default_mm_loras": ((None,), "a request names its adapter itself (lora_name)"),
    **dict.fromkeys(("otlp_traces_endpoint", "collect_detailed_traces"), ((None,), _NO_TRACES)),
    **dict.fromkeys(("calculate_kv_scales", "mamba_cache_dtype", "mamba_ssm_cache_dtype"),
                    ((None, False, "auto"), _OWN_NUMBERS)),
    "generation_config": ((None, "auto"), _DEFAULTS),
    "override_generation_config": ((None, {}), _DEFAULTS),
    "structured_outputs_config": ((None, {}), "the shape of an answer belongs to its request (guided_decoding)"),
    "guided_decoding_disable_additional_properties": ((None, False), "write additionalProperties into the schema"),
    "additional_config": ((None, {}), "each option has its own name here"),
}  # fmt: skip
