"""Checks prompts and parameters from outside, once, and converts them for the engine.

A mistake in the call (lists of different lengths) raises. An invalid request fails alone: it becomes a `PendingRequest`
that is refused already, with a message.
"""

import hashlib
import itertools
import time
from collections.abc import Iterable, Iterator, Sequence
from copy import copy
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from ...protocol.errors import LimitError, RequestError
from ...protocol.memory_plan import MemoryPlan
from ...protocol.messages import Prompt, column, values
from ...protocol.options.config import EngineConfig
from ...protocol.parameters.early_stop import CYCLE_GUARD, EarlyStop
from ...protocol.parameters.guided import CallGuide, Grammar
from ...protocol.parameters.sampling import SamplingParams
from ..media.door import MediaDoor
from ..parsing import Parsing, Parsings, PiecewiseReader, ThoughtTokens, Tools
from ..structured import CallGuides, grammar_of
from ..text.end_tokens import in_vocabulary
from ..text.template_input import too_long
from .continuation import go_on
from .door_checks import CHECKS, check_logprobs
from .pending_request import PendingRequest
from .prompts import NO_SIGHT, Params, ParsedPrompt, packed_prompt, parse_prompts
from .receipt import Receipt, ReceiptDraft, packed_ids, params_of, unlike
from .request import Notify, counted_seed
from .tool_schemas import argument_schemas, arguments_schema, described_functions

if TYPE_CHECKING:
    from ..models.facts import ModelFacts
    from ..text.tokenizer import Tokenizer

# The end of a prompt, in which a template may have begun the thought.
_END_TOKENS, _END_CHARACTERS = 16, 64


class _ModelParams(NamedTuple):
    """Parameters completed for this model, with the grammar."""

    params: SamplingParams
    grammar: Grammar | None
    refusal: RequestError | None = None  # what is wrong with them


# By the identity of the caller's object, for one group: its requests mostly share one.
_Known = dict[int, _ModelParams]


class Door:
    """Makes `PendingRequest`s, numbers them, and gives seeds to those without one."""

    def __init__(
        self,
        config: EngineConfig,
        tokenizer: "Tokenizer",
        plan: MemoryPlan,
        defaults: SamplingParams,
        parsings: Parsings | None = None,
    ) -> None:
        """`parsings` depend on the model's template; without it, answers are parsed as configured."""
        self.config = config
        self.tokenizer = tokenizer
        self.plan = plan
        self.defaults = defaults
        self.parsings = parsings or Parsings.of(config)
        self._end_ids = in_vocabulary(tokenizer.end_tokens, plan.vocab_size)
        self._thoughts = ThoughtTokens(self.parsings.thoughts_of_chats, self._spelled)
        calls, is_compact = self.parsings.calls_of_chats, config.guided_decoding_disable_any_whitespace
        self._call_guides = CallGuides(
            calls, arguments_schema, self._spelled, tokenizer.is_special, is_compact=is_compact
        )
        self.numbers = itertools.count()  # of requests; shared by doors whose requests must have different ones
        self._seed = config.seed
        self._seeds: Iterator[int] = itertools.count()
        self._client = ""
        self.media: MediaDoor | None = None  # for a vision model
        self.facts: ModelFacts | None = None  # for receipts

    @property
    def most_characters(self) -> int:
        """The most characters that a prompt may have."""
        return self.config.limit_prompt_chars or 16 * self.plan.max_model_len

    def parse(self, prompts: Iterable[Any], params: Params) -> Iterator[ParsedPrompt]:
        """Pair prompts with their parameters; lists of different lengths raise before anything runs."""
        return parse_prompts(prompts, params, self.defaults)

    def counting_for(self, seed: int | None, seeds: Iterator[int]) -> "Door":
        """The same door for one of several clients: requests without a seed get seeds counted per client."""
        own = copy(self)
        own._seed, own._seeds = self.config.seed if seed is None else seed, seeds
        return own

    def of(self, client: str) -> "Door":
        """The same door for one of several clients, who take turns at the engine."""
        own = copy(self)
        own._client = client
        return own

    def admit(
        self, prompts: Sequence[ParsedPrompt], notify: Notify, *, is_streamed: bool = False
    ) -> list[PendingRequest]:
        """Tokenize and check a group of requests; refused ones are finished already. Media are decoded here, which
        takes time."""
        placed = prompts if self.media is None else self.media.placed(prompts)
        token_ids = self._token_ids(placed)
        known: _Known = {}
        admitted = [
            self._admit_one(prompt, ids, notify, is_streamed, self._settled(prompt.params, known))
            for prompt, ids in zip(placed, token_ids, strict=True)
        ]
        for pending, prompt in zip(admitted, prompts):
            if pending.prompt.media:
                pending.source = prompt
        return admitted

    def _token_ids(self, prompts: Sequence[ParsedPrompt]) -> list[Sequence[int] | RequestError]:
        """The given ids, or those of the text. A text that is too long isn't tokenized; it is refused later."""
        ids: list[Sequence[int] | RequestError] = [
            prompt.token_ids if prompt.token_ids is not None else () for prompt in prompts
        ]
        limit = self.most_characters
        for is_chat in (False, True):
            indices = [
                index
                for index, prompt in enumerate(prompts)
                if prompt.token_ids is None and prompt.text and len(prompt.text) <= limit
                and prompt.is_chat is is_chat
            ]  # fmt: skip
            if indices:
                texts = [prompts[index].text or "" for index in indices]
                for index, found in zip(indices, self._encoded(texts, adds=not is_chat), strict=True):
                    ids[index] = found
        return ids

    def _encoded(self, texts: list[str], *, adds: bool) -> Sequence[Sequence[int] | RequestError]:
        """Tokenize texts; a text that the tokenizer can't handle is refused alone."""
        try:
            return self.tokenizer.encode_batch(texts, add_special_tokens=adds)
        except RequestError as error:
            if len(texts) == 1:
                return [error]
            return [found for text in texts for found in self._encoded([text], adds=adds)]

    def _admit_one(
        self,
        parsed: ParsedPrompt,
        ids: Sequence[int] | RequestError,
        notify: Notify,
        is_streamed: bool,
        settled: _ModelParams,
    ) -> PendingRequest:
        functions = described_functions(parsed.tools) if parsed.tools else {}
        parsing = self.parsings.of_chat(has_tools=bool(functions)) if parsed.is_chat else self.parsings.always
        try:
            if parsed.media and self.media is None:
                raise RequestError(NO_SIGHT)
            if parsed.refusal:
                raise RequestError(parsed.refusal)
            if parsed.text is not None and len(parsed.text) > self.most_characters:
                raise LimitError(too_long(len(parsed.text), self.most_characters))
            if isinstance(ids, RequestError):
                raise ids
            packed = packed_prompt(ids, self.plan)
            if self.media is not None and parsed.placed is None:
                self.media.check_rows(ids)
            if settled.refusal is not None:
                raise settled.refusal.with_traceback(None)
            if parsed.receipt is not None:
                self._check_facts(parsed.receipt, settled.params)
            self._check_thoughts(settled.params, parsing)
            params, grammar, refusal = self._fitted(settled.params, len(ids)), settled.grammar, None
        except RequestError as error:
            refusal = error.with_traceback(None)  # its frames would hold the prompt's media
            packed, params, grammar = b"", parsed.params, None
        own_seed = params.seed if parsed.seed is None else parsed.seed
        seed = own_seed if own_seed is not None else self._next_seed()
        end = "" if parsing is None else self._prompt_end(parsed, packed)
        thought = None if parsing is None else self._thoughts.of(parsing, end)
        number, beams = next(self.numbers), parsed.beams
        now, client = time.time(), self._client
        is_parsed = parsing is not None
        prompt = Prompt(number, packed, params, seed, now, is_streamed, beams, thought, grammar, client, is_parsed)
        if parsed.placed is not None and refusal is None:
            prompt.media, prompt.positions = parsed.placed.media, parsed.placed.positions
        prompt.delta_tokens = parsed.delta_tokens
        if parsed.said and refusal is None:
            refusal = go_on(prompt, parsed.said, self.plan)
        if parsed.receipt is not None and beams is None:
            prompt.claims = [column(sample.ids) for sample in parsed.receipt.samples]
        if functions and grammar is None and beams is None and refusal is None:
            prompt.calls = [each for each in self._call_guides.of(functions) if _may_close(each, params)]
        readers = _readers(parsing, argument_schemas(functions) if functions else {}, prompt, end)
        decode_token = self.tokenizer.decode_token
        pending = PendingRequest(prompt, parsed.text, notify, decode_token, readers, is_chat=parsed.is_chat)
        if refusal is not None:
            pending.refuse(400, str(refusal))
            pending.refusal = refusal
        elif params.receipt and self.facts is not None:
            self.facts.begin()
            pending.receipt = partial(self._receipt, self.facts, parsed, prompt, list(functions.values()), end)
        return pending

    def _receipt(
        self, facts: "ModelFacts", parsed: ParsedPrompt, prompt: Prompt, functions: list[Any], end: str
    ) -> ReceiptDraft:
        """What a request's receipt has before its answer."""
        beams = None if parsed.beams is None else msgspec.to_builtins(parsed.beams)
        receipt = Receipt(
            facts=facts.of_model(),
            params=params_of(parsed.params, prompt.params, prompt.seed),
            prompt=packed_ids(values(prompt.token_ids)),
            samples=[],
            adapter=facts.of_adapter(prompt.params.lora_name),
            is_chat=parsed.is_chat,
            tools=[{"type": "function", "function": function} for function in functions],
            end=end,
            beams=beams,
            media=[medium.digest for medium in prompt.media],
        )
        return ReceiptDraft.of(receipt, prompt.params.n)

    def _check_facts(self, receipt: Receipt, params: SamplingParams) -> None:
        """Raise if this model can't judge what the receipt is of."""
        if self.facts is None:
            raise RequestError("this model has no facts about itself")
        if reason := unlike(receipt, self.facts.of_model(), self.facts.of_adapter(params.lora_name)):
            raise RequestError(reason)
        if self.plan.kernels.startswith(("torch", "triton")) and not self.config.deterministic:
            raise RequestError("these kernels' answers depend on their company unless deterministic=True")
        longest = max((len(sample.ids) for sample in receipt.samples), default=0)
        if (need := len(receipt.prompt_ids) + longest) > self.plan.max_model_len:
            raise RequestError(f"it has {need:,} tokens, and here max_model_len is {self.plan.max_model_len:,}")
        if receipt.media:
            raise RequestError("its prompt has pictures or videos, which aren't given")
        if len(receipt.samples) != params.n:
            raise RequestError(f"it has {len(receipt.samples)} answers, and its parameters ask for {params.n}")

    def _prompt_end(self, parsed: ParsedPrompt, token_ids: bytes) -> str:
        """The prompt's end, which shows whether a thought has begun."""
        if parsed.receipt is not None:
            return parsed.receipt.end
        if parsed.text is not None:
            return parsed.text[-_END_CHARACTERS:]
        return self.tokenizer.decode(values(token_ids)[-_END_TOKENS:], skip_special_tokens=False)[-_END_CHARACTERS:]

    def _settled(self, params: SamplingParams, known: _Known) -> _ModelParams:
        """Fill in the model's own values."""
        found = known.get(id(params))
        if found is None:
            try:
                found = _ModelParams(self._filled_in(params), self._grammar(params))
            except RequestError as error:
                found = _ModelParams(params, None, error)
            known[id(params)] = found
        return found

    def _grammar(self, params: SamplingParams) -> Grammar | None:
        if params.guided_decoding is None:
            return None
        return grammar_of(params.guided_decoding, is_compact=self.config.guided_decoding_disable_any_whitespace)

    def _filled_in(self, params: SamplingParams) -> SamplingParams:
        for names, check in CHECKS:
            if any(getattr(params, name) is not None for name in names):
                check(params, self.config, self.plan)
        eos = params.eos_token_id if params.eos_token_id is not None else self._end_ids
        words = list(params.bad_words_ids or [])
        for word in params.bad_words or []:
            forms = (word, " " + word.lstrip())
            words += [ids for form in forms if (ids := self._spelled(form))]
        return msgspec.structs.replace(
            params,
            eos_token_id=[] if params.ignore_eos else list(eos),
            early_stop=_early_stop(params, self.config),
            bad_words=None,
            bad_words_ids=[list(ids) for ids in dict.fromkeys(map(tuple, words))] or None,
            guided_decoding=None,  # the grammar is sent separately
        )

    def _spelled(self, text: str) -> list[int]:
        """A text in the model's tokens; empty if the tokenizer has some that the model lacks, and so never writes."""
        ids = self.tokenizer.encode(text, add_special_tokens=False)
        return ids if max(ids, default=0) < self.plan.vocab_size else []

    def _fitted(self, params: SamplingParams, num_prompt: int) -> SamplingParams:
        """Convert lengths that count prompt and output to lengths of the output."""
        room = self.plan.max_model_len - num_prompt
        if params.max_length is not None:
            room = min(room, params.max_length - num_prompt)
            if room < 1:
                raise LimitError(f"max_length={params.max_length} leaves no token after a prompt of {num_prompt}.")
        most = min(room, params.max_tokens) if params.max_tokens is not None else room
        if -1 in (params.logprobs, params.prompt_logprobs):
            check_logprobs(params, num_prompt, most, self.config, self.plan)
        least = min(most, max(params.min_tokens, params.min_length - num_prompt))
        if (params.max_tokens, params.max_length, params.min_tokens, params.min_length) == (most, None, least, 0):
            return params  # the usual case; a copy would be checked again
        return msgspec.structs.replace(params, max_tokens=most, max_length=None, min_tokens=least, min_length=0)

    def _check_thoughts(self, params: SamplingParams, parsing: Parsing | None) -> None:
        if params.reasoning_max_tokens is None:
            return
        if parsing is None or parsing.thoughts is None:
            raise RequestError(
                "reasoning_max_tokens: the format of this answer's thoughts is not known; start the model with "
                "reasoning_parser=…"
            )
        if not self._thoughts.can_be_closed:
            raise RequestError("reasoning_max_tokens: the model's vocabulary lacks the mark that ends its thoughts.")

    def _next_seed(self) -> int:
        return counted_seed(self._seed, next(self._seeds))


def _early_stop(params: SamplingParams, config: EngineConfig) -> EarlyStop | None:
    """The request's own; otherwise the option for all requests, which also precedes the usual guard."""
    own = params.early_stop
    return own if config.early_stop_config is None or own not in (None, CYCLE_GUARD) else config.early_stop_config


def _may_close(guide: CallGuide, params: SamplingParams) -> bool:
    """Whether a call's mark may end it: a mark that ends the whole answer must not come before `min_tokens`."""
    return not params.min_tokens or params.ending_ids.isdisjoint(guide.closings)


def _readers(parsing: Parsing | None, tools: Tools, prompt: Prompt, prompt_end: str) -> list[PiecewiseReader]:
    """A reader for each sample, which parses its text; empty if answers aren't parsed."""
    if parsing is None or not prompt.token_ids:
        return []
    return [parsing.reader(prompt_end, tools, partial(_call_id, prompt, sample)) for sample in range(prompt.params.n)]


def _call_id(prompt: Prompt, sample: int, index: int) -> str:
    """A call's id depends on the request alone, so that runs repeat; each turn has another prompt, and so other ids."""
    context = f"{prompt.seed} {sample} {index} ".encode()
    return "call_" + hashlib.blake2b(context + prompt.token_ids, digest_size=12).hexdigest()
