"""Checks prompts and parameters from outside, once, and converts them for the engine.

A mistake in the call (lists of different lengths) raises. An invalid request fails alone: it becomes a `PendingRequest`
that is refused already, with a message.
"""

import hashlib
import itertools
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import copy
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from ...protocol.errors import LimitError, RequestError
from ...protocol.memory_plan import MemoryPlan
from ...protocol.messages import Prompt
from ...protocol.options.config import EngineConfig
from ...protocol.parameters.guided import CallGuide, Grammar
from ...protocol.parameters.pooling import PoolingParams
from ...protocol.parameters.sampling import SamplingParams
from ...protocol.wire import column, values
from ..media.door import MediaDoor
from ..parsing import Parsing, Parsings, PiecewiseReader, ThoughtTokens, Tools
from ..receipts.door import ReceiptDoor
from ..receipts.receipt import Receipt
from ..structured import CallGuides
from ..text.template_input import too_long
from .continuation import go_on
from .door_checks import require_in_vocabulary
from .pending_request import PendingRequest
from .prompts import NO_NUMBERS, NO_SIGHT, NO_TEXT, Params, ParsedPrompt, packed_prompt, parse_prompts
from .request import EarlierAnswers, Notify, counted_seed
from .settled_params import Known, ParamsSettler, SettledParams, most_characters
from .tool_schemas import argument_schemas, arguments_schema, described_functions

if TYPE_CHECKING:
    from ..pooling.door import PoolingDoor
    from ..text.tokenizer import Tokenizer

# The end of a prompt, in which a template may have begun the thought.
_END_TOKENS, _END_CHARACTERS = 16, 64


class _Checked(NamedTuple):
    """What was found out about a request."""

    packed: bytes  # the prompt's ids
    params: SamplingParams
    grammar: Grammar | None
    refusal: RequestError | None


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
        self._params = ParamsSettler(config, tokenizer, plan)
        self._thoughts = ThoughtTokens(self.parsings.thoughts_of_chats, self._params.spelled)
        calls, is_compact = self.parsings.calls_of_chats, config.guided_decoding_disable_any_whitespace
        self._call_guides = CallGuides(
            calls, arguments_schema, self._params.spelled, tokenizer.is_special, is_compact=is_compact
        )
        self.numbers = itertools.count()  # of requests; shared by doors whose requests must have different ones
        self._seed = config.seed
        self._seeds: Iterator[int] = itertools.count()
        self._client = ""
        self.media: MediaDoor | None = None  # for a vision model
        self.pooling: PoolingDoor | None = None  # for a model that gives numbers
        self.receipts: ReceiptDoor | None = None
        self.replay: EarlierAnswers | None = None  # of a run that is replayed

    @property
    def most_characters(self) -> int:
        """The most characters that a prompt may have."""
        return most_characters(self.config, self.plan)

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
        if self.replay is not None:
            self.replay.prepare(prompts)
        placed = prompts if self.media is None else self.media.placed(prompts)
        if self.pooling is not None:
            placed = [self.pooling.worded(prompt) for prompt in placed]
        token_ids = self._token_ids(placed)
        known: Known = {}
        admitted = [
            self._admit_one(prompt, ids, notify, is_streamed, self._params.settled(prompt.params, known))
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
                if prompt.token_ids is None and prompt.text is not None and len(prompt.text) <= limit
                and (prompt.text or self.pooling is not None)
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
            if adds and self.pooling is not None:
                return self.tokenizer.encode_as_is(texts)
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
        settled: SettledParams,
    ) -> PendingRequest:
        functions = described_functions(parsed.tools) if parsed.tools else {}
        parsing = self.parsings.of_chat(has_tools=bool(functions)) if parsed.is_chat else self.parsings.always
        packed, params, grammar, refusal = self._checked(parsed, ids, settled, parsing)
        seed = next((each for each in (parsed.seed, params.seed) if each is not None), None)
        prompt = Prompt(
            next(self.numbers), packed, params, self._next_seed() if seed is None else seed, time.time(), is_streamed,
            parsed.beams, grammar=grammar, client=self._client, is_parsed=parsing is not None,
        )  # fmt: skip
        end = ""
        if parsing is not None:
            end = self._prompt_end(parsed, packed)
            prompt.thought = self._thoughts.of(parsing, end, settled.stop_sentence)
        if refusal is None:
            prompt.expected = _expected(prompt, parsed, settled.prediction, self.plan.vocab_size)
            refusal = self._complete(prompt, parsed, functions)
        readers = _readers(parsing, argument_schemas(functions) if functions else {}, prompt, end)
        decode_token = self.tokenizer.decode_token
        if parsed.pooled is not None:
            pending = self._pooled(prompt, parsed, parsed.pooled, notify)
        else:
            pending = PendingRequest(prompt, parsed.text, notify, decode_token, readers, is_chat=parsed.is_chat)
        if refusal is not None:
            pending.refuse(400, str(refusal))
            pending.refusal = refusal
        elif self.receipts is not None and (params.receipt if parsed.pooled is None else parsed.pooled.receipt):
            self._begin_receipt(self.receipts, pending, parsed, list(functions.values()), end)
        return pending

    @staticmethod
    def _begin_receipt(
        receipts: ReceiptDoor, pending: PendingRequest, parsed: ParsedPrompt, functions: list[Any], end: str
    ) -> None:
        try:
            if parsed.pooled is None:
                pending.receipt = receipts.begun(parsed, pending.prompt, functions, end)
            else:
                from ..pooling.door import begin_receipt  # few requests need it

                begin_receipt(pending, receipts.facts, parsed.pooled, parsed.second_text)
        except RequestError as error:
            pending.refuse(400, str(error))
            pending.refusal = error

    def _checked(
        self, parsed: ParsedPrompt, ids: Sequence[int] | RequestError, settled: SettledParams, parsing: Parsing | None
    ) -> _Checked:
        try:
            if parsed.media and self.media is None:
                raise RequestError(NO_SIGHT)
            if parsed.refusal:
                raise RequestError(parsed.refusal)
            if parsed.text is not None and len(parsed.text) > self.most_characters:
                raise LimitError(too_long(len(parsed.text), self.most_characters))
            if isinstance(ids, RequestError):
                raise ids
            if self.pooling is not None or parsed.pooled is not None:
                return self._checked_pooled(parsed, ids, settled)
            packed = packed_prompt(ids, self.plan)
            if parsed.receipt is not None:
                self._check_receipt(parsed.receipt, parsed, ids)
            if self.media is not None and parsed.placed is None:
                self.media.check_rows(ids)
            if settled.refusal is not None:
                raise settled.refusal.with_traceback(None)
            self._params.check_thoughts(settled.params, parsing, self._thoughts)
            return _Checked(packed, self._params.fitted(settled.params, len(ids)), settled.grammar, None)
        except RequestError as error:  # its frames would hold the prompt's media
            return _Checked(b"", parsed.params, None, error.with_traceback(None))

    def _pooled(self, prompt: Prompt, parsed: ParsedPrompt, params: PoolingParams, notify: Notify) -> PendingRequest:
        if self.pooling is not None:
            return self.pooling.request(prompt, parsed.text, params, notify, parsed.second_text)
        from ..pooling.door import request_of_labels  # few requests need it

        return request_of_labels(prompt, parsed.text, params, notify)

    def _checked_pooled(self, parsed: ParsedPrompt, ids: Sequence[int], settled: SettledParams) -> _Checked:
        params = settled.params
        if parsed.pooled is not None and settled.refusal is not None:  # of its adapter: nothing is sampled
            raise settled.refusal.with_traceback(None)
        if (
            self.pooling is None
            and parsed.pooled is not None
            and (labels := parsed.pooled.logprob_token_ids) is not None
        ):
            require_in_vocabulary("logprob_token_ids", labels, self.plan)
            return _Checked(packed_prompt(ids, self.plan, 0), params, None, None)
        if self.pooling is None or parsed.pooled is None:
            raise RequestError(NO_NUMBERS if self.pooling is None else NO_TEXT)
        around = () if parsed.text is None else (self.pooling.affixes(self.tokenizer),)
        fitting = self.pooling.fitting(ids, parsed.pooled, *around)
        return _Checked(packed_prompt(fitting, self.plan, 0), params, None, None)

    def _check_receipt(self, receipt: Receipt, parsed: ParsedPrompt, ids: Sequence[int]) -> None:
        if self.receipts is None:
            raise RequestError("this model has no facts about itself")
        media = [] if parsed.placed is None else [medium.digest for medium in parsed.placed.media]
        self.receipts.check(receipt, parsed.params, ids, media)

    def _complete(
        self, prompt: Prompt, parsed: ParsedPrompt, functions: Mapping[str, Mapping[str, Any]]
    ) -> RequestError | None:
        """Add what few prompts have. Returns the refusal if an answer can't go on."""
        if parsed.placed is not None:
            prompt.media, prompt.positions = parsed.placed.media, parsed.placed.positions
        prompt.delta_tokens = parsed.delta_tokens
        if parsed.receipt is not None and prompt.beams is None:
            prompt.claims = [column(sample.ids) for sample in parsed.receipt.samples]
        refusal = go_on(prompt, parsed.said, self.plan) if parsed.said else None
        if functions and prompt.grammar is None and prompt.beams is None and refusal is None:
            prompt.calls = [each for each in self._call_guides.of(functions) if _may_close(each, prompt.params)]
        return refusal

    def _prompt_end(self, parsed: ParsedPrompt, token_ids: bytes) -> str:
        """The prompt's end, which shows whether a thought has begun."""
        if parsed.receipt is not None:
            return parsed.receipt.end
        if parsed.text is not None:
            return parsed.text[-_END_CHARACTERS:]
        return self.tokenizer.decode(values(token_ids)[-_END_TOKENS:], skip_special_tokens=False)[-_END_CHARACTERS:]

    def _next_seed(self) -> int:
        return counted_seed(self._seed, next(self._seeds))


def _may_close(guide: CallGuide, params: SamplingParams) -> bool:
    """Whether a call's mark may end it: a mark that ends the whole answer must not come before `min_tokens`."""
    return not params.min_tokens or params.ending_ids.isdisjoint(guide.closings)


def _expected(prompt: Prompt, parsed: ParsedPrompt, prediction: bytes, vocab_size: int) -> list[bytes]:
    """Return what each sample is expected to say: an earlier answer, else the prediction; nothing for a beam search."""
    if prompt.beams is not None or not (parsed.expected or prediction):
        return []
    most, num_samples = prompt.params.max_tokens or 0, prompt.params.n
    if not parsed.expected:
        return [prediction[: 4 * most]] * num_samples
    return [_usable(packed, most, vocab_size) for packed in parsed.expected[:num_samples]]


def _usable(packed: bytes, most: int, vocab_size: int) -> bytes:
    """Cut expected tokens at the most that the answer may have, and before one that isn't in the vocabulary."""
    tokens = values(packed[: 4 * min(most, len(packed) // 4)])
    end = next((place for place, token in enumerate(tokens) if not 0 <= token < vocab_size), len(tokens))
    return packed[: 4 * end]


def _readers(parsing: Parsing | None, tools: Tools, prompt: Prompt, prompt_end: str) -> list[PiecewiseReader]:
    """A reader for each sample, which parses its text; empty if answers aren't parsed."""
    if parsing is None or not prompt.token_ids:
        return []
    return [parsing.reader(prompt_end, tools, partial(_call_id, prompt, sample)) for sample in range(prompt.params.n)]


def _call_id(prompt: Prompt, sample: int, index: int) -> str:
    """A call's id depends on the request alone, so that runs repeat; each turn has another prompt, and so other ids."""
    context = f"{prompt.seed} {sample} {index} ".encode()
    return "call_" + hashlib.blake2b(context + prompt.token_ids, digest_size=12).hexdigest()
