"""Completes sampling parameters for a model: its own defaults, words in its tokens, and the lengths that fit.

Requests of a group mostly share one object of parameters, which is completed once.
"""

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from ...protocol.errors import LimitError, RequestError
from ...protocol.fields.described import rules_of
from ...protocol.fields.rules import TEXT
from ...protocol.memory_plan import MemoryPlan
from ...protocol.options.config import EngineConfig
from ...protocol.parameters.early_stop import CYCLE_GUARD, EarlyStop
from ...protocol.parameters.guided import Grammar
from ...protocol.parameters.sampling import SamplingParams
from ...protocol.wire import column
from ..parsing import Parsing, ThoughtTokens
from ..structured import grammar_of
from ..text.end_tokens import in_vocabulary
from .door_checks import CHECKS, check_logprobs
from .prompts import CHARACTERS_PER_TOKEN

if TYPE_CHECKING:
    from ..text.tokenizer import Tokenizer


_SENTENCE = "think_stop_sentence"
_RULES = rules_of(SamplingParams)


class SettledParams(NamedTuple):
    """Parameters completed for this model, with the grammar."""

    params: SamplingParams
    grammar: Grammar | None
    refusal: RequestError | None = None  # what is wrong with them
    prediction: bytes = b""  # its tokens, int32
    stop_sentence: str = ""  # written before the mark that ends a thought at its limit


# By the identity of the caller's object, for one group: its requests mostly share one.
Known = dict[int, SettledParams]


class ParamsSettler:
    def __init__(self, config: EngineConfig, tokenizer: "Tokenizer", plan: MemoryPlan) -> None:
        self._config = config
        self._tokenizer = tokenizer
        self._plan = plan
        self._end_ids = in_vocabulary(tokenizer.end_tokens, plan.vocab_size)

    def settled(self, params: SamplingParams, known: Known) -> SettledParams:
        """Fill in the model's own values."""
        found = known.get(id(params))
        if found is None:
            try:
                found = self._settled(params)
            except RequestError as error:
                found = SettledParams(params, None, error)
            known[id(params)] = found
        return found

    def _settled(self, params: SamplingParams) -> SettledParams:
        own, stop_sentence = params, ""
        if params.logits_processors_args is not None:
            own, stop_sentence = in_own_fields(params, self._config.logits_processors or ())
        return SettledParams(self._filled_in(own), self._grammar(own), None, self._predicted(own), stop_sentence)

    def _grammar(self, params: SamplingParams) -> Grammar | None:
        if params.guided_decoding is None:
            return None
        return grammar_of(params.guided_decoding, is_compact=self._config.guided_decoding_disable_any_whitespace)

    def _filled_in(self, params: SamplingParams) -> SamplingParams:
        for names, check in CHECKS:
            if any(getattr(params, name) is not None for name in names):
                check(params, self._config, self._plan)
        eos = params.eos_token_id if params.eos_token_id is not None else self._end_ids
        words = list(params.bad_words_ids or [])
        for word in params.bad_words or []:
            forms = (word, " " + word.lstrip())
            words += [ids for form in forms if (ids := self.spelled(form))]
        return msgspec.structs.replace(
            params,
            eos_token_id=[] if params.ignore_eos else list(eos),
            early_stop=_early_stop(params, self._config),
            bad_words=None,
            bad_words_ids=[list(ids) for ids in dict.fromkeys(map(tuple, words))] or None,
            guided_decoding=None,  # the grammar is sent separately
            prediction=None,  # its tokens are
        )

    def _predicted(self, params: SamplingParams) -> bytes:
        """Tokenize as much of the prediction as the answer may have; nothing if no tokens are drafted."""
        if not params.prediction or not self._config.drafts:
            return b""
        most = min(params.max_tokens or self._plan.max_model_len, self._plan.max_model_len)
        length = min(CHARACTERS_PER_TOKEN * most, most_characters(self._config, self._plan))
        try:
            return column(self.spelled(params.prediction[:length])[:most])
        except RequestError:  # it can't be tokenized
            return b""

    def spelled(self, text: str) -> list[int]:
        """A text in the model's tokens; empty if the tokenizer has some that the model lacks, and so never writes."""
        ids = self._tokenizer.encode(text, add_special_tokens=False)
        return ids if max(ids, default=0) < self._plan.vocab_size else []

    def fitted(self, params: SamplingParams, num_prompt: int) -> SamplingParams:
        """Convert lengths that count prompt and output to lengths of the output."""
        room = self._plan.max_model_len - num_prompt
        if params.max_length is not None:
            room = min(room, params.max_length - num_prompt)
            if room < 1:
                raise LimitError(f"max_length={params.max_length} leaves no token after a prompt of {num_prompt}.")
        most = min(room, params.max_tokens) if params.max_tokens is not None else room
        if params.logprobs is not None or params.prompt_logprobs is not None:
            check_logprobs(params, num_prompt, most, self._config, self._plan)
        least = min(most, max(params.min_tokens, params.min_length - num_prompt))
        if (params.max_tokens, params.max_length, params.min_tokens, params.min_length) == (most, None, least, 0):
            return params  # the usual case; a copy would be checked again
        return msgspec.structs.replace(params, max_tokens=most, max_length=None, min_tokens=least, min_length=0)

    @staticmethod
    def check_thoughts(params: SamplingParams, parsing: Parsing | None, thoughts: ThoughtTokens) -> None:
        if params.reasoning_max_tokens is None:
            return
        if parsing is None or parsing.thoughts is None:
            raise RequestError(
                "reasoning_max_tokens: the format of this answer's thoughts is not known; start the model with "
                "reasoning_parser=…"
            )
        if not thoughts.can_be_closed:
            raise RequestError("reasoning_max_tokens: the model's vocabulary lacks the mark that ends its thoughts.")


def most_characters(config: EngineConfig, plan: MemoryPlan) -> int:
    """Return the most characters that a prompt may have."""
    return config.limit_prompt_chars or CHARACTERS_PER_TOKEN * plan.max_model_len


def _early_stop(params: SamplingParams, config: EngineConfig) -> EarlyStop | None:
    """The request's own; otherwise the option for all requests, which also precedes the usual guard."""
    own = params.early_stop
    return own if config.early_stop_config is None or own not in (None, CYCLE_GUARD) else config.early_stop_config


# --- arguments of FastDeploy's own logits processors ------------------------------------------------------------------


def in_own_fields(params: SamplingParams, own_names: Collection[str]) -> tuple[SamplingParams, str]:
    """Move the arguments of FastDeploy's own processors into the fields that mean the same; also return the sentence
    that ends a thought at its limit.

    FastDeploy gives them by their own names (`{"thinking_budget": 20}`). An installed processor of such a name keeps
    its arguments.
    """
    left = dict(params.logits_processors_args or {})
    built_in = {
        name: left.pop(name) for name in (*_FIELDS, _SENTENCE) if left.get(name) is not None and name not in own_names
    }
    if not built_in:
        return params, ""
    sentence = TEXT.checked(_SENTENCE, built_in.pop(_SENTENCE, ""), RequestError)
    fields = {field: merge(params, built_in[name]) for name, (field, merge) in _FIELDS.items() if name in built_in}
    own = msgspec.structs.replace(params, logits_processors_args=left or None, **fields)
    if sentence and own.reasoning_max_tokens is None:
        raise RequestError(f"{_SENTENCE}: there is no limit of a thought; give thinking_budget, too.")
    return own, sentence


def _thinking_budget(params: SamplingParams, value: Any) -> int:
    """The smaller limit, if a request has both."""
    limit: int = _RULES["reasoning_max_tokens"].checked("thinking_budget", value)
    own = params.reasoning_max_tokens
    return limit if own is None else min(limit, own)


def _logit_bias(params: SamplingParams, value: Any) -> dict[int, float]:
    return {**(params.logit_bias or {}), **_RULES["logit_bias"].checked("logit_bias", value)}


_FIELDS: dict[str, tuple[str, Callable[[SamplingParams, Any], Any]]] = {
    "thinking_budget": ("reasoning_max_tokens", _thinking_budget),
    "logit_bias": ("logit_bias", _logit_bias),
}
