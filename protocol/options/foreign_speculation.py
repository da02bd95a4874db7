"""Keys of `speculative_config` in vLLM and FastDeploy: our name for each, why it has no effect, or why it is refused.

To add one, add a row to `RENAMED`, `IDLE` or `REFUSED`. Whatever would accept a draft that isn't the sampled token is
refused, because it would change answers.
"""

from collections.abc import Mapping
from typing import Any

from ..errors import ConfigError
from ..fields.rules import shown

# Their names of methods, without capitals. Names that end in "_mtp" are one model family's heads each.
METHOD_NAMES = {
    "ngram_match": "ngram",
    "[ngram]": "ngram",
    "ngram_gpu": "ngram",
    "hybrid_mtp_ngram": "mtp",
    "nextn": "mtp",
    "standalone": "draft_model",
    "naive": "off",  # FastDeploy's path for drafts without any
}
# Values of vLLM's `model` that name a method.
MODELS_THAT_ARE_METHODS = ("ngram", "[ngram]", "ngram_gpu", "suffix")

RENAMED = {"max_ngram_size": "prompt_lookup_max", "min_ngram_size": "prompt_lookup_min"}

_ONE_WAY = "drafts are computed and checked in one way here"
_AS_MODEL = "what drafts is loaded and split as the model is"
_BY_COST = "how many drafts a step checks follows from what they cost and how many were accepted"
_NOT_SPLIT = "prefill and decode are not split between servers"
_MEMORY = "the memory plan counts the keys and values of drafts"
IDLE: Mapping[str, str] = {
    **dict.fromkeys(
        (
            "enforce_eager", "moe_backend", "attention_backend", "kv_cache_dtype", "index_share_for_mtp_iteration",
            "disable_padded_drafter_batch", "disable_eagle_block_drop", "use_local_argmax_reduction",
            "parallel_drafting", "draft_sample_method", "dspark_draft_topk", "speculative_token_tree",
            "disable_mqa_scorer", "disable_logprobs", "disable_log_stats", "enable_chunked_prefill", "mtp_strategy",
            "model_type", "sharing_model", "max_candidate_len", "verify_window",
        ),
        _ONE_WAY,
    ),
    **dict.fromkeys(
        (
            "draft_tensor_parallel_size", "tensor_parallel_size", "revision", "code_revision",
            "max_model_len", "draft_load_config",
        ),
        _AS_MODEL,
    ),
    **dict.fromkeys(
        (
            "num_speculative_tokens_per_batch_size", "disable_by_batch_size", "enable_adaptive_verification",
            "batch_size",
        ),
        _BY_COST,
    ),
    **dict.fromkeys(("num_extra_cache_layer", "num_extra_cache_block", "num_gpu_block_expand_ratio"), _MEMORY),
    "prefill_one_step_stop": _NOT_SPLIT,
}  # fmt: skip

_EXACT = (
    "a draft is accepted exactly if it is the token that would have been sampled without it (FastDeploy's "
    "verify_strategy='target_match'); any other rule would change answers"
)
# The values that change nothing, and the error message for any other.
REFUSED: Mapping[str, tuple[tuple[Any, ...], str]] = {
    "verify_strategy": (("target_match",), _EXACT),
    "accept_policy": (("normal",), _EXACT),
    "acceptance_method": (("rejection_sampler",), _EXACT),
    # These keep the distribution of answers. Here they keep each answer, too.
    "rejection_sample_method": (("standard", "strict", "probabilistic", "block"), _EXACT),
    "benchmark_mode": ((False,), _EXACT),
    **dict.fromkeys(
        (
            "synthetic_acceptance_rate", "synthetic_acceptance_rates", "synthetic_acceptance_length",
            "posterior_threshold", "posterior_alpha", "fly_window_size", "fly_entropy_threshold", "fly_entropy_top_k",
        ),
        ((), _EXACT),
    ),
    "enf_gen_phase_tag": ((False,), "it puts tokens into answers, and drafts never change one"),
    "enable_draft_logprob": ((False,), "only the answer's own tokens have log-probabilities (logprobs)"),
    "use_heterogeneous_vocab": ((False,), "a draft model needs the model's own vocabulary"),
}  # fmt: skip


def under_own_keys(given: Mapping[str, Any]) -> dict[str, Any]:
    """The keys under our names, without those that have no effect; raises for one that is refused."""
    found: dict[str, Any] = {}
    for key, value in given.items():
        if key in REFUSED:
            _refuse(key, value)
        elif key not in IDLE:
            own = RENAMED.get(key, key)
            if found.setdefault(own, value) != value or (own != key and given.get(own, value) != value):
                raise ConfigError(f"speculative_config: {key} is another name of {own}; give one of them.")
    return found


def _refuse(key: str, value: Any) -> None:
    harmless, why = REFUSED[key]
    meant = value.casefold() if isinstance(value, str) else value
    if not any(meant == each and type(meant) is type(each) for each in harmless):
        raise ConfigError(f"speculative_config: {key}={shown(value)} is not supported: {why}.")
