"""Plans long prompts next to streams layer by layer: a chunk of some hundred tokens passes through a few layers a step.

The few tokens of a prompt that fit next to streams would each step read the whole context, which beyond some position
takes longer than all else. A layered chunk reads each layer's context once, and any number of its tokens makes full use
of the time. Its blocks are taken when it begins. It counts as computed, and its blocks can be found, when its last
layer is planned; until then its sequence has no row. If the sequence leaves meanwhile, the chunk is dropped. A prompt's
last token is always in an ordinary chunk, as are prompts whose log-probabilities are wanted and those with a claimed
answer: these need the head.

One chunk is in progress at a time, since workers can keep one between steps. The next one is that of the prompt that
has waited for most times what it has left, so that each waits in proportion to its own length, however long the others
are and however many come. Short prompts keep their shares. Work is counted in tokens x layers; attention counts as
additional tokens, so that work is proportional to time.
"""

from bisect import bisect_right

from ...protocol.layer_groups import GroupChanges
from ...protocol.media import MediaRows
from ...protocol.memory_plan import MOST_LAYERED
from ...protocol.messages import ChunkLayers
from ..media.encoder import Encoder
from ..memory.cache import Cache
from ..request import Sequence
from ..running import RunningBatch
from ..step import Allowance, ScheduledStep, changes_of_row
from .gates import StepLoad
from .limits import Limits

MUCH_WORK = 256  # in each layer; less is done in few steps of ordinary chunks, which several prompts share


class LayeredChunk:
    """The chunk in progress."""

    __slots__ = ("sequence", "num_tokens", "end", "num_layers", "work", "groups", "media")

    def __init__(self, sequence: Sequence, num_tokens: int, work: int) -> None:
        self.sequence = sequence
        self.num_tokens = num_tokens
        self.end = sequence.num_computed + num_tokens
        self.num_layers = 0  # planned so far
        self.work = work  # of each layer
        self.groups: list[GroupChanges] = []  # for the workers, with the first layers
        self.media: list[MediaRows] = []  # likewise

    def add_to(self, step: ScheduledStep, first: int) -> None:
        """Add the layers from `first` on, as far as they are planned, to a step."""
        layers = ChunkLayers(self.sequence.slot, self.num_tokens, first, self.num_layers)
        if first == 0:
            layers.groups, layers.media = self.groups, self.media
        step.add_layers(self.sequence, layers, self.work * (self.num_layers - first))


class LayeredChunks:
    unit = 8  # A chunk's number of tokens is a multiple of it: fewer than 8 take as long as 8.

    def __init__(self, limits: Limits, running: RunningBatch, cache: Cache, encoder: Encoder) -> None:
        self._num_layers = limits.num_layers
        self._layer_keys = limits.layer_keys
        self._groups = [group for group in limits.groups if group.kind != "state"]
        self._most = min(MOST_LAYERED, limits.max_num_batched_tokens)
        self._running = running
        self._cache = cache
        self._encoder = encoder
        self.chunk: LayeredChunk | None = None
        self._planned = 0  # the work of all chunks in a layer
        self._since: dict[Sequence, int] = {}  # what had been planned when a prompt whose chunks are layered came

    def prompts(self, step: ScheduledStep) -> tuple[list[Sequence], list[Sequence]]:
        """The running prompts whose next chunks are layered, in their order, and the others."""
        if self.chunk is not None and self.chunk.sequence.num_begun != self.chunk.end:
            self.chunk = None  # its sequence has left
        long: list[Sequence] = []
        others: list[Sequence] = []
        for sequence in self._running.prefilling:
            is_long = sequence.num_begun or (step.is_paced and self._is_long(sequence))
            (long if is_long else others).append(sequence)
        self._since = {sequence: self._since.get(sequence, self._planned) for sequence in long}
        return long, others

    def _is_long(self, sequence: Sequence) -> bool:
        """Whether much work is left, or attention costs the next token more than a layer's products."""
        position, num_left = sequence.num_computed, sequence.num_left
        needs_head = sequence.request.prompt.params.prompt_logprobs is not None or sequence.claim is not None
        if needs_head or min(self._most, num_left - 1) < self.unit:
            return False
        is_far = self._keys(position) >= self._layer_keys * self._num_layers
        return is_far or self._work(position, num_left) > MUCH_WORK

    def go_on(self, step: ScheduledStep, load: StepLoad, work: int | None) -> None:
        """Plan as many layers as make so much work, one at least, of the chunk in progress or of a new one; None: all
        that are left."""
        if work == 0:
            return
        chunk = self.chunk
        if chunk is None:
            sequence = self._next(load.long)
            chunk = None if work is None else self._begin(sequence, step, load.allowance, work)
            if chunk is None:
                load.prompts.insert(0, sequence)  # it gets an ordinary chunk instead
                return
        first, left = chunk.num_layers, self._num_layers - chunk.num_layers
        # A sixteenth of slack: rounding two layers down to one would leave half of the time unused.
        chunk.num_layers += left if work is None else min(left, max(1, (work + work // 16) // chunk.work))
        chunk.add_to(step, first)
        load.allowance.spend(load.allowance.part if work is not None else min(load.allowance.part, chunk.num_tokens))
        if chunk.num_layers == self._num_layers:
            self._end(chunk, step)

    def _next(self, long: list[Sequence]) -> Sequence:
        """Choose the prompt whose chunk begins now: of those with the first priority the one that has waited for most
        times what it has left, and among equals the one with the least."""

        def rank(sequence: Sequence) -> tuple[int, int, int]:
            left = self._work(sequence.num_computed, sequence.num_left)
            return -sequence.order[0], (self._planned - self._since[sequence] << 16) // left, -left

        return max(long, key=rank)

    def _begin(self, sequence: Sequence, step: ScheduledStep, allowance: Allowance, work: int) -> LayeredChunk | None:
        """Take the blocks of a new chunk; None if it has to wait for blocks or media."""
        start, media, encoder_work = sequence.num_computed, sequence.media, step.encoder_work
        num_tokens = self._fitting(start, min(self._most, sequence.num_left - 1), work)
        if media is not None:
            num_tokens = self._encoder.reach(sequence, media, step, start, num_tokens, allowance)
        end = self._running.reach(sequence, start + num_tokens)
        if not start < end < sequence.num_known or step.encoder_work > encoder_work:
            return None
        additions = self._cache.extend(sequence, end)
        sequence.num_begun = end
        self.chunk = chunk = LayeredChunk(sequence, end - start, self._work(start, end - start))
        self._planned += chunk.work
        chunk.groups = changes_of_row(additions, len(self._cache.groups))
        if media is not None:
            chunk.media = list(self._encoder.rows_of(sequence, media, start, end, row=0))
        return chunk

    def _end(self, chunk: LayeredChunk, step: ScheduledStep) -> None:
        sequence, self.chunk = chunk.sequence, None
        sequence.num_begun = 0
        self._running.advance_to(sequence, chunk.end)
        if sequence.media is not None:
            self._encoder.release_up_to(sequence, sequence.media, chunk.end, step)

    def _fitting(self, position: int, most: int, work: int) -> int:
        """The largest chunk, of `most` tokens at most, whose layers divide evenly over steps of so much work each."""
        num_layers = -(-work // self._work(position, most))
        num_layers = -(-self._num_layers // max(1, self._num_layers // num_layers))
        numbers = range(self.unit, most + 1, self.unit)
        found = bisect_right(numbers, work // num_layers, key=lambda number: self._work(position, number))
        return numbers[max(0, found - 1)]

    def _keys(self, position: int) -> int:
        """The keys that a token at this position attends to, over all layers."""
        return sum(
            group.num_layers * (position if group.window is None else min(position, group.window))
            for group in self._groups
        )

    def _work(self, position: int, num_tokens: int) -> int:
        """The work of one layer on tokens from this position on."""
        keys = self._keys(position + num_tokens // 2)
        return num_tokens + num_tokens * keys // (self._layer_keys * self._num_layers)
