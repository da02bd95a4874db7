"""Requests, and their sequences: one for each sample.

One counter chases another: `num_computed` positions are planned (their keys and values are in blocks once the plans in
flight have run), and `num_tokens` exist, the last of them perhaps still on its way from the worker. Prefill, decoding,
prefix hits and preemption are all just that difference. `scheduler.py` moves the counters.
"""

from abc import ABC, abstractmethod
from array import array
from collections import defaultdict
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from ..protocol.adapter_messages import NO_ADAPTER
from ..protocol.messages import Prompt, Said, SequenceEnded, sequence_id
from ..protocol.parameters.sampling import SamplingParams
from ..protocol.wire import values
from .grammar.calls import CallWatch, Guide
from .grammar.constraint import Busy, Constraint
from .grammar.remote import RemoteConstraint
from .media.request_media import RequestMedia

if TYPE_CHECKING:
    from .admission.queue import Client

NO_SLOT = -1


class Request:
    """The common part of one prompt's samples."""

    __slots__ = (
        "prompt",
        "num_prompt",
        "max_total",
        "min_total",
        "cycle_window",
        "endings",
        "stop_words",
        "possible_ends",
        "num_cached",
        "root",
        "prompt_keys",
        "adapter",
        "client",
        "media",
        "store",
    )

    def __init__(
        self,
        prompt: Prompt,
        max_model_len: int,
        root: bytes,
        client: "Client",
        adapter: int = NO_ADAPTER,
        *,
        has_whole_spans: bool = False,
    ) -> None:
        params = prompt.params
        self.prompt = prompt
        self.client = client
        self.num_prompt = len(prompt.token_ids) // 4
        longest = [max_model_len]
        if params.max_tokens is not None:
            longest.append(self.num_prompt + params.max_tokens)
        if params.max_length is not None:
            longest.append(params.max_length)
        self.max_total = min(longest)  # tokens, including the prompt's
        if prompt.pooled is not None:  # the token after its prompt never comes
            self.max_total = self.num_prompt + 1
        self.min_total = max(self.num_prompt + params.min_tokens, params.min_length)
        early_stop = params.early_stop
        self.cycle_window = early_stop.cycle_window if early_stop is not None else None
        # Tokens that end the answer, each with the stop_reason to report.
        self.endings: dict[int, int | None] = {token: token for token in params.stopping_ids}
        self.endings.update(dict.fromkeys(params.eos_token_id or ()))
        self.stop_words = [array("i", word) for word in params.long_stop_words]
        # The same, and the last tokens of stop sequences.
        self.possible_ends = {*self.endings, *(word[-1] for word in self.stop_words)}
        self.num_cached: int | None = None  # prompt tokens found in the cache when its first sample was admitted
        self.root = root
        # Keys of the prompt's full blocks computed so far, by the stretch of their positions.
        self.prompt_keys: defaultdict[int, list[bytes]] = defaultdict(list)
        self.adapter = adapter  # the place of its LoRA weights in the workers' memory
        self.media = RequestMedia(prompt.media, has_whole_spans=has_whole_spans) if prompt.media else None
        self.store = b""  # the key of the answers that it may draft from


class Sequence:
    """One sample, from its arrival to its end. It waits, or runs (with a slot and blocks), or does neither because
    its last token is in flight."""

    __slots__ = (
        "id",
        "request",
        "sample",
        "order",
        "is_long",
        "output",
        "num_known",
        "num_computed",
        "num_begun",
        "horizon",
        "max_total",
        "next_look",
        "endings",
        "possible_ends",
        "media",
        "claim",
        "first_claimed",
        "num_claimed",
        "may_draft",
        "num_doubtful",
        "num_draft_tokens",
        "num_accepted_tokens",
        "last_forced",
        "decoding",
        "free_decoding",
        "watch",
        "guide",
        "constraint",
        "is_held",
        "is_waiting",
        "looks_on_disk",
        "slot",
        "tables",
        "output_keys",
        "stretch",
        "num_certain",
        "has_ended",
        "has_news",
        "is_opened",
        "start_time",
        "silent_time",
        "was_preempted",
        "untold_preemptions",
        "wants_prompt_logprobs",
        "prompt_logprobs_sent",
        "prompt_logprobs_to_skip",
    )

    # Set by the scheduler: its strategy, and the one it has while nothing holds it.
    decoding: "DecodingStrategy"
    free_decoding: "DecodingStrategy"

    def __init__(self, request: Request, sample: int, arrival: int, is_long: bool) -> None:
        params = request.prompt.params
        self.id = sequence_id(request.prompt.request_id, sample)
        self.request = request
        self.sample = sample
        self.order: tuple[int, ...] = (params.priority, arrival)  # lower goes first; unique
        self.is_long = is_long
        self.output = array("i")
        self.num_known = request.num_prompt  # tokens whose value is known
        self.num_computed = 0
        self.num_begun = 0  # the end of its chunk that has passed through some layers only; 0 if it has none
        self.horizon = 0  # positions that may be computed before a block or a decision is needed
        self.max_total = request.max_total
        # At this number of known tokens, it may have to end whatever the newest one is.
        self.next_look = min(request.max_total, request.num_prompt + (request.cycle_window or request.max_total))
        self.endings = request.endings
        self.possible_ends = request.possible_ends
        self.media = request.media  # None for text alone
        claims = request.prompt.claims
        self.claim = values(claims[sample]) if sample < len(claims) else None  # the tokens that it is claimed to say
        self.num_claimed = 0  # claimed tokens that the workers have with its history, and that are not drawn yet
        self.num_doubtful = 0  # drafts in flight: `num_computed` counts them, and some may turn out to be wrong
        self.may_draft = True  # until a row of it with drafts has failed
        self.num_draft_tokens = 0  # checked so far
        self.num_accepted_tokens = 0  # of these
        self.last_forced = -(1 << 30)  # the known tokens when its grammar last had some to force: never yet
        self.first_claimed = 0  # the position of the first one when it entered its slot
        self.watch: CallWatch | None = None  # detects the beginning of a call
        self.guide: Guide | None = None  # the guide that holds it
        self.constraint: Constraint | RemoteConstraint | None = None  # decides which tokens may come next
        self.is_held = False  # until its constraint is ready for the next token
        self.is_waiting = False
        self.looks_on_disk = True  # for its prefix, until it has been fetched or the sequence has begun without it
        self.slot = NO_SLOT
        self.tables: list[Any] = []  # its memory in each group of layers, while it runs
        self.output_keys: list[bytes] = []  # keys of full blocks after the prompt's
        self.stretch = 0  # index of the length that its positions are rotated for
        self.num_certain = 0  # how many of its last tokens the model was certain of, for `early_stop`
        self.has_ended = False
        self.has_news = True  # a SequenceOpened or SequenceResumed is due with its next token
        self.is_opened = False
        self.start_time: float | None = None
        self.silent_time = 0.0  # of steps that gave it no token, not yet published
        self.was_preempted = False
        self.untold_preemptions = 0
        # All samples share the prompt's log-probabilities: the first one requests them.
        self.wants_prompt_logprobs = sample == 0 and params.prompt_logprobs is not None
        self.prompt_logprobs_sent = 0
        self.prompt_logprobs_to_skip = 0  # after a preemption the worker returns them again

    @property
    def num_tokens(self) -> int:
        """Tokens that exist, including the one in flight: computing the last known position samples another."""
        return max(self.num_given, self.num_computed + 1)

    @property
    def num_given(self) -> int:
        """Tokens to compute before the next one is sampled: the known ones, and drafts."""
        return self.num_known + self.num_claimed

    @property
    def num_findable_tokens(self) -> int:
        """Tokens at its head that are known and planned, so that others may find their blocks."""
        return min(self.num_known, self.num_computed)

    @property
    def num_prompt(self) -> int:
        return self.request.num_prompt

    @property
    def client(self) -> "Client":
        return self.request.client

    @property
    def num_left(self) -> int:
        """Given tokens that are not computed yet."""
        return self.num_given - self.num_computed

    @property
    def computes_every_row(self) -> bool:
        """Whether no row of its prompt may come from a cache: only computing one gives what is wanted of it."""
        pooled = self.request.prompt.pooled
        return self.wants_prompt_logprobs or (pooled is not None and pooled.reads_all)

    @property
    def waits_for_host(self) -> bool:
        """Whether its next step depends on a result that is not here yet, so that it can't be planned ahead."""
        waits = self.decoding.waits
        return waits is not None and waits(self)

    @property
    def is_running(self) -> bool:
        return self.slot != NO_SLOT

    @property
    def said(self) -> Said | None:
        """The tokens that it had said before it came here; None if it begins here."""
        said = self.request.prompt.said
        return said[self.sample] if self.sample < len(said) else None

    @property
    def params(self) -> SamplingParams:
        """The parameters that the workers need now."""
        params = self.request.prompt.params
        if self.wants_prompt_logprobs or params.prompt_logprobs is None:
            return params
        return msgspec.structs.replace(params, prompt_logprobs=None)

    def claim_ahead(self, most: int) -> None:
        """Send the rest of its claim ahead when it enters a slot, with at most so many tokens together. The last one is
        drawn after them. A grammar in another process is asked token by token."""
        if self.claim is not None:
            is_remote = self.constraint is not None and self.constraint.is_remote
            end = min(self.num_prompt + len(self.claim), self.max_total) - 1
            self.first_claimed = self.num_known
            self.num_claimed = 0 if is_remote else max(0, min(end, most) - self.num_known)

    def packed_claims(self) -> bytes:
        start = self.num_known - self.num_prompt
        return b"" if self.claim is None else self.claim[start : start + self.num_claimed].tobytes()

    def packed_tokens(self, start: int, end: int) -> bytes:
        """Known tokens as a packed int32 column."""
        prompt = self.request.prompt.token_ids[4 * start : 4 * end]
        if end <= self.num_prompt:
            return prompt
        return prompt + self.output[max(0, start - self.num_prompt) : end - self.num_prompt].tobytes()


class DecodingStrategy(ABC):
    """Decides how a sequence gets its tokens; the strategies are in `decoding/`.

    The scheduler plans every sequence alike and asks its strategy only where they differ.
    """

    # Takes the token that a step has sampled and the forced ones before it. None if the token only needs to be
    # appended, which the scheduler does itself.
    take: "Callable[[Sequence, int, array[int] | None], None] | None" = None
    # Whether the next step depends on a result that is not here yet; None if it never does.
    waits: Callable[[Sequence], bool] | None = None

    def begin(self, sequence: Sequence) -> Busy | str | None:
        """Prepare a new sequence, which may be held meanwhile. Returns a refusal, if any."""
        return None

    def follow(self, sequence: Sequence, tokens: "array[int]") -> None:
        """Append tokens that are known to have come next, and do what they bring about."""
        raise NotImplementedError("a search has said no tokens")

    @abstractmethod
    def give_way(self, sequence: Sequence) -> None:
        """Handle a preemption: put the sequence in the queue, unless it must wait for something else first."""

    @abstractmethod
    def end(self, sequence: Sequence, ended: SequenceEnded) -> None:
        """End the sequence, whatever its state. There is no other way to end one."""

    def resume(self, sequence: Sequence) -> None:  # noqa: B027  (most have nothing to do)
        """Continue with a sequence that is free again after a guide."""

    def num_candidates(self, sequence: Sequence) -> int:
        """How many candidates for the next token its row returns instead of sampling."""
        return 0

    def holds_others(self, sequence: Sequence) -> bool:
        """Whether running sequences wait for this one."""
        return False
