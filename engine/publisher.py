"""Gathers what the detokenizer is told of a step, who was opened, who got which token, who ended, into one `Tokens`.

Every accepted sequence is opened once, before its first token or with its end, and ended once. The loop sends what
`take` returns.
"""

from array import array

from ..protocol.messages import (
    Logprobs,
    SequenceEnded,
    SequenceOpened,
    SequenceResumed,
    StepResult,
    Tokens,
    column,
    wide_column,
)
from .request import Sequence
from .step import ScheduledStep

# How many of the prompt's last tokens the detokenizer gets as context for the first text.
_PROMPT_TAIL = 16


class Publisher:
    def __init__(self) -> None:
        self._opened: list[SequenceOpened] = []
        self._resumed: list[SequenceResumed] = []
        self._ended: list[SequenceEnded] = []
        self._logprobs: list[Logprobs] = []
        self._runs: dict[int, array[int]] = {}

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

    def run(self, sequence: Sequence, token_ids: "array[int]") -> None:
        """Publish several tokens of a sequence at once."""
        self._runs[sequence.id] = token_ids

    def end(self, sequence: Sequence, ended: SequenceEnded) -> None:
        if sequence.has_news:
            self.news(sequence)
        self._ended.append(ended)

    def logprobs(self, step: ScheduledStep, result: StepResult) -> None:
        """Pass on log-probabilities by sequence id; called before the step's tokens can end a sequence."""
        for entry in result.logprobs:
            sequence = step.rows[entry.owner]
            if sequence.has_ended or (sequence in step.dropped and not entry.is_prompt):
                continue
            entry.owner = sequence.id
            if not entry.is_prompt:
                self._logprobs.append(entry)
            elif (rest := _not_sent_yet(sequence, entry)) is not None:
                if not sequence.is_opened:  # the prompt's log-probabilities come before any token
                    self.news(sequence)
                self._logprobs.append(rest)

    def take(self, sequence_ids: list[int], token_ids: "array[int]", forward_time: float) -> Tokens:
        """The message with all that was gathered, and one token for each of the given sequences."""
        runs, self._runs = self._runs, {}
        message = Tokens(
            wide_column([*sequence_ids, *runs]),
            column([1] * len(sequence_ids) + [len(run) for run in runs.values()]),
            token_ids.tobytes() + b"".join(run.tobytes() for run in runs.values()),
            forward_time,
            self._opened,
            self._resumed,
            self._ended,
            self._logprobs,
        )
        self._opened, self._resumed, self._ended, self._logprobs = [], [], [], []
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
    )


def _not_sent_yet(sequence: Sequence, entry: Logprobs) -> Logprobs | None:
    """The positions of a prompt that were not passed on before a preemption; None if there are none."""
    positions = len(entry.ranks) // 4
    skipped = min(sequence.prompt_logprobs_to_skip, positions)
    sequence.prompt_logprobs_to_skip -= skipped
    sequence.prompt_logprobs_sent += positions - skipped
    if sequence.prompt_logprobs_sent >= sequence.num_prompt - 1:
        sequence.wants_prompt_logprobs = False
    if skipped == positions:
        return None
    wide = 4 * skipped * entry.width
    return Logprobs(
        entry.owner,
        True,
        entry.width,
        entry.token_ids[wide:],
        entry.logprobs[wide:],
        entry.ranks[4 * skipped :],
    )
