"""One pending request: collects the deltas of its samples into a `RequestOutput`.

`take()` returns the output since the last `take()`, so unread deltas are merged; a batch call takes once, at the end.
The transport's receiving thread adds deltas, the caller's thread takes them, and parses the text into thought, answer
and calls if requested. With a `charge`, its memory is charged as it grows, and a request that doesn't fit fails.
"""

import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import msgspec

from ...protocol.media import num_rows
from ...protocol.messages import Delta, Logprobs, Prompt, Said, request_and_sample, sequence_id
from ...protocol.outputs import CompletionOutput, Logprob, LogprobsByToken, RequestMetrics, RequestOutput, Samples
from ...protocol.wire import float_values, values
from ..parsing import PiecewiseReader
from ..receipts.receipt import ReceiptDraft
from .budget import BudgetError, Charge
from .prompts import ParsedPrompt
from .request import Notify, Request
from .sample_progress import STARTED_AGAIN, SampleProgress, begin_again

DecodeToken = Callable[[int], str]

# Bytes of objects: a token id in a list, a character, a log-probability, a delta's packed ones besides their columns; a
# request, and each of its samples with its reader.
_TOKEN_BYTES, _CHARACTER_BYTES, _LOGPROB_BYTES, _PART_BYTES = 44, 4, 320, 300
_REQUEST_BYTES, _SAMPLE_BYTES = 6 << 10, 3 << 10


class PackedOutput(NamedTuple):
    """The output since the last `take`."""

    output: RequestOutput
    logprobs: list[Logprobs]  # packed by the engine, not in the output
    num_bytes: int  # as they were charged


class PendingRequest(Request):
    __slots__ = (
        "_decode_token", "_is_fresh", "_lock", "_logprobs", "_num_image_tokens", "_num_video_tokens",
        "_packed_bytes", "_parser_error", "_readers", "_taken", "charge", "deaths", "has_started",
        "is_cancelled", "is_chat", "num_at_death", "num_bytes", "output", "progress", "prompt", "receipt", "source",
        "text", "unfinished",
    )  # fmt: skip

    def __init__(
        self,
        prompt: Prompt,
        text: str | None,
        notify: Notify,
        decode_token: DecodeToken,
        readers: Sequence[PiecewiseReader] = (),  # one for each sample, if answers are parsed
        *,
        is_chat: bool = False,
    ) -> None:
        super().__init__(notify)  # `error`: the tree has died, or the request took too much memory
        self.prompt = prompt
        self.media_bytes = sum(len(medium.pixels) for medium in prompt.media)
        self._num_image_tokens = num_rows(prompt.media, "image") if prompt.media else 0
        self._num_video_tokens = num_rows(prompt.media, "video") if prompt.media else 0
        self.text = text
        self.source: ParsedPrompt | None = None  # of a prompt with media: those are dropped once an engine has them
        self.progress = [SampleProgress() for _ in range(prompt.params.n)]
        self.has_started = False  # in the engine that has it now, if `prompt.reports_start`
        self.is_cancelled = False  # its owner wants it ended with its output so far
        self.deaths = 0  # of trees that were computing it
        self.num_at_death = 0  # tokens that it had said at the last of them
        self.unfinished = prompt.params.n
        self.charge: Charge | None = None  # of the client that takes the output, and releases what it has taken
        self.is_chat = is_chat
        self.receipt: ReceiptDraft | None = None  # if it asks for one
        self._decode_token = decode_token
        self._readers = readers
        self._parser_error: str | None = None  # a plugin's error
        self._lock = threading.Lock()
        self._taken = 0
        self._start_output(prompt_token_ids=list(values(prompt.token_ids)))
        if prompt.params.prompt_logprobs is not None and len(self.output.prompt_token_ids) == 1:
            self.output.prompt_logprobs = [None]  # nothing predicts the first token, so none will arrive

    def _start_output(self, prompt_token_ids: list[int]) -> None:
        samples = Samples(CompletionOutput(index, send_idx=self._taken) for index in range(self.prompt.params.n))
        metrics = RequestMetrics(self.prompt.arrival_time, num_prompt_tokens=len(prompt_token_ids))
        self.output = RequestOutput(
            str(self.prompt.request_id),
            self.text,
            prompt_token_ids,
            samples,
            metrics=metrics,
            num_input_image_tokens=self._num_image_tokens,
            num_input_video_tokens=self._num_video_tokens,
        )
        self._logprobs: list[Logprobs] = []
        self._packed_bytes = 0  # the charge for all of that
        self.num_bytes = 0  # the upper bound once `take` has made objects of it
        self._is_fresh = False

    @property
    def is_fresh(self) -> bool:
        return self._is_fresh

    @property
    def request_id(self) -> int:
        return self.prompt.request_id

    @property
    def sequence_ids(self) -> list[int]:
        return [sequence_id(self.prompt.request_id, sample) for sample in range(self.prompt.params.n)]

    def add(self, delta: Delta) -> None:
        """Add a delta; called by the receiving thread, which then notifies the caller."""
        with self._lock:
            sample = request_and_sample(delta.sequence_id)[1]
            if (new := self.progress[sample].new_part(delta)) is not None and self._has_room(new):
                self._merge(new)
                self._is_fresh = True

    @property
    def num_generated(self) -> int:
        """Tokens of all its samples so far, taken or not."""
        return sum(self.num_generated_each)

    @property
    def num_generated_each(self) -> list[int]:
        return [len(each.token_ids) for each in self.progress]

    @property
    def own_bytes(self) -> int:
        """Bytes that the request takes before it has any output."""
        objects = _REQUEST_BYTES + _SAMPLE_BYTES * self.prompt.params.n
        prompt = msgspec.structs.replace(self.prompt, media=[]) if self.prompt.media else self.prompt
        tokens = _TOKEN_BYTES * (len(self.prompt.token_ids) // 4)
        return objects + tokens + sys.getsizeof(self.text) + 2 * len(msgspec.msgpack.encode(prompt)) + self.media_bytes

    def _has_room(self, delta: Delta) -> bool:
        if self.charge is None:
            return True
        if self.error is not None:  # its output is gone
            return False
        num_bytes = _packed_bytes(delta)
        try:
            self.charge.grow(num_bytes + len(delta.token_ids))  # the ids stay in its progress
        except BudgetError as error:
            self._start_output([])
            self.error = error
            return False
        self._packed_bytes += num_bytes
        return True

    def _merge(self, delta: Delta) -> None:
        sample = request_and_sample(delta.sequence_id)[1]
        output, answer = self.output, self.output.outputs[sample]
        answer.text += delta.text
        answer.token_ids.extend(values(delta.token_ids))
        self._logprobs.extend(delta.logprobs)
        self.num_bytes += _num_bytes(delta)
        output.num_cached_tokens = max(output.num_cached_tokens, delta.num_cached)
        if delta.finish_reason is None:
            return
        answer.finish_reason = delta.finish_reason
        answer.stop_reason = delta.stop_reason
        if delta.error_code != 200:
            output.error_code, output.error_msg = delta.error_code, delta.error_msg
        if delta.score is not None:
            answer.cumulative_logprob, answer.score = delta.score.cumulative_logprob, delta.score.score
        if delta.timing is not None:
            _add_timing(output.metrics, delta)
        self.unfinished -= 1
        self.is_finished = output.finished = self.unfinished == 0

    def so_far(self) -> list[Said]:
        with self._lock:
            said = [Said(each.token_ids.tobytes()) for each in self.progress]
            for part in self._logprobs:
                if not part.is_prompt:
                    said[request_and_sample(part.owner)[1]].logprobs.append(part)
        return said

    def without_receipt(self) -> ReceiptDraft | None:
        draft, self.receipt = self.receipt, None
        return draft

    def begin_again(self, cause: str = STARTED_AGAIN) -> None:
        """Prepare for another tree. What its samples have said isn't merged a second time."""
        with self._lock:
            self.output.notice = begin_again(self.prompt, self.progress, cause)
            self.has_started = False

    def refuse(self, code: int, message: str) -> None:
        """End the request before it has reached an engine."""
        for answer in self.output.outputs:
            answer.finish_reason = "error"
        self.output.error_code, self.output.error_msg = code, message
        self.output.finished = self.is_finished = self._is_fresh = True

    def take(self) -> RequestOutput:
        """The output since the last `take()`."""
        output, logprobs, _ = self.take_packed()
        for part in logprobs:
            _add_logprobs(output, part, self._decode_token)
        return output

    def take_packed(self) -> PackedOutput:
        """Like `take`, with packed log-probabilities: they are most of an answer, and unpacked while it is sent."""
        with self._lock:
            output, logprobs, num_bytes = self.output, self._logprobs, self._packed_bytes
            self._taken += 1
            if not self.is_finished:
                self._start_output(output.prompt_token_ids)
            self._is_fresh = False
        for answer, reader in zip(output.outputs, self._readers):
            if self._parser_error is None:
                self._take_apart(answer, reader)
        if self._parser_error is not None:
            _fail(output, self._parser_error)
        if output.metrics is not None:
            output.metrics.num_output_tokens = sum(len(answer.token_ids) for answer in output.outputs)
        if self.receipt is not None:
            self.receipt.take(output)
        return PackedOutput(output, logprobs, num_bytes)

    def _take_apart(self, answer: CompletionOutput, reader: PiecewiseReader) -> None:
        try:
            parts = reader.feed(answer.text, is_last=answer.finish_reason is not None)
        except Exception as error:  # a plugin's; it fails this request, whose text continues unparsed
            self._parser_error = f"The parser of this model's answers failed: {type(error).__name__}: {error}"
            return
        answer.text = parts.text
        answer.reasoning_content = parts.thought or None
        answer.tool_calls = parts.calls or None
        ended_by_itself = answer.finish_reason == "stop" and not isinstance(answer.stop_reason, str)
        if self.is_chat and ended_by_itself and reader.has_whole_calls:
            answer.finish_reason = "tool_calls"


def _num_bytes(delta: Delta) -> int:
    """Bytes of a delta once `take` has made objects of it."""
    tokens, logprobs = len(delta.token_ids), sum(len(part.token_ids) for part in delta.logprobs)
    return _CHARACTER_BYTES * len(delta.text) + (_TOKEN_BYTES * tokens + _LOGPROB_BYTES * logprobs) // 4


def _fail(output: RequestOutput, message: str) -> None:
    output.error_code, output.error_msg = 500, message
    for answer in output.outputs:
        answer.finish_reason = answer.finish_reason and "error"


def _add_timing(metrics: RequestMetrics | None, delta: Delta) -> None:
    timing = delta.timing
    if metrics is None or timing is None:
        return
    start = timing.inference_start_time
    metrics.preemptions += timing.preemptions
    metrics.num_draft_tokens += timing.num_draft_tokens
    metrics.num_accepted_tokens += timing.num_accepted_tokens
    metrics.model_forward_time = max(metrics.model_forward_time, timing.forward_time)
    if start is None:
        return
    metrics.inference_start_time = (
        start if metrics.inference_start_time is None else min(start, metrics.inference_start_time)
    )
    metrics.time_in_queue = metrics.inference_start_time - metrics.arrival_time
    metrics.model_execute_time = timing.end_time - metrics.inference_start_time
    if timing.first_token_time is not None:
        first = timing.first_token_time - metrics.arrival_time
        metrics.first_token_time = first if metrics.first_token_time is None else min(first, metrics.first_token_time)


def _packed_bytes(delta: Delta) -> int:
    """Bytes of a delta with its log-probabilities packed."""
    columns = sum(len(part.token_ids) + len(part.logprobs) + len(part.ranks) + _PART_BYTES for part in delta.logprobs)
    vectors = 0 if delta.vectors is None else len(delta.vectors.values)
    return _CHARACTER_BYTES * len(delta.text) + _TOKEN_BYTES * (len(delta.token_ids) // 4) + columns + vectors


def _add_logprobs(output: RequestOutput, part: Logprobs, decode_token: DecodeToken) -> None:
    if part.is_prompt:
        if output.prompt_logprobs is None:
            output.prompt_logprobs = [None]  # nothing predicts the first token
        output.prompt_logprobs += positions(part, decode_token)
        return
    answer = output.outputs[request_and_sample(part.owner)[1]]
    if answer.logprobs is None:
        answer.logprobs = []
    answer.logprobs += positions(part, decode_token)
    chosen = float_values(part.logprobs)[:: part.width]
    answer.cumulative_logprob = (answer.cumulative_logprob or 0.0) + sum(chosen)


def positions(part: Logprobs, decode_token: DecodeToken) -> Iterator[LogprobsByToken]:
    """Column 0 is the chosen token with its own rank; the columns after it are ranks 1, 2, …"""
    token_ids, logprobs, ranks = values(part.token_ids), float_values(part.logprobs), values(part.ranks)
    for position, rank in enumerate(ranks):
        start = position * part.width
        entry = {token_ids[start]: Logprob(logprobs[start], rank, decode_token(token_ids[start]))}
        for order in range(1, part.width):
            token = token_ids[start + order]
            if token not in entry:
                entry[token] = Logprob(logprobs[start + order], order, decode_token(token))
        yield entry
