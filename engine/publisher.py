"""Gathers the news of a step for the detokenizer (sequences opened, their tokens, their ends) in one `Tokens`.

Every accepted sequence is opened once, before its first token or with its end, and ended once. The loop sends the
result of `take` through a `TokenBuffer`, which holds it back for several steps while nobody waits for it.
"""

from array import array
from itertools import chain

from ..protocol.messages import Logprobs, SequenceEnded, SequenceOpened, SequenceResumed, StepResult, Tokens
from ..protocol.pooling.form import Vectors
from ..protocol.wire import column, values, wide_column
from .request import Sequence
from .step import ScheduledStep

# How many of the prompt's last tokens the detokenizer gets as context for the first text.
_PROMPT_TAIL = 16
_MOST_STEPS = 32  # in one message of the buffer


class Publisher:
    def __init__(self) -> None:
        self._opened: list[SequenceOpened] = []
        self._resumed: list[SequenceResumed] = []
        self._ended: list[tuple[Sequence, SequenceEnded]] = []
        self._logprobs: list[Logprobs] = []
        self.vectors: list[Vectors] = []  # of pooled prompts, by sequence id
        self._drafting: list[Sequence] = []  # with drafts in this step, and stop strings
        self._several: dict[int, array[int]] = {}  # tokens of the sequences that get more than one
        self._drawn: dict[int, list[Logprobs]] = {}  # of rows that draw several tokens, until these are taken

    @property
    def has_ends(self) -> bool:
        return bool(self._ended)

    def news(self, sequence: Sequence) -> None:
        """Open or resume a sequence before its next token or its end."""
        if not sequence.is_opened:
            self._opened.append(_opened(sequence))
            sequence.is_opened = True
            sequence.silent_time = 0.0
        if sequence.silent_time or sequence.untold_preemptions:
            self._resumed.append(SequenceResumed(sequence.id, sequence.silent_time, sequence.untold_preemptions))
        sequence.silent_time = 0.0
        sequence.untold_preemptions = 0
        sequence.has_news = False

    def add_tokens(self, sequence: Sequence, token_ids: "array[int]") -> None:
        """Publish several tokens of a sequence at once."""
        self._several[sequence.id] = token_ids

    def note_drafts(self, sequence: Sequence) -> None:
        """Publish its counts of drafts with this step if a stop string may end it, and otherwise with its end."""
        if sequence.request.prompt.params.stop:
            self._drafting.append(sequence)

    def end(self, sequence: Sequence, ended: SequenceEnded) -> None:
        if sequence.has_news:
            self.news(sequence)
        self._ended.append((sequence, ended))

    def logprobs(self, step: ScheduledStep, result: StepResult) -> None:
        """Pass on log-probabilities by sequence id; called before the step's tokens can end a sequence."""
        for entry in result.logprobs:
            sequence = step.rows[entry.owner]
            if sequence.has_ended or (sequence in step.dropped and not entry.is_prompt):
                continue
            is_drawn = entry.owner in step.several or sequence.claim is not None
            entry.owner = sequence.id
            if not entry.is_prompt and is_drawn:
                self._drawn.setdefault(sequence.id, []).append(entry)
            elif not entry.is_prompt:
                self._logprobs.append(entry)
            elif (rest := _not_sent_yet(sequence, entry)) is not None:
                if not sequence.is_opened:  # the prompt's log-probabilities come before any token
                    self.news(sequence)
                self._logprobs.append(rest)

    def take_drawn(self, sequence: Sequence, count: int) -> None:
        """Pass on the log-probabilities of the first tokens that a row has drawn; the others don't count."""
        for entry in self._drawn.pop(sequence.id, []):
            if count > 0:
                self._logprobs.append(_cut(entry, 0, count))
            count -= len(entry.ranks) // 4

    def take(self, sequence_ids: list[int], token_ids: "array[int]", forward_time: float) -> Tokens:
        """The message with everything gathered, and one token for each of the given sequences."""
        several, self._several = self._several, {}
        for sequence, ended in self._ended:  # whose last drafts were counted after its last token was taken
            ended.num_draft_tokens, ended.num_accepted_tokens = sequence.num_draft_tokens, sequence.num_accepted_tokens
        message = Tokens(
            wide_column([*sequence_ids, *several]),
            column([1] * len(sequence_ids) + [len(tokens) for tokens in several.values()]),
            token_ids.tobytes() + b"".join(tokens.tobytes() for tokens in several.values()),
            forward_time,
            self._opened,
            self._resumed,
            [ended for _, ended in self._ended],
            self._logprobs,
            _counts_of(self._drafting) if self._drafting else b"",
            self.vectors,
        )
        self._opened, self._resumed, self._ended, self._logprobs, self._drafting = [], [], [], [], []
        self.vectors = []
        return message

    def take_ends(self) -> Tokens:
        """The message for sequences that have ended without a step."""
        return self.take([], array("i"), 0.0)


def _opened(sequence: Sequence) -> SequenceOpened:
    prompt = sequence.request.prompt
    return SequenceOpened(
        sequence_id=sequence.id,
        num_prompt=sequence.num_prompt,
        prompt_tail=prompt.token_ids[-4 * _PROMPT_TAIL :],
        params=prompt.params,
        is_streamed=prompt.is_streamed,
        num_cached=sequence.request.num_cached or 0,
        arrival_time=prompt.arrival_time,
        inference_start_time=sequence.start_time,
        forward_time=sequence.silent_time,
        is_parsed=prompt.is_parsed,
        said=sequence.said,
        delta_tokens=prompt.delta_tokens,
    )


def _counts_of(drafting: list[Sequence]) -> bytes:
    triples = ((each.id, each.num_draft_tokens, each.num_accepted_tokens) for each in drafting)
    return wide_column(chain.from_iterable(triples))


def _not_sent_yet(sequence: Sequence, entry: Logprobs) -> Logprobs | None:
    """The positions of a prompt not yet passed on before a preemption; None if there are none."""
    positions = len(entry.ranks) // 4
    skipped = min(sequence.prompt_logprobs_to_skip, positions)
    sequence.prompt_logprobs_to_skip -= skipped
    sequence.prompt_logprobs_sent += positions - skipped
    if sequence.prompt_logprobs_sent >= sequence.num_prompt - 1:
        sequence.wants_prompt_logprobs = False
    return None if skipped == positions else _cut(entry, skipped, positions)


def _cut(entry: Logprobs, start: int, end: int) -> Logprobs:
    """Some of its positions."""
    narrow, wide = slice(4 * start, 4 * end), slice(4 * start * entry.width, 4 * end * entry.width)
    return Logprobs(
        entry.owner, entry.is_prompt, entry.width, entry.token_ids[wide], entry.logprobs[wide], entry.ranks[narrow]
    )


class TokenBuffer:
    """Holds tokens back from the detokenizer over several steps while nobody waits for them.

    An answer that is neither streamed nor checked for stop strings is needed only at its end. While there are no other
    answers and the same sequences get one token each, their steps are sent as one message: the fewer processes wake for
    every token, the less time they take from the workers, which may share their cores.
    """

    def __init__(self) -> None:
        self._watched: set[int] = set()  # sequences whose tokens must be sent at once
        self._held: list[Tokens] = []  # steps of the same sequences, one token each

    def take(self, message: Tokens) -> list[Tokens]:
        """Take a step's message; returns the messages to send now, in order."""
        self._note_watched(message)
        if not self._may_wait(message):
            return [*self._released(), message]
        leaving = [] if self._fits(message) else self._released()
        self._held.append(message)
        return leaving

    def _note_watched(self, message: Tokens) -> None:
        for opened in message.opened:
            if opened.is_streamed or opened.params.stop:
                self._watched.add(opened.sequence_id)
        for ended in message.ended:
            self._watched.discard(ended.sequence_id)

    def _may_wait(self, message: Tokens) -> bool:
        has_news = message.opened or message.resumed or message.ended or message.logprobs
        is_even = len(message.token_ids) == len(message.num_tokens)  # one token each
        return not self._watched and not has_news and is_even

    def _fits(self, message: Tokens) -> bool:
        if not self._held:
            return True
        return len(self._held) < _MOST_STEPS and self._held[0].sequence_ids == message.sequence_ids

    def _released(self) -> list[Tokens]:
        held, self._held = self._held, []
        return [_together(held)] if held else []


def _together(steps: list[Tokens]) -> Tokens:
    """Merge steps that gave the same sequences one token each into one message."""
    if len(steps) == 1:
        return steps[0]
    by_sequence = zip(*(values(step.token_ids) for step in steps), strict=True)
    num_sequences = len(steps[0].token_ids) // len(column([0]))
    return Tokens(
        steps[0].sequence_ids,
        column([len(steps)] * num_sequences),
        column(chain.from_iterable(by_sequence)),
        sum(step.forward_time for step in steps),
    )
