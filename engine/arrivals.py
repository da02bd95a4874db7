"""Sequences on their way into the queue.

A request becomes a sequence for each of its samples. Most join the queue at once. Others are held until their grammars
are compiled or followed, or wait outside the queue until their prefix has come from the disk. They then take the place
that their arrival gives them.
"""

from collections.abc import Iterator

from ..protocol.layer_groups import AboutDisk
from ..protocol.messages import Prompt
from .adapters import AdapterReference, AdapterTable
from .admission.limits import Limits
from .admission.queue import WaitingQueue
from .decoding.beam_decoding import BeamDecoding
from .decoding.call_decoding import CallDecoding
from .decoding.guided_decoding import GuidedDecoding
from .decoding.pooled import PooledDecoding
from .decoding.replay import replay
from .decoding.strategy import PlainDecoding, refused
from .grammar.constraint import Busy
from .memory.cache import Cache
from .memory.keys import store_key
from .request import Request, Sequence


class Arrivals:
    def __init__(
        self,
        limits: Limits,
        adapters: AdapterTable,
        cache: Cache,
        sequences: dict[int, Sequence],
        waiting: WaitingQueue,
        *,
        plain: PlainDecoding,
        guided: GuidedDecoding,
        calls: CallDecoding,
        beams: BeamDecoding,
        pooled: PooledDecoding,
    ) -> None:
        """`sequences` are all that have not ended, by id; those that arrive are added."""
        self._limits = limits
        self._adapters = adapters
        self._cache = cache
        self._sequences = sequences
        self._waiting = waiting
        self._plain = plain
        self._guided = guided
        self._calls = calls
        self._beams = beams
        self._pooled = pooled
        self._number = 0  # of the newest arrival

    def add(self, prompt: Prompt) -> None:
        """Accept a request. One that can never be served ends at once."""
        adapter, refusal = AdapterReference(), None
        if (lora_name := prompt.params.lora_name) is not None:
            adapter, refusal = self._adapters.find(lora_name), self._adapters.refusal(lora_name)
        root = self._cache.root_of(prompt, adapter.key)
        client = self._waiting.client(prompt.client)
        has_whole_spans = self._limits.encoder.has_whole_spans
        request = Request(
            prompt, self._limits.max_model_len, root, client, adapter.slot, has_whole_spans=has_whole_spans
        )
        if self._limits.draft_limits is not None:
            request.store = store_key(prompt.params.cache_salt, adapter.key, prompt.client)
        refusal = refusal or self._limits.refusal(request)
        is_long = self._limits.is_long(request.num_prompt)
        for sequence in self._sequences_of(request, is_long):
            self._sequences[sequence.id] = sequence
            self._let_in(sequence, refusal or sequence.decoding.begin(sequence))

    def _let_in(self, sequence: Sequence, refusal: Busy | str | None) -> None:
        if refusal is not None:
            sequence.decoding.end(sequence, refused(sequence, refusal))
            return
        if (said := sequence.said) is not None:
            self._guided.begin_time()  # each has a step's time for its grammars
            replay(sequence, said)
        if not (sequence.is_held or sequence.is_waiting or sequence.has_ended):
            self._waiting.push(sequence)

    def let_in_held(self) -> None:
        """Let held sequences join the queue, in their old order, when their grammars are compiled or followed."""
        for sequence, refusal in self._guided.ready():
            self._let_in(sequence, refusal)
        self.let_in_reported()

    def let_in_reported(self) -> None:
        """Let held sequences go on on which the follower has reported."""
        for sequence in self._guided.reported():
            self._let_in(sequence, None)

    def take_from_disk(self, message: AboutDisk) -> None:
        """Take in a rank's report on its disk. Sequences whose prefix has come join the queue, in their old order."""
        if self._cache.disk is None:
            raise RuntimeError("A worker reports on its disk, and nothing is kept there.")
        for sequence in self._cache.disk.take(message):
            self._waiting.push(sequence)

    def let_in_late(self) -> None:
        """Let sequences join the queue that have waited too long for the disk."""
        if self._cache.disk is not None:
            for sequence in self._cache.disk.let_in_late():
                self._waiting.push(sequence)

    @property
    def patience(self) -> float | None:
        """Seconds until a sequence may have waited too long for the disk; None if none waits."""
        return None if self._cache.disk is None else self._cache.disk.patience

    def _sequences_of(self, request: Request, is_long: bool) -> Iterator[Sequence]:
        """The sequences of a request: one for each sample, or the first beam of a search."""
        prompt = request.prompt
        if prompt.beams is not None:
            self._number += 1
            yield self._beams.first_beam(request, prompt.beams, self._number, is_long)
            return
        is_free = prompt.grammar is None and prompt.params.reasoning_max_tokens is None
        for sample in range(prompt.params.n):
            self._number += 1
            sequence = Sequence(request, sample, self._number, is_long)
            sequence.free_decoding = self._free_decoding(prompt)
            sequence.decoding = sequence.free_decoding if is_free else self._guided
            yield sequence

    def _free_decoding(self, prompt: Prompt) -> PlainDecoding:
        if prompt.pooled is not None:
            return self._pooled
        return self._calls if prompt.calls else self._plain
