"""Checks sampling parameters against this model; each check raises `RequestError` with a sentence.

There is one function for each rule. A new set of parameters passes the checks of the parameters that it sets.
"""

from collections.abc import Callable, Sequence

from ...protocol.errors import LimitError, RequestError
from ...protocol.fields.suggestion import suggestion
from ...protocol.memory_plan import MemoryPlan
from ...protocol.options.config import EngineConfig
from ...protocol.parameters.sampling import MAX_LOGPROBS, MAX_TOKEN_IDS, SamplingParams

_WORD_CHARACTERS = 64  # of a bad word, on average
_WORD_IDS = 32  # the same for one in token ids


def _adapters_where_there_is_room(params: SamplingParams, config: EngineConfig, plan: MemoryPlan) -> None:
    """Check that adapters are enabled; the engine checks whether this one is loaded."""
    if params.lora_name is not None and not config.enable_lora:
        raise RequestError(f"There is no adapter {params.lora_name!r}: this model was started without enable_lora.")


def _logprobs_where_they_are_given(params: SamplingParams, config: EngineConfig, plan: MemoryPlan) -> None:
    for name, number in (("logprobs", params.logprobs), ("prompt_logprobs", params.prompt_logprobs)):
        if number is not None and not config.enable_logprob:
            raise RequestError(f"{name}={number}: this model was started with enable_logprob=False.")
        if number is not None and not _may_be_given(number, config.max_logprobs, plan):
            most = MAX_LOGPROBS if config.max_logprobs is None else config.max_logprobs
            raise LimitError(
                f"{name}={number}: at most {most:,} are given for each token (option max_logprobs). Ask for fewer, or "
                "start the model with a larger max_logprobs; -1 is no limit."
            )


def _may_be_given(number: int, limit: int | None, plan: MemoryPlan) -> bool:
    """Unless a limit is set, all (-1) may be asked for, too."""
    if limit is None:
        return number <= MAX_LOGPROBS
    return limit == -1 or _width(number, plan) <= limit


def _stop_strings_in_bounds(params: SamplingParams, config: EngineConfig, plan: MemoryPlan) -> None:
    most, longest, strings = config.limit_stop_strings, config.limit_stop_chars, params.stop or []
    if len(strings) > most:
        raise LimitError(f"stop has {len(strings):,} strings, and the limit is {most:,} (option limit_stop_strings).")
    if (length := max(map(len, strings), default=0)) > longest:
        raise LimitError(
            f"A string of stop has {length:,} characters, and the limit is {longest:,} (option limit_stop_chars)."
        )


def _stop_words_in_bounds(params: SamplingParams, config: EngineConfig, plan: MemoryPlan) -> None:
    most, longest, words = config.limit_stop_strings, config.limit_stop_chars, params.long_stop_words
    if len(words) > most:
        raise LimitError(
            f"stop_words_ids has {len(words):,} sequences, and the limit is {most:,} (option limit_stop_strings)."
        )
    if (length := max(map(len, words), default=0)) > longest:
        raise LimitError(
            f"A sequence of stop_words_ids has {length:,} tokens, and the limit is {longest:,} (option "
            "limit_stop_chars)."
        )
    if (single := len(params.stop_words_ids or []) - len(words)) > MAX_TOKEN_IDS:
        raise LimitError(f"stop_words_ids has {single:,} single tokens, and the limit is {MAX_TOKEN_IDS:,}.")


def _biases_in_bounds(params: SamplingParams, config: EngineConfig, plan: MemoryPlan) -> None:
    if len(params.logit_bias or {}) > config.limit_logit_bias:
        raise LimitError(f"logit_bias: at most {config.limit_logit_bias:,} entries.")


def _bad_words_in_bounds(params: SamplingParams, config: EngineConfig, plan: MemoryPlan) -> None:
    most, words, ids = config.limit_bad_words, params.bad_words or [], params.bad_words_ids or []
    if (
        len(words) + len(ids) > most
        or sum(map(len, words)) > most * _WORD_CHARACTERS
        or sum(map(len, ids)) > most * _WORD_IDS
    ):
        raise LimitError(
            f"bad_words: at most {most:,} entries of together {most * _WORD_CHARACTERS:,} characters, or "
            f"{most * _WORD_IDS:,} token ids (limit_bad_words)."
        )


def _processors_that_are_there(params: SamplingParams, config: EngineConfig, plan: MemoryPlan) -> None:
    for name in params.logits_processors_args or {}:
        if name not in (config.logits_processors or []):
            raise RequestError(
                f"logits_processors_args: there is no {name!r}; this model was started with "
                f"logits_processors={config.logits_processors}.{suggestion(name, config.logits_processors or ())}"
            )


def _ids_in_vocabulary(params: SamplingParams, config: EngineConfig, plan: MemoryPlan) -> None:
    named = {
        "stop_token_ids": params.stop_token_ids or [],
        "stop_words_ids": [token for word in params.stop_words_ids or [] for token in word],
        "eos_token_id": params.eos_token_id or [],
        "logit_bias": list(params.logit_bias or {}),
        "bad_words_ids": [token for word in params.bad_words_ids or [] for token in word],
    }
    for name, ids in named.items():
        require_in_vocabulary(name, ids, plan)


def require_in_vocabulary(name: str, ids: Sequence[int], plan: MemoryPlan) -> None:
    if ids and max(ids) >= plan.vocab_size:
        raise RequestError(f"{name}: token id {max(ids)} is not in the vocabulary (0 to {plan.vocab_size - 1}).")


Check = Callable[[SamplingParams, EngineConfig, MemoryPlan], None]
# Each is run if one of its parameters is given.
CHECKS: tuple[tuple[tuple[str, ...], Check], ...] = (
    (("lora_name",), _adapters_where_there_is_room),
    (("logprobs", "prompt_logprobs"), _logprobs_where_they_are_given),
    (("stop",), _stop_strings_in_bounds),
    (("stop_words_ids",), _stop_words_in_bounds),
    (("logit_bias",), _biases_in_bounds),
    (("bad_words", "bad_words_ids"), _bad_words_in_bounds),
    (("logits_processors_args",), _processors_that_are_there),
    (("stop_token_ids", "stop_words_ids", "eos_token_id", "logit_bias", "bad_words_ids"), _ids_in_vocabulary),
)


def check_logprobs(
    params: SamplingParams, num_prompt: int, num_output: int, config: EngineConfig, plan: MemoryPlan
) -> None:
    """Refuse log-probabilities of many tokens at too many positions, which would fill any memory."""
    asked = ((params.prompt_logprobs, num_prompt), (params.logprobs, params.n * num_output))
    many = [(_width(number, plan), places) for number, places in asked if number is not None and _are_many(number)]
    count, limit = sum(number * places for number, places in many), config.limit_logprobs
    if count > limit:
        raise LimitError(
            f"Log-probabilities of {max(many)[0]:,} tokens at up to {sum(places for _, places in many):,} positions "
            f"are {count:,} values, and the limit is {limit:,} (option limit_logprobs). Ask for fewer of them, or for "
            "fewer max_tokens."
        )


def _width(number: int, plan: MemoryPlan) -> int:
    """How many log-probabilities each token has."""
    return plan.vocab_size if number == -1 else min(number, plan.vocab_size)


def _are_many(number: int) -> bool:
    """Whether so many log-probabilities of each token must be counted."""
    return not 0 <= number <= MAX_LOGPROBS
