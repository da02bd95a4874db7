"""Completes sampling parameters for a model: its own defaults, words in its tokens, and the lengths that fit.

Requests of a group mostly share one object of parameters, which is completed once.
"""

from typing import TYPE_CHECKING, NamedTuple

import msgspec

from ...protocol.errors import LimitError, RequestError
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


class SettledParams(NamedTuple):
    """Parameters completed for this model, with the grammar."""

    params: SamplingParams
    grammar: Grammar | None
    refusal: RequestError | None = None  # what is wrong with them
    prediction: bytes = b""  # its tokens, int32


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
                found = SettledParams(
                    self._filled_in(params), self._grammar(params), prediction=self._predicted(params)
                )
            except RequestError as error:
                found = SettledParams(params, None, error)
            known[id(params)] = found
        return found

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
        if -1 in (params.logprobs, params.prompt_logprobs):
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
