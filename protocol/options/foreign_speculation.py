"""Keys of `speculative_config` in vLLM and FastDeploy: our name for each, why it has no effect, or why it is refused.

To add one, add a row to `RENAMED`, `IDLE`, `VALUES` or `REFUSED`. Whatever would accept a draft that isn't the sampled
token is refused, because it would change answers. A key without effect still has a rule: a wrong value is an error.
"""

from collections.abc import Mapping
from typing import Any

from ..errors import ConfigError
from ..fields.rules import FINITE, FLAG, TEXT, Rule, at_least, shown

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
_BY_MEMORY = "finished answers are kept as far as their memory reaches (suffix_decoding_max_cached_requests)"
_MEMORY = "the memory plan counts the keys and values of drafts"
_COUNT, _AMOUNT = at_least(1), at_least(0)
_MAPPING = Rule(dict, lambda value: True, "must be a dict")
_RANGES = Rule(
    lambda value: [tuple(map(_COUNT.convert, row)) for row in value],
    lambda rows: all(len(row) == 3 and all(map(_AMOUNT.holds, row)) for row in rows),
    "must be a list of [first batch size, last batch size, number of drafts]",
)
_TREE = Rule(
    lambda value: value if isinstance(value, str) else [tuple(map(_AMOUNT.convert, path)) for path in value],
    lambda value: True,
    'must be paths such as "[(0,), (0, 0)]"',
)
_ANY = Rule(lambda value: value, lambda value: True, "")  # an object of FastDeploy's
# Why the keys have no effect, the rule for their values, and the keys.
_IDLE = (
    (_ONE_WAY, FLAG, (
        "enforce_eager", "index_share_for_mtp_iteration", "disable_padded_drafter_batch", "disable_eagle_block_drop",
        "use_local_argmax_reduction", "parallel_drafting", "disable_mqa_scorer", "disable_logprobs",
        "disable_log_stats", "enable_chunked_prefill",
    )),
    (_ONE_WAY, TEXT, (
        "moe_backend", "attention_backend", "kv_cache_dtype", "draft_sample_method", "mtp_strategy", "model_type",
    )),
    (_ONE_WAY, _COUNT, ("dspark_draft_topk", "max_candidate_len", "verify_window")),
    (_ONE_WAY, _TREE, ("speculative_token_tree", "spec_token_tree")),
    (_ONE_WAY, _ANY, ("sharing_model",)),
    (_AS_MODEL, TEXT, ("revision", "code_revision")),
    (_AS_MODEL, _COUNT, ("draft_tensor_parallel_size", "tensor_parallel_size", "max_model_len")),
    (_AS_MODEL, _MAPPING, ("draft_load_config",)),
    (_BY_COST, _RANGES, ("num_speculative_tokens_per_batch_size",)),
    (_BY_COST, _AMOUNT, ("disable_by_batch_size", "batch_size")),
    (_BY_COST, FLAG, ("enable_adaptive_verification",)),
    (_BY_MEMORY, _AMOUNT, ("suffix_decoding_corpus_tokens",)),
    (_MEMORY, _AMOUNT, ("num_extra_cache_layer", "num_extra_cache_block")),
    (_MEMORY, FINITE, ("num_gpu_block_expand_ratio",)),
    (_NOT_SPLIT, FLAG, ("prefill_one_step_stop",)),
)  # fmt: skip
IDLE: Mapping[str, tuple[str, Rule]] = {key: (why, rule) for why, rule, keys in _IDLE for key in keys}

_EXACT = (
    "a draft is accepted exactly if it is the token that would have been sampled without it (FastDeploy's "
    "verify_strategy='target_match'); any other rule would change answers"
)
_NO_PHASES = "it puts tokens into answers, and drafts never change one"
_NO_LOGPROBS = "only the answer's own tokens have log-probabilities (logprobs)"
_ONE_VOCABULARY = "a draft model needs the model's own vocabulary"
# The values that change nothing, and why the others that the engine knows are refused.
VALUES: Mapping[str, tuple[tuple[Any, ...], Mapping[Any, str]]] = {
    "verify_strategy": (("target_match",), {"topp": _EXACT, "greedy": _EXACT}),
    "accept_policy": (
        ("normal",),
        {"accept_all": _EXACT, "reject_all": "it drafts for nothing; speculative_config=False turns drafts off"},
    ),
    "acceptance_method": (("rejection_sampler",), {"typical_acceptance_sampler": _EXACT}),
    # These keep the distribution of answers. Here they keep each answer, too.
    "rejection_sample_method": (
        ("standard", "strict", "probabilistic", "block"),
        {"synthetic": _EXACT, "fly": _EXACT},
    ),
    "benchmark_mode": ((False,), {True: _EXACT}),
    "enf_gen_phase_tag": ((False,), {True: _NO_PHASES}),
    "enable_draft_logprob": ((False,), {True: _NO_LOGPROBS}),
    "use_heterogeneous_vocab": ((False,), {True: _ONE_VOCABULARY}),
}
# Keys that are refused with any value, and why.
REFUSED: Mapping[str, str] = dict.fromkeys(
    (
        "synthetic_acceptance_rate", "synthetic_acceptance_rates", "synthetic_acceptance_length",
        "posterior_threshold", "posterior_alpha", "fly_window_size", "fly_entropy_threshold", "fly_entropy_top_k",
    ),
    _EXACT,
)  # fmt: skip
FOREIGN_KEYS = (*RENAMED, *IDLE, *VALUES, *REFUSED)


def under_own_keys(given: Mapping[str, Any]) -> dict[str, Any]:
    """The keys under our names, without those that have no effect; raises for a wrong value and for what is refused."""
    found: dict[str, Any] = {}
    for key, value in given.items():
        name = f"speculative_config: {key}"
        if key in REFUSED:
            raise _refusal(name, value, REFUSED[key])
        if key in VALUES:
            _check_value(name, value, *VALUES[key])
        elif key in IDLE:
            IDLE[key][1].checked(name, value, ConfigError)
        elif key in RENAMED and given.get(RENAMED[key], value) is not value and given[RENAMED[key]] != value:
            raise ConfigError(f"{name} is another name of {RENAMED[key]}; give one of them.")
        else:
            found[RENAMED.get(key, key)] = value
    return found


def _check_value(name: str, value: Any, harmless: tuple[Any, ...], refused: Mapping[Any, str]) -> None:
    meant = value.casefold() if isinstance(value, str) else value
    if isinstance(meant, (str, bool)) and meant in refused:
        raise _refusal(name, value, refused[meant])
    sentence = f"must be {' or '.join(map(str, harmless))}"
    is_harmless = isinstance(meant, (str, bool)) and meant in harmless
    Rule(lambda value: meant, lambda meant: is_harmless, sentence, harmless).checked(name, value, ConfigError)


def _refusal(name: str, value: Any, why: str) -> ConfigError:
    return ConfigError(f"{name}={shown(value)} is not supported: {why}.")
