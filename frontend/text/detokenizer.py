"""The detokenizer's process, between engine and front end: token ids become text, and every request ends here.

Every request ends here, in one order: stop strings are searched before the engine's own end is accepted, so the
caller's result depends on the request alone. An end that is found here first becomes an `Abort` to the engine.
`Detokenizer` does all the work; `main` passes messages in and out. A sequence that is neither streamed nor checked for
stop strings costs one array append per token until its end.
"""

import gc
import logging
import sys
import time
from array import array
from pathlib import Path

import msgspec

from ...protocol.messages import (
    Abort,
    Delta,
    Deltas,
    DetokenizerInbox,
    FinishReason,
    Logprobs,
    Ready,
    Score,
    SequenceEnded,
    SequenceOpened,
    Stop,
    Timing,
    Tokens,
)
from ...protocol.parameters.sampling import SamplingParams
from ...protocol.pooling.form import Vectors
from ...protocol.processes.child import Child, run_child
from ...protocol.processes.faults import passing
from ...protocol.processes.heartbeat import Heartbeat, WatchedInbox
from ...protocol.processes.sockets import Outbox
from ...protocol.processes.trace import Trace
from ...protocol.wire import values, wide_values
from .incremental import Decoding, IncrementalDecoder
from .stop_strings import StopChecker, StopSearch, StopWords
from .tokenizer_files import read_decoding

_log = logging.getLogger(__name__)
_INT = 4  # bytes of a column's entry


class Detokenizer:
    """Turns each step's tokens into deltas for the callers, and finds the sequences that their text has ended."""

    def __init__(self, decoding: Decoding, with_marks: Decoding | None = None) -> None:
        """`with_marks` is for answers in which the front end looks for thoughts and calls."""
        self.decoding = decoding
        self._with_marks = with_marks or decoding
        self._sequences: dict[int, _Sequence] = {}
        # For prompts computed in chunks, whose sequence is opened with its first token.
        self._early_logprobs: dict[int, list[Logprobs]] = {}

    def feed(self, message: Tokens) -> tuple[list[Delta], list[int]]:
        """Deltas for the front end, and sequences for the engine to end because their text has ended."""
        self._open(message)
        for resumed in message.resumed:
            if (sequence := self._sequences.get(resumed.sequence_id)) is not None:
                sequence.forward_time += resumed.forward_time
                sequence.preemptions += resumed.preemptions
        if message.drafts:
            self._note_drafts(message)
        for vectors in message.vectors:
            if (sequence := self._sequences.get(vectors.owner)) is not None:
                sequence.vectors = vectors
        watched = self._append(message)
        ended = {end.sequence_id: end for end in message.ended}
        deltas: list[Delta] = []
        aborted: list[int] = []
        for sequence_id in dict.fromkeys([*watched, *ended]):  # each once, in a fixed order
            # Unknown: its text had ended before the engine knew.
            if (sequence := self._sequences.get(sequence_id)) is None:
                continue
            if (delta := sequence.delta(ended.get(sequence_id))) is None:
                continue
            deltas.append(delta)
            if delta.finish_reason is not None:
                del self._sequences[sequence_id]
                if sequence_id not in ended:
                    aborted.append(sequence_id)
        return deltas, aborted

    def _open(self, message: Tokens) -> None:
        for opened in message.opened:
            decoding = self._with_marks if opened.is_parsed else self.decoding
            sequence = self._sequences[opened.sequence_id] = _Sequence(opened, decoding)
            sequence.logprobs += self._early_logprobs.pop(opened.sequence_id, [])
        for part in message.logprobs:
            if (owner := self._sequences.get(part.owner)) is not None:
                owner.logprobs.append(part)
            elif part.is_prompt:
                self._early_logprobs.setdefault(part.owner, []).append(part)

    def _note_drafts(self, message: Tokens) -> None:
        counts = wide_values(message.drafts)
        for sequence_id, drafted, accepted in zip(counts[::3], counts[1::3], counts[2::3], strict=True):
            if (sequence := self._sequences.get(sequence_id)) is not None:
                sequence.num_draft_tokens, sequence.num_accepted_tokens = drafted, accepted

    def _append(self, message: Tokens) -> list[int]:
        """Add the tokens of each row to its sequence; returns the sequences to process now."""
        watched: list[int] = []
        token_ids = values(message.token_ids)
        forward_time, now = message.forward_time, time.time()
        find = self._sequences.get
        end = 0
        for sequence_id, count in zip(wide_values(message.sequence_ids), values(message.num_tokens), strict=True):
            start, end = end, end + count
            if (sequence := find(sequence_id)) is None:
                continue
            sequence.forward_time += forward_time
            if count == 1:
                sequence.token_ids.append(token_ids[start])
            else:
                sequence.token_ids.extend(token_ids[start:end])
            if sequence.first_token_time is None:
                sequence.first_token_time = now
            if sequence.is_watched or len(sequence.token_ids) >= sequence.next_delta:
                watched.append(sequence_id)
        return watched


class _Sequence:
    """One sample: the tokens not sent yet, and the state of its text."""

    __slots__ = (
        "_ahead", "_decoder", "_held", "_num_decoded", "_opened", "_stops", "_text", "_words", "first_token_time",
        "forward_time", "is_watched", "logprobs", "next_delta", "num_accepted_tokens", "num_draft_tokens",
        "preemptions", "token_ids", "vectors",
    )  # fmt: skip

    def __init__(self, opened: SequenceOpened, decoding: Decoding) -> None:
        params = opened.params
        self._opened = opened
        self._decoder = _decoder(opened, decoding) if params.detokenize else None
        self._stops = _stop_checker(params) if params.stop else None
        words = params.long_stop_words
        self._words = StopWords(words) if words and not params.include_stop_str_in_output else None
        self._held = array("i")  # not decoded, though perhaps sent, since they could become a stop word
        # Reads held tokens, too: a stop string ends the answer with the token that completes it.
        self._ahead: StopSearch | None = None
        if self._words is not None and self._stops is not None:
            self._ahead = StopSearch(_decoder(opened, decoding), _stop_checker(params))
        self.is_watched = opened.is_streamed or self._stops is not None
        self.next_delta = opened.delta_tokens or sys.maxsize  # tokens not sent yet that make a delta due
        self.token_ids = array("i")  # not sent yet
        self.logprobs: list[Logprobs] = []  # likewise
        self._text = ""  # likewise
        self._num_decoded = 0  # of token_ids
        self.forward_time = opened.forward_time
        self.preemptions = 0
        self.num_draft_tokens = self.num_accepted_tokens = 0
        self.first_token_time: float | None = None
        self.vectors: Vectors | None = None  # of a pooled prompt, with its end
        if (said := opened.said) is not None:  # as if it had just come
            self.token_ids.frombytes(said.token_ids)
            self.logprobs += said.logprobs

    def delta(self, end: SequenceEnded | None) -> Delta | None:
        """A delta with the output that the caller may see now; with a finish_reason if the sequence ends with it."""
        try:
            self._text += self._new_text(end)
        except Exception as error:  # ends this request, not the process
            _log.exception("Sequence %d can't be decoded", self._opened.sequence_id)
            why = f"Its tokens can't be turned into text: {error}"
            end = SequenceEnded(self._opened.sequence_id, "error", None, 500, why)
        if self._stops is not None and self._stops.found is not None:
            return self._sent("stop", self._stops.found)
        if end is not None:
            self.num_draft_tokens, self.num_accepted_tokens = end.num_draft_tokens, end.num_accepted_tokens
            return self._sent(end.finish_reason, end.stop_reason, end.error_code, end.error_msg, end.score)
        is_due = self._opened.is_streamed or len(self.token_ids) >= self.next_delta
        return self._sent() if is_due else None

    def _new_text(self, end: SequenceEnded | None) -> str:
        """Decode new tokens, and cut those after the one that completed a stop string."""
        if self._decoder is None:
            return ""
        start = self._num_decoded - len(self._held)  # below 0 if held tokens were sent
        new = self._held + self.token_ids[self._num_decoded :]
        hidden = self._num_hidden(new, end)
        if self._ahead is not None:
            # The token that ended the answer is not searched: a stop string had to be complete before it.
            last = len(new) - 1 if end is not None and hidden else len(new)
            if self._ahead.is_completed_by(new[len(self._held) : last]):
                hidden = 0
        shown = len(new) - hidden
        new, self._held = new[:shown], new[shown:]
        if self._stops is None:
            text = self._decoder.feed(new)
        else:
            text = self._checked_text(new, start, self._decoder, self._stops)
        self._num_decoded = len(self.token_ids)
        if end is not None and (self._stops is None or self._stops.found is None):
            rest = self._decoder.flush()  # text held back: the start of a character or of a stop string
            text += rest if self._stops is None else self._stops.release(rest)
        return text

    def _num_hidden(self, new: "array[int]", end: SequenceEnded | None) -> int:
        """How many of the newest tokens are not part of the text: those that ended it, or may be about to."""
        if end is None:
            return self._words.num_begun(new) if self._words is not None else 0
        if end.finish_reason != "stop" or not new or self._opened.params.include_stop_str_in_output:
            return 0
        # Not all ends have such a token: a grammar may allow nothing more.
        if new[-1] in self._opened.params.ending_ids:
            return 1
        return self._words.num_ending(new) if self._words is not None else 0

    def _checked_text(self, new: "array[int]", start: int, decoder: IncrementalDecoder, stops: StopChecker) -> str:
        """Check token by token up to a stop string; the tokens after it were never part of the answer."""
        pieces: list[str] = []
        for position, token_id in enumerate(new):
            pieces.append(stops.feed(decoder.feed((token_id,))))
            if stops.found is not None:
                self._keep(start + position + 1)
                break
        return "".join(pieces)

    def _keep(self, count: int) -> None:
        surplus = len(self.token_ids) - count
        if surplus:
            del self.token_ids[count:]
            self.logprobs = _without_last(self.logprobs, surplus)

    def _sent(
        self,
        finish_reason: FinishReason | None = None,
        stop_reason: int | str | None = None,
        error_code: int = 200,
        error_msg: str | None = None,
        score: Score | None = None,
    ) -> Delta:
        timing = None if finish_reason is None else self._timing()
        opened = self._opened
        delta = Delta(
            opened.sequence_id, self._text, self.token_ids.tobytes(), opened.num_cached,
            finish_reason, stop_reason, error_code, error_msg, timing, self.logprobs, score, self.vectors,
        )  # fmt: skip
        if finish_reason is None:
            self.token_ids, self.logprobs, self._text, self._num_decoded = array("i"), [], "", 0
        return delta

    def _timing(self) -> Timing:
        return Timing(
            arrival_time=self._opened.arrival_time,
            inference_start_time=self._opened.inference_start_time,
            first_token_time=self.first_token_time,
            end_time=time.time(),
            forward_time=self.forward_time,
            preemptions=self.preemptions,
            num_draft_tokens=self.num_draft_tokens,
            num_accepted_tokens=self.num_accepted_tokens,
        )


def _decoder(opened: SequenceOpened, decoding: Decoding) -> IncrementalDecoder:
    return decoding.decoder(
        values(opened.prompt_tail),
        skip_special_tokens=opened.params.skip_special_tokens,
        spaces_between_special_tokens=opened.params.spaces_between_special_tokens,
    )


def _stop_checker(params: SamplingParams) -> StopChecker:
    return StopChecker(
        params.stop or [],
        include_stop_str_in_output=params.include_stop_str_in_output,
        min_tokens=params.min_tokens,
    )


def _without_last(parts: list[Logprobs], surplus: int) -> list[Logprobs]:
    """Log-probabilities without those of the last tokens."""
    kept: list[Logprobs] = []
    for part in reversed(parts):
        positions = len(part.ranks) // _INT
        dropped = 0 if part.is_prompt else min(surplus, positions)
        surplus -= dropped
        left = positions - dropped
        if left:
            wide = left * part.width * _INT
            kept.append(
                msgspec.structs.replace(
                    part,
                    token_ids=part.token_ids[:wide],
                    logprobs=part.logprobs[:wide],
                    ranks=part.ranks[: left * _INT],
                )
            )
    return kept[::-1]


def main(child: Child) -> None:
    trace = Trace(child.launch.config.trace, child.role)
    trace.reached("imports")
    heartbeat = Heartbeat.of(child.role, child.launch.heartbeats)
    inbox = WatchedInbox[DetokenizerInbox](child.directory, "detokenizer", DetokenizerInbox, heartbeat)
    engine = Outbox(child.directory, "engine")
    decoding, shown = read_decoding(Path(child.launch.tokenizer_folder)), child.launch.shown
    detokenizer = Detokenizer(decoding, Decoding(decoding.backend, shown) if shown else None)
    timed = trace.timed("detokenize", detokenizer.feed, tokens=lambda message: len(message.token_ids) // _INT)
    feed = passing("detokenizer.tokens", timed)
    gc.freeze()  # the tokenizer stays; no collection needs to walk it
    child.frontend.send(Ready(child.role))
    trace.reached("tokenizer")
    while not isinstance(message := inbox.receive(), Stop):
        deltas, aborted = feed(message)
        if aborted:
            engine.send(Abort(aborted))
        if deltas:
            child.frontend.send(Deltas(deltas))
    trace.flush()


if __name__ == "__main__":
    run_child("detokenizer", main)
