"""What comes in from outside is checked here, once, and turned into what the engine takes.

A mistake in the call (lists of different lengths, a type that no prompt has) raises. What is wrong with one request
against this model ends that request alone: it comes back as a `Pending` that was refused, with a sentence.
Knows nothing of processes; it needs the tokenizer and the agreed memory plan.
"""

import hashlib
import itertools
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import msgspec

from ..protocol.config import EngineConfig
from ..protocol.errors import RequestError
from ..protocol.messages import MemoryPlan, Prompt, column, values
from ..protocol.sampling import SamplingParams
from .parsing import AnswerReader, Parsing
from .pending import Notify, Pending
from .tokenizer import Tokenizer

_SEED_SPAN = 2**63
# The end of a prompt in which a template may have begun the thought.
_END_TOKENS, _END_CHARACTERS = 16, 64


@dataclass(frozen=True, slots=True)
class Rendered:
    """A conversation as its template renders it: complete, with every special token that it wants."""

    text: str


@dataclass(frozen=True, slots=True)
class Asked:
    """One prompt as the caller gave it, sorted into its parts."""

    text: str | None
    token_ids: Sequence[int] | None
    params: SamplingParams
    refusal: str | None = None
    is_chat: bool = False  # rendered by a template, so that no special tokens are to be added


class Door:
    """Makes `Pending`s; numbers them, and gives a seed to those that bring none."""

    def __init__(self, config: EngineConfig, tokenizer: Tokenizer, plan: MemoryPlan, defaults: SamplingParams) -> None:
        self.config = config
        self.tokenizer = tokenizer
        self.plan = plan
        self.defaults = defaults
        self.parsing = Parsing.of(config)
        self._numbers = itertools.count()
        self._seeds = itertools.count()
        self._settled: dict[int, tuple[SamplingParams, SamplingParams]] = {}

    def asked(
        self, prompts: Iterable[Any], params: SamplingParams | Iterable[SamplingParams] | None
    ) -> Iterator[Asked]:
        """Pair prompts with their parameters; lists of different lengths raise before anything runs."""
        if isinstance(params, SamplingParams) or params is None:
            every = params or self.defaults
            return (_asked(prompt, every) for prompt in prompts)
        if isinstance(prompts, Sequence) and isinstance(params, Sequence) and len(prompts) != len(params):
            raise RequestError(
                f"There are {len(prompts)} prompts and {len(params)} sampling_params; give one for each."
            )
        return (_asked(prompt, each) for prompt, each in zip(prompts, params, strict=True))

    def admit(self, asked: Sequence[Asked], notify: Notify, *, is_streamed: bool = False) -> list[Pending]:
        """Tokenize and check a group of requests; the refused ones among them are finished already."""
        token_ids = self._token_ids(asked)
        return [self._admit_one(one, ids, notify, is_streamed) for one, ids in zip(asked, token_ids, strict=True)]

    def _token_ids(self, asked: Sequence[Asked]) -> list[Sequence[int]]:
        """The ids given, or those of the text; too long a text isn't tokenized, its refusal follows."""
        ids = [one.token_ids if one.token_ids is not None else () for one in asked]
        limit = self._character_limit
        for is_chat in (False, True):
            places = [
                place
                for place, one in enumerate(asked)
                if one.token_ids is None and one.text and len(one.text) <= limit
                and one.is_chat is is_chat
            ]  # fmt: skip
            if places:
                texts = [asked[place].text or "" for place in places]
                encoded = self.tokenizer.encode_batch(texts, add_special_tokens=not is_chat)
                for place, found in zip(places, encoded, strict=True):
                    ids[place] = found
        return ids

    def _admit_one(self, asked: Asked, ids: Sequence[int], notify: Notify, is_streamed: bool) -> Pending:
        try:
            if asked.refusal:
                raise RequestError(asked.refusal)
            if asked.text is not None and len(asked.text) > self._character_limit:
                raise RequestError(
                    f"The prompt has {len(asked.text):,} characters, and the limit is {self._character_limit:,} "
                    "(option limit_prompt_chars)."
                )
            packed = self._checked_ids(ids)
            params = self._fitted(self._settle(asked.params), len(ids))
            refusal = None
        except RequestError as error:
            packed, params, refusal = b"", asked.params, str(error)
        seed = params.seed if params.seed is not None else self._next_seed()
        prompt = Prompt(next(self._numbers), packed, params, seed, time.time(), is_streamed)
        pending = Pending(prompt, asked.text, notify, self._readers(asked, prompt), is_chat=asked.is_chat)
        if refusal is not None:
            pending.refuse(400, refusal)
        return pending

    def _readers(self, asked: Asked, prompt: Prompt) -> list[AnswerReader]:
        """What takes each sample's text apart, if this model's answers are to be."""
        if self.parsing is None or not prompt.token_ids:
            return []
        text = asked.text
        if text is None:
            text = self.tokenizer.decode(values(prompt.token_ids)[-_END_TOKENS:], skip_special_tokens=False)
        return [
            self.parsing.reader(text[-_END_CHARACTERS:], partial(_call_id, prompt, sample))
            for sample in range(prompt.params.n)
        ]

    def _checked_ids(self, ids: Sequence[int]) -> bytes:
        if not len(ids):
            raise RequestError("The prompt is empty: it has no tokens.")
        if len(ids) >= self.plan.max_model_len:
            raise RequestError(
                f"The prompt has {len(ids):,} tokens, and max_model_len={self.plan.max_model_len:,} must hold it and "
                "at least one output token. Shorten it or raise max_model_len."
            )
        try:
            low, high = min(ids), max(ids)
            if low < 0 or high >= self.plan.vocab_size:
                wrong = low if low < 0 else high
                raise RequestError(f"Token id {wrong} is not in the vocabulary (0 to {self.plan.vocab_size - 1}).")
            return column(ids)
        except TypeError:
            raise RequestError("Prompt token ids must be whole numbers.") from None

    def _settle(self, params: SamplingParams) -> SamplingParams:
        """What belongs to the model filled in; remembered, since a batch shares one object."""
        known = self._settled.get(id(params))
        if known is None or known[0] != params:
            if len(self._settled) > 256:
                self._settled.clear()
            # A copy is kept to compare with: the caller may change the object between two calls.
            known = (msgspec.structs.replace(params), self._filled_in(params))
            self._settled[id(params)] = known
        return known[1]

    def _filled_in(self, params: SamplingParams) -> SamplingParams:
        for check in _CHECKS:
            check(self, params)
        eos = params.eos_token_id if params.eos_token_id is not None else self.tokenizer.eos_token_ids
        words = list(params.bad_words_ids or [])
        for word in params.bad_words or []:
            forms = (word, " " + word.lstrip())
            words += [ids for form in forms if (ids := self.tokenizer.encode(form, add_special_tokens=False))]
        return msgspec.structs.replace(
            params,
            eos_token_id=[] if params.ignore_eos else list(eos),
            bad_words=None,
            bad_words_ids=[list(ids) for ids in dict.fromkeys(map(tuple, words))] or None,
        )

    def _fitted(self, params: SamplingParams, num_prompt: int) -> SamplingParams:
        """Lengths that count prompt and output become lengths of the output."""
        room = self.plan.max_model_len - num_prompt
        if params.max_length is not None:
            room = min(room, params.max_length - num_prompt)
            if room < 1:
                raise RequestError(f"max_length={params.max_length} leaves no token after a prompt of {num_prompt}.")
        most = min(room, params.max_tokens) if params.max_tokens is not None else room
        least = min(most, max(params.min_tokens, params.min_length - num_prompt))
        return msgspec.structs.replace(params, max_tokens=most, max_length=None, min_tokens=least, min_length=0)

    @property
    def _character_limit(self) -> int:
        return self.config.limit_prompt_chars or 16 * self.plan.max_model_len

    def _next_seed(self) -> int:
        return (self.config.seed * 0x9E3779B97F4A7C15 + next(self._seeds) * 0xBF58476D1CE4E5B9) % _SEED_SPAN


def _call_id(prompt: Prompt, sample: int, index: int) -> str:
    """Of the request alone, so that a run repeats; each turn of a conversation has a prompt, and so ids, of its own."""
    place = f"{prompt.seed} {sample} {index} ".encode()
    return "call_" + hashlib.blake2b(place + prompt.token_ids, digest_size=12).hexdigest()


def _asked(prompt: Any, params: SamplingParams) -> Asked:
    if isinstance(prompt, str):
        return Asked(prompt, None, params)
    if isinstance(prompt, Rendered):
        return Asked(prompt.text, None, params, is_chat=True)
    if isinstance(prompt, RequestError):  # a chat template refused this conversation
        return Asked(None, None, params, str(prompt))
    if isinstance(prompt, Mapping):
        return _asked_in_parts(prompt, params)
    if hasattr(prompt, "tolist"):
        prompt = prompt.tolist()
    if isinstance(prompt, Sequence):
        return Asked(None, prompt, params)
    raise TypeError(
        f"A prompt is text, a list of token ids, or a dict with either; this one is {type(prompt).__name__}."
    )


_PARTS = {"prompt", "prompt_token_ids", "priority", "cache_salt", "lora_name"}
_MEDIA = {"multimodal_data", "multi_modal_data", "mm_info", "image", "video", "audio"}


def _asked_in_parts(prompt: Mapping[str, Any], params: SamplingParams) -> Asked:
    text, token_ids = prompt.get("prompt"), prompt.get("prompt_token_ids")
    if media := sorted(_MEDIA & prompt.keys()):
        return Asked(text, token_ids, params, f"{media[0]}: multimodal prompts are not supported yet.")
    if unknown := sorted(prompt.keys() - _PARTS):
        return Asked(
            text, token_ids, params, f"A prompt has no part {unknown[0]!r}; it may have {', '.join(sorted(_PARTS))}."
        )
    if text is None and token_ids is None:
        return Asked(None, None, params, "A prompt needs `prompt` (text) or `prompt_token_ids`.")
    if isinstance(token_ids, Sequence) or token_ids is None:
        own = {name: prompt[name] for name in ("priority", "cache_salt", "lora_name") if prompt.get(name) is not None}
        try:
            return Asked(text, token_ids, msgspec.structs.replace(params, **own) if own else params)
        except RequestError as error:
            return Asked(text, token_ids, params, str(error))
    return Asked(text, None, params, "prompt_token_ids must be a list of whole numbers.")


# --- what a request may ask of this model: one check each ------------------------------------------------------------


def _only_what_is_built(door: Door, params: SamplingParams) -> None:
    if params.not_built:
        raise RequestError(f"{params.not_built[0]} is not built yet; leave it out.")
    if params.lora_name is not None:
        raise RequestError(f"There is no adapter {params.lora_name!r}: adapters are not built yet.")


def _stop_strings_in_bounds(door: Door, params: SamplingParams) -> None:
    most, longest = door.config.limit_stop_strings, door.config.limit_stop_chars
    if len(params.stop or []) > most or any(len(text) > longest for text in params.stop or []):
        raise RequestError(f"stop: at most {most} strings of at most {longest} characters.")


def _biases_in_bounds(door: Door, params: SamplingParams) -> None:
    if len(params.logit_bias or {}) > door.config.limit_logit_bias:
        raise RequestError(f"logit_bias: at most {door.config.limit_logit_bias:,} entries.")


def _bad_words_in_bounds(door: Door, params: SamplingParams) -> None:
    if len(params.bad_words or []) + len(params.bad_words_ids or []) > door.config.limit_bad_words:
        raise RequestError(f"bad_words: at most {door.config.limit_bad_words:,} entries.")


def _ids_in_vocabulary(door: Door, params: SamplingParams) -> None:
    named = {
        "stop_token_ids": params.stop_token_ids or [],
        "eos_token_id": params.eos_token_id or [],
        "logit_bias": list(params.logit_bias or {}),
        "bad_words_ids": [token for word in params.bad_words_ids or [] for token in word],
    }
    for name, ids in named.items():
        if ids and max(ids) >= door.plan.vocab_size:
            raise RequestError(
                f"{name}: token id {max(ids)} is not in the vocabulary (0 to {door.plan.vocab_size - 1})."
            )


_CHECKS: tuple[Callable[[Door, SamplingParams], None], ...] = (
    _only_what_is_built,
    _stop_strings_in_bounds,
    _biases_in_bounds,
    _bad_words_in_bounds,
    _ids_in_vocabulary,
)
