"""Every message that passes between two processes of a tree, in the order of a request's life.

Values that each row of a step has are sent as packed columns (`wire.py`); rare ones are sent as a list of structs. A
*sequence* is one sample of a request: its id is `sequence_id(request_id, sample)`, unique in the life of the tree and
never reused.
"""

from typing import Literal

from .adapter_messages import NO_ADAPTER, AboutAdapters, AdapterOrder, LoraAnswer
from .errors import ChildFailure
from .layer_groups import AboutDisk, DiskOrders, GroupChanges, SpareStates
from .media import Encode, MediaRows, Medium
from .memory_plan import MemoryPlan
from .parameters.beams import BeamSearchParams
from .parameters.guided import CallGuide, Grammar, Thought
from .parameters.sampling import MAX_SAMPLES, SamplingParams
from .pooling.form import Vectors, WantedVectors
from .stats import StartProgress, Stats, StatsQuery
from .wire import Message, Part, values

FinishReason = Literal["stop", "length", "abort", "error"]


def sequence_id(request_id: int, sample: int) -> int:
    return request_id * MAX_SAMPLES + sample


def request_and_sample(sequence: int) -> tuple[int, int]:
    return divmod(sequence, MAX_SAMPLES)


# --- start ---------------------------------------------------------------------------------------------------------


class Hello(Message):
    """A child's first message to the front end."""

    role: str
    pid: int
    versions: dict[str, str]
    machine: str = ""  # if it isn't node 0
    log: str = ""  # there


class Loaded(Message):
    """Worker → engine: the weights are loaded; here is its memory plan."""

    rank: int
    plan: MemoryPlan


class Allocate(Message):
    """Engine → workers: the plan that fits all ranks."""

    num_blocks: list[int]  # of each group
    max_model_len: int
    num_cpu_blocks: list[int]  # likewise


class Allocated(Message):
    """Worker → engine: KV memory is allocated, so steps may be sent."""

    rank: int


class Ready(Message):
    """A child → front end: it is ready. The engine's message carries the agreed plan."""

    role: str
    plan: MemoryPlan | None = None


class Notice(Message):
    """A child → front end: a warning for the person at the keyboard."""

    role: str
    text: str


class Stop(Message):
    """Front end → engine → workers and detokenizer: finish your work and exit."""


# --- a request on its way in ---------------------------------------------------------------------------------------


class Logprobs(Part):
    """Log-probabilities at positions of one row: the chosen token (column 0), then the most likely ones."""

    owner: int  # row in a StepResult, sequence id everywhere else
    is_prompt: bool
    width: int  # 1 + top n
    token_ids: bytes  # int32, positions x width
    logprobs: bytes  # float32, likewise
    ranks: bytes  # int32, of the chosen token, one per position


class Said(Part):
    """What one sample has said so far, in an answer that goes on."""

    token_ids: bytes  # int32
    logprobs: list[Logprobs] = []  # of each token, if the request wants them: they can't be computed again


class Prompt(Part):
    request_id: int
    token_ids: bytes  # int32 column
    # The caller's parameters, with the model's filled in: eos_token_id is the list of ids that end an answer (empty
    # with ignore_eos), bad_words have become bad_words_ids, max_tokens is set and fits max_model_len.
    params: SamplingParams
    seed: int
    arrival_time: float
    is_streamed: bool = False  # False: one delta, at the end
    beams: BeamSearchParams | None = None  # search instead of sampling; params.n is then its width
    thought: Thought | None = None  # if a reasoning parser knows how thoughts are marked
    grammar: Grammar | None = None  # the answer's; not in params, because those are passed on to the workers
    client: str = ""  # within a priority, clients take turns
    is_parsed: bool = False  # the front end parses the answer's marks, so they stay in its text
    media: list[Medium] = []  # in the order of their spans
    # int32 [3, prompt]: time, height and width of each token, if the model rotates by them and there are media.
    positions: bytes = b""
    calls: list[CallGuide] = []  # for the tools that the answer may call
    said: list[Said] = []  # of each sample, if the answer goes on
    claims: list[bytes] = []  # int32, of each sample, which ends with the first drawn token that isn't the claimed one
    expected: list[bytes] = []  # int32, of each sample: what an earlier run answered here. A guess, for drafts alone.
    delta_tokens: int = 0  # if it isn't streamed, a delta each time that a sample has said so many more; 0: none
    reports_start: bool = False  # the front end hears when the first of its tokens is computed
    pooled: WantedVectors | None = None  # vectors instead of tokens


class Generate(Message):
    """Front end → engine."""

    prompts: list[Prompt]


class Started(Message):
    """Engine → front end: requests that enter their first step, sent before its plan."""

    request_ids: list[int]


class GrammarsReady(Message):
    """The engine's own threads → engine: compiled grammars can be collected."""


class Abort(Message):
    """Front end or detokenizer → engine. Unknown sequences are ignored: they have ended already."""

    sequence_ids: list[int]


# --- a step ---------------------------------------------------------------------------------------------------------


class NewSlot(Part):
    """A sequence enters a slot, for the first time or after a preemption."""

    slot: int
    token_ids: bytes  # the whole history, int32
    num_prompt: int  # how many of these belong to the prompt
    num_computed: int  # how many are in KV blocks already
    params: SamplingParams
    seed: int
    sample: int
    # If not 0, the row samples nothing: its result has this many candidates, and its next token is sent as a forced
    # one.
    num_candidates: int = 0
    # How many tokens at the history's end are claimed ones: at the place of each, one is drawn all the same.
    num_claimed: int = 0
    store: bytes = b""  # sequences with the same key may draft from each other's answers; empty: from none
    expected: bytes = b""  # int32: what an earlier run answered here, from its first token on
    adapter: int = NO_ADAPTER  # the slot of its LoRA weights in the workers' memory
    rotation_start: int = 0  # where its positions begin in the rotary table: the sum of all shorter stretches
    positions: bytes = b""  # of its prompt, likewise int32 [3, num_prompt]; later tokens continue from the largest
    pooled: WantedVectors | None = None  # it samples nothing; its prompt's end gives vectors


class ForcedTokens(Part):
    """Tokens that a slot is given instead of sampling them. They are appended to its history before the step."""

    slot: int
    token_ids: bytes


class Fork(Part):
    """A slot that starts as a copy of another: history, parameters and number of computed tokens."""

    source: int
    target: int
    sample: int
    # The target's whole table in each group. In a group of states: the state it continues in, which is a copy.
    block_ids: list[bytes]


class ChunkLayers(Part):
    """Layers of a chunk of a prompt that passes through the model over several steps, next to their rows.

    A slot's chunk counts as computed with its last layer; until then the slot has no row. It ends before the last known
    token, so it samples nothing. A chunk begins only when the previous one is done, or dropped because its slot is
    freed.
    """

    slot: int
    num_tokens: int
    first_layer: int  # 0 begins the chunk
    end_layer: int
    groups: list[GroupChanges] = []  # with the first layer: what its tables get, as those of a step's only row
    media: list[MediaRows] = []  # likewise


class StepPlan(Message):
    """Engine → all workers: the plan of one step. Row r of every column belongs to the same slot.

    A worker applies, in this order: freed, new, forks, forced, spares, block ids, saves, loads, orders for the disk,
    copies, dropped entries, encodes, orders about rows of media; then it computes layers of a chunk, then the rows. A
    row whose computed tokens reach the end of its known history samples the next one, and before that at the place of
    each draft that it passed.
    """

    step: int
    slots: bytes
    num_tokens: bytes  # to compute in this step
    groups: list[GroupChanges]
    freed: bytes = b""  # slots
    new: list[NewSlot] = []
    forced: list[ForcedTokens] = []
    forks: list[Fork] = []
    rooms: bytes = b""  # how many drafts each row may add; empty if no row may
    masked: bytes = b""  # rows that wait for this step's MaskFrame before they sample
    dropped_entries: bytes = b""  # whose rows may be dropped
    encodes: list[Encode] = []
    media: list[MediaRows] = []  # by row, then by offset
    layered: list[ChunkLayers] = []
    spares: list[SpareStates] = []
    disk: DiskOrders | None = None  # carried out while this and later steps run

    def has_room(self, row: int) -> bool:
        return bool(self.rooms) and values(self.rooms)[row] > 0

    @property
    def has_rows_only(self) -> bool:
        """Whether the plan has only rows and their block moves: no sequence enters, leaves or is masked, and there are
        no media and no layers of a chunk."""
        if self.new or self.freed or self.forced or self.forks or self.masked or self.dropped_entries or self.spares:
            return False
        if self.encodes or self.media or self.layered or (self.disk is not None and self.disk.has_rows):
            return False
        return not any(group.copies for group in self.groups)


class Drafts(Message):
    """Rank 0 → engine, at once: the drafts of a step's masked rows, so that their masks can be computed."""

    step: int
    rows: list[int]
    token_ids: list[bytes]  # int32, of each of these rows


class MaskFrame(Message):
    """Engine → all workers: which tokens the masked rows of a step may sample."""

    step: int
    rows: bytes  # one that samples several tokens is there as often, in their order
    bits: bytes  # len(rows) x mask_bytes(vocab_size), lowest bit first; 1 allows


class Candidates(Part):
    """The most likely next tokens of a row that samples nothing, best first."""

    row: int
    token_ids: bytes  # int32
    logprobs: bytes  # float32, of the model's own distribution


class FailedRow(Part):
    row: int
    message: str
    error_code: int = 500  # 400: its own parameters leave no token to choose


class StepResult(Message):
    """Rank 0 → engine: the results of a step."""

    step: int
    num_sampled: bytes  # per row
    sampled: bytes  # the rows' tokens one after another
    forward_time: float
    failed: list[FailedRow] = []
    logprobs: list[Logprobs] = []
    candidates: list[Candidates] = []
    # Pairs, for rows that watch for repetition: the row, and 1 if its token was at least as likely as its threshold,
    # else 0.
    certainty: bytes = b""
    num_drafted: bytes = b""  # per row, how many drafts it had; empty: none had any
    vectors: list[Vectors] = []  # of rows whose prompt ends and is pooled


# --- a request on its way out ---------------------------------------------------------------------------------------


class SequenceOpened(Part):
    """Everything that the detokenizer needs for a sequence; sent before its first token."""

    sequence_id: int
    num_prompt: int
    prompt_tail: bytes  # the last few prompt tokens: the context of the first text
    params: SamplingParams
    is_streamed: bool
    num_cached: int
    arrival_time: float
    inference_start_time: float | None  # None: it ended while it waited
    forward_time: float  # of the steps that it was in so far, without the current one
    is_parsed: bool = False
    said: Said | None = None  # before its first token
    delta_tokens: int = 0  # the prompt's


class SequenceResumed(Part):
    """Time in steps that gave a sequence no token, after a preemption or between chunks."""

    sequence_id: int
    forward_time: float
    preemptions: int


class Score(Part):
    """A beam's cumulative log-probability, and the score that orders beams."""

    cumulative_logprob: float
    score: float


class SequenceEnded(Part):
    sequence_id: int
    finish_reason: FinishReason
    stop_reason: int | str | None = None
    error_code: int = 200
    error_msg: str | None = None
    score: Score | None = None
    num_draft_tokens: int = 0
    num_accepted_tokens: int = 0  # of these


class Tokens(Message):
    """Engine → detokenizer: one step, or several with the same sequences. Applied in the order opened, resumed, tokens,
    ended."""

    sequence_ids: bytes = b""  # int64
    num_tokens: bytes = b""
    token_ids: bytes = b""
    forward_time: float = 0.0  # counts for every sequence listed
    opened: list[SequenceOpened] = []
    resumed: list[SequenceResumed] = []
    ended: list[SequenceEnded] = []
    logprobs: list[Logprobs] = []
    drafts: bytes = b""  # int64: triples of a sequence with stop strings, its drafts and its accepted drafts so far
    vectors: list[Vectors] = []  # of sequences that end


class Timing(Part):
    arrival_time: float
    inference_start_time: float | None
    first_token_time: float | None  # Unix seconds
    end_time: float
    forward_time: float
    preemptions: int
    num_draft_tokens: int = 0
    num_accepted_tokens: int = 0  # of these


class Delta(Part):
    """The new output of one sequence."""

    sequence_id: int
    text: str
    token_ids: bytes
    num_cached: int
    finish_reason: FinishReason | None = None
    stop_reason: int | str | None = None
    error_code: int = 200
    error_msg: str | None = None
    timing: Timing | None = None  # with the last delta
    logprobs: list[Logprobs] = []
    score: Score | None = None  # likewise, of a beam
    vectors: Vectors | None = None  # likewise, of a pooled prompt


class Deltas(Message):
    """Detokenizer → front end."""

    deltas: list[Delta]


FromWorker = StepResult | Drafts | Loaded | Allocated | AboutDisk
EngineInbox = Generate | Abort | FromWorker | Stop | StatsQuery | AboutAdapters | GrammarsReady
WorkerInbox = Allocate | StepPlan | MaskFrame | Stop | AdapterOrder
DetokenizerInbox = Tokens | Stop
FrontendInbox = Hello | Ready | Notice | StartProgress | Started | Deltas | ChildFailure | Stats | LoraAnswer
