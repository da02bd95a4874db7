"""Limits of this engine, as options and memory give them, and refusals of requests that can never be served.

Refusals are rows of a table. `gates.py` has what a sequence must pass to enter a step.
"""

from collections.abc import Callable
from dataclasses import field

from ...protocol.layer_groups import CHECKPOINT_EVERY, GroupPlan
from ...protocol.media import MediaPlan
from ...protocol.memory_plan import MemoryPlan
from ...protocol.options.config import EngineConfig
from ...protocol.wire import values
from ...records import dataclass
from ..media.encoder import NO_ENCODER
from ..media.request_media import RequestMedia
from ..memory.group_memory import capacity, smallest
from ..request import Request

# If long prompts are limited without a threshold, they begin at this share of the context.
_LONG_SHARE = 0.04
_MOST_NGRAM_DRAFTS = 8
_ANY = 2**31


@dataclass(frozen=True, slots=True)
class DraftLimits:
    """How many drafts rows may compute besides their tokens."""

    each: int  # a row
    all: int  # a step: drafts must not delay prompts
    least: int = 1  # a row; less isn't worth looking for
    rests: bool = False  # in every other step, while nothing is drafted

    @classmethod
    def of(cls, config: EngineConfig, plan: MemoryPlan) -> "DraftLimits | None":
        """The limits that options and device give; None if nothing is drafted: drafts must not change an answer."""
        if not config.drafts or not plan.is_deterministic:
            return None
        own, speculation = _DRAFT_LIMITS[plan.device.split(":")[0]], config.speculative_config
        if speculation is None or speculation.method == "auto":
            most = own.each if speculation is None else speculation.num_speculative_tokens or own.each
            return cls(most, own.all, min(own.least, most), rests=True)
        most = _MOST_NGRAM_DRAFTS if speculation.method == "ngram" else own.each
        return cls(speculation.num_speculative_tokens or most, _ANY)


# Where Penstock decides.
_DRAFT_LIMITS = {
    # It takes some three times as long for as many rows as for one; more are rarely worth it.
    "cpu": DraftLimits(each=31, all=128, least=4),
    # The steps that are captured: up to eight rows, of eight tokens each.
    "cuda": DraftLimits(each=7, all=56, least=7),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    groups: tuple[GroupPlan, ...]  # of layers: attention first (longest before windows), then states
    block_size: int
    max_model_len: int
    max_num_seqs: int
    max_num_batched_tokens: int
    static_decode_blocks: int = 2
    prefix_cache_ttl: float | None = None  # seconds; None: for ever
    num_disks: int = 0  # ranks that keep blocks on disk
    kv_cache_ratio: float | None = None
    enable_chunked_prefill: bool = True
    max_num_partial_prefills: int | None = None
    max_long_partial_prefills: int | None = None
    long_prefill_token_threshold: int | None = None
    stretches: tuple[int, ...] = ()  # lengths that positions are rotated for, if there are several
    vocab_size: int = 2**31
    checkpoint_every: int = CHECKPOINT_EVERY  # tokens between two saved states
    media: MediaPlan | None = None  # for a vision model
    mm_encoder_budget: int | None = None
    num_layers: int = 0  # that chunks can pass through over several steps
    draft_limits: DraftLimits | None = None  # if there are drafts
    layer_keys: int = 1  # that cost a token as much as its matrix products in a layer
    has_whole_texts: bool = False  # tokens see those after them, so a prompt can't be cut
    capacity: int = field(init=False)  # tokens of one sequence that all groups hold

    def __post_init__(self) -> None:
        object.__setattr__(self, "capacity", min(capacity(group, self.block_size) for group in self.groups))

    @classmethod
    def settled(cls, config: EngineConfig, plan: MemoryPlan) -> "Limits":
        """The options, with the device's defaults for those that are unset."""
        num_seqs, num_tokens = config.step_limits(plan.device)
        return cls(
            groups=tuple(plan.groups),
            block_size=config.block_size,
            max_model_len=plan.max_model_len,
            max_num_seqs=num_seqs,
            max_num_batched_tokens=num_tokens,
            static_decode_blocks=config.static_decode_blocks,
            prefix_cache_ttl=config.prefix_cache_ttl,
            num_disks=config.tensor_parallel_size if config.keeps_prefixes else 0,
            kv_cache_ratio=config.kv_cache_ratio,
            enable_chunked_prefill=config.enable_chunked_prefill,
            max_num_partial_prefills=config.max_num_partial_prefills,
            max_long_partial_prefills=config.max_long_partial_prefills,
            long_prefill_token_threshold=config.long_prefill_token_threshold,
            stretches=tuple(plan.stretches),
            vocab_size=plan.vocab_size,
            media=plan.media,
            mm_encoder_budget=config.mm_encoder_budget,
            num_layers=plan.num_layers,
            layer_keys=plan.layer_keys,
            draft_limits=DraftLimits.of(config, plan),
            has_whole_texts=plan.has_whole_texts,
        )

    @property
    def num_slots(self) -> int:
        """At most one sequence per token of the budget: every running sequence must get a token into every step."""
        return min(self.max_num_seqs, self.max_num_batched_tokens)

    @property
    def shortest(self) -> GroupPlan:
        """The group that a growing sequence fills first."""
        return smallest(self.groups, self.block_size)

    @property
    def last_token(self) -> int:
        return self.vocab_size - 1

    @property
    def encoder(self) -> MediaPlan:
        return self.media or NO_ENCODER

    @property
    def most_encoder_work(self) -> int:
        """The most encoder work of a step that delays nobody, in patches x layers: as if patches were prompt tokens."""
        return self.max_num_batched_tokens * self.encoder.num_layers

    @property
    def max_long(self) -> int | None:
        """How many long prompts may be computed at once; None: any number."""
        if self.max_long_partial_prefills is None and self.long_prefill_token_threshold is not None:
            return 1
        return self.max_long_partial_prefills

    def is_long(self, num_prompt: int) -> bool:
        if self.long_prefill_token_threshold is not None:
            return num_prompt > self.long_prefill_token_threshold
        return self.max_long is not None and num_prompt > int(self.max_model_len * _LONG_SHARE)

    def refusal(self, request: Request) -> str | None:
        """Why a request can never be served, in a sentence."""
        for is_wrong, sentence in _REFUSALS:
            if is_wrong(self, request):
                return sentence.format(limits=self, request=request)
        if not all(self.are_tokens(claim) for claim in request.prompt.claims if claim):
            return f"An answer is claimed to have what is no token of the vocabulary (0 to {self.last_token})."
        if request.prompt.said and (refusal := self._refusal_of_said(request)) is not None:
            return refusal
        return None if request.media is None else self._refusal_of_media(request, request.media)

    def _refusal_of_said(self, request: Request) -> str | None:
        if request.prompt.beams is not None:
            return "A beam search can't go on from tokens that were said before."
        for said in request.prompt.said:
            if said.token_ids and not self.are_tokens(said.token_ids):
                return f"The answer goes on from something that is no token of the vocabulary (0 to {self.last_token})."
            if (num_tokens := request.num_prompt + len(said.token_ids) // 4) > request.max_total:
                return f"The answer goes on from {num_tokens:,} tokens, and may have {request.max_total:,}."
        return None

    def are_tokens(self, packed: bytes) -> bool:
        """Whether these are tokens of the vocabulary, one or more."""
        if len(packed) % 4:
            return False
        token_ids = values(packed)
        return min(token_ids) >= 0 and max(token_ids) < self.vocab_size

    def _refusal_of_media(self, request: Request, media: RequestMedia) -> str | None:
        for is_wrong, sentence in _REFUSALS_OF_MEDIA:
            if is_wrong(self, request, media):
                return sentence.format(limits=self, media=media)
        return None


# The front end has checked most of this before, but a worker must never get a plan that it can't compute.
_REFUSALS: tuple[tuple[Callable[[Limits, Request], bool], str], ...] = (
    (
        lambda limits, request: request.num_prompt == 0,
        "The prompt is empty: it has no tokens.",
    ),
    (
        lambda limits, request: not limits.are_tokens(request.prompt.token_ids),
        "The prompt holds something that is no token of the vocabulary (0 to {limits.last_token}).",
    ),
    (
        lambda limits, request: request.prompt.pooled is not None and request.num_prompt > limits.max_model_len,
        "The prompt has {request.num_prompt:,} tokens, and the model takes max_model_len={limits.max_model_len:,}. "
        "Shorten it, or raise that.",
    ),
    (
        lambda limits, request: request.prompt.pooled is None and request.num_prompt >= limits.max_model_len,
        "The prompt has {request.num_prompt:,} tokens, and max_model_len={limits.max_model_len:,} must hold it and at "
        "least one output token. Shorten it or raise max_model_len.",
    ),
    (
        lambda limits, request: request.max_total <= request.num_prompt,
        "max_length={request.max_total:,} leaves no token after a prompt of {request.num_prompt:,}.",
    ),
    (
        lambda limits, request: request.num_prompt > limits.capacity,
        "The prompt has {request.num_prompt:,} tokens, and the KV cache holds {limits.shortest.num_blocks:,} blocks of "
        "{limits.block_size}. Shorten it or raise kv_cache_memory.",
    ),
    (
        lambda limits, request: (
            not (limits.enable_chunked_prefill or limits.has_whole_texts)
            and request.num_prompt > limits.max_num_batched_tokens
        ),
        "The prompt has {request.num_prompt:,} tokens, and without chunked prefill a step takes "
        "max_num_batched_tokens={limits.max_num_batched_tokens:,}. Shorten it, raise that, or leave "
        "enable_chunked_prefill on.",
    ),
)
# Refusals of requests with pictures or videos.
_REFUSALS_OF_MEDIA: tuple[tuple[Callable[[Limits, Request, RequestMedia], bool], str], ...] = (
    (
        lambda limits, request, media: limits.media is None,
        "The prompt has a picture or a video, and this model sees none.",
    ),
    (
        lambda limits, request, media: not media.is_sound(request.num_prompt),
        "The rows of a picture or video of the prompt don't stand in it one behind the other.",
    ),
    (
        lambda limits, request, media: media.most_patches > limits.encoder.most_patches,
        "A picture or video of the prompt has {media.most_patches:,} patches, and the encoder takes "
        "{limits.encoder.most_patches:,}. Give it fewer frames, or make it smaller.",
    ),
    (
        lambda limits, request, media: (
            media.most_of_frame(limits.encoder.frames_together) > limits.encoder.most_of_frame
        ),
        "A picture of the prompt, or a frame of a video, has more than {limits.encoder.most_of_frame:,} patches, which "
        "are the most that see one another. Make it smaller.",
    ),
    (
        lambda limits, request, media: media.most_rows > limits.encoder.num_rows,
        "A picture or video of the prompt has {media.most_rows:,} rows, and memory keeps "
        "{limits.encoder.num_rows:,} of them. Make it smaller, or raise mm_cache.",
    ),
    (
        lambda limits, request, media: (
            limits.encoder.has_whole_spans and media.longest_span + limits.num_slots - 1 > limits.max_num_batched_tokens
        ),
        "A picture of the prompt has {media.longest_span:,} rows that are computed in one step, beside a token "
        "of each of {limits.num_slots:,} requests. Use max_num_batched_tokens of that sum or more, or a smaller "
        "max_num_seqs.",
    ),
)
