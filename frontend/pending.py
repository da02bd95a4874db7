"""One request on its way: collects the deltas of its samples into a `RequestOutput`.

`take()` hands over what has come since the last `take()`, so that deltas nobody has read yet are merged; a batch call
takes once, at the end. Filled by the client's receiving thread, taken by the caller's, which also takes the text apart
into thought, answer and calls where that was asked for.
Knows nothing of sockets, of how deltas are made, or of how thoughts and calls are written.
"""

import threading
from collections.abc import Callable, Sequence

from ..protocol.messages import Delta, Logprobs, Prompt, float_values, request_and_sample, sequence_id, values
from ..protocol.outputs import CompletionOutput, Logprob, LogprobsByToken, RequestMetrics, RequestOutput, Samples
from .parsing import AnswerReader

DecodeToken = Callable[[int], str]
# What a token takes, and one with its log-probability.
_TOKEN_BYTES, _LOGPROB_BYTES = 40, 320
Notify = Callable[["Pending"], None]  # called by the receiving thread; must not block


class Pending:
    __slots__ = (
        "_lock", "_logprobs", "_parser_error", "_readers", "_taken", "error", "is_chat", "is_finished", "is_fresh",
        "notify", "num_bytes", "output", "position", "prompt", "text", "unfinished",
    )  # fmt: skip

    def __init__(
        self,
        prompt: Prompt,
        text: str | None,
        notify: Notify,
        readers: Sequence[AnswerReader] = (),  # one for each sample, if answers are taken apart
        *,
        is_chat: bool = False,
    ) -> None:
        self.prompt = prompt
        self.text = text
        self.notify = notify
        self.position = 0  # in the caller's input
        self.unfinished = prompt.params.n
        self.is_finished = False
        self.error: BaseException | None = None  # the tree has died
        self.is_chat = is_chat
        self._readers = readers
        self._parser_error: str | None = None  # of a plugin
        self._lock = threading.Lock()
        self._taken = 0
        self._start_output(prompt_token_ids=list(values(prompt.token_ids)))

    def _start_output(self, prompt_token_ids: list[int]) -> None:
        samples = Samples(CompletionOutput(index, send_idx=self._taken) for index in range(self.prompt.params.n))
        metrics = RequestMetrics(self.prompt.arrival_time, num_prompt_tokens=len(prompt_token_ids))
        self.output = RequestOutput(str(self.prompt.request_id), self.text, prompt_token_ids, samples, metrics=metrics)
        self._logprobs: list[Logprobs] = []
        self.num_bytes = 0  # at most, of what has come and was not taken
        self.is_fresh = False

    @property
    def request_id(self) -> int:
        return self.prompt.request_id

    @property
    def sequence_ids(self) -> list[int]:
        return [sequence_id(self.prompt.request_id, sample) for sample in range(self.prompt.params.n)]

    def add(self, delta: Delta) -> None:
        """Called by the receiving thread, which then notifies whoever waits."""
        with self._lock:
            self._merge(delta)
            self.is_fresh = True

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

    def refuse(self, code: int, message: str) -> None:
        """End the request before it reached an engine."""
        for answer in self.output.outputs:
            answer.finish_reason = "error"
        self.output.error_code, self.output.error_msg = code, message
        self.output.finished = self.is_finished = self.is_fresh = True

    def take(self, decode_token: DecodeToken) -> RequestOutput:
        """What has come since the last `take()`."""
        with self._lock:
            output, logprobs = self.output, self._logprobs
            self._taken += 1
            if not self.is_finished:
                self._start_output(output.prompt_token_ids)
            self.is_fresh = False
        for answer, reader in zip(output.outputs, self._readers):
            if self._parser_error is None:
                self._take_apart(answer, reader)
        if self._parser_error is not None:
            _fail(output, self._parser_error)
        if output.metrics is not None:
            output.metrics.num_output_tokens = sum(len(answer.token_ids) for answer in output.outputs)
        for part in logprobs:
            _add_logprobs(output, part, decode_token)
        return output

    def _take_apart(self, answer: CompletionOutput, reader: AnswerReader) -> None:
        try:
            parts = reader.feed(answer.text, is_last=answer.finish_reason is not None)
        except Exception as error:  # a plugin's; it fails this request, whose text goes on as the model writes it
            self._parser_error = f"The parser of this model's answers failed: {type(error).__name__}: {error}"
            return
        answer.text = parts.text
        answer.reasoning_content = parts.thought or None
        answer.tool_calls = parts.calls or None
        ended_by_itself = answer.finish_reason == "stop" and not isinstance(answer.stop_reason, str)
        if self.is_chat and ended_by_itself and reader.has_whole_calls:
            answer.finish_reason = "tool_calls"


def _num_bytes(delta: Delta) -> int:
    """What it takes when `take` has made objects of it."""
    tokens, logprobs = len(delta.token_ids), sum(len(part.token_ids) for part in delta.logprobs)
    return 4 * len(delta.text) + (_TOKEN_BYTES * tokens + _LOGPROB_BYTES * logprobs) // 4


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


def _add_logprobs(output: RequestOutput, part: Logprobs, decode_token: DecodeToken) -> None:
    positions = _positions(part, decode_token)
    if part.is_prompt:
        if output.prompt_logprobs is None:
            output.prompt_logprobs = [None]  # nothing predicts the first token
        output.prompt_logprobs += positions
        return
    answer = output.outputs[request_and_sample(part.owner)[1]]
    answer.logprobs = (answer.logprobs or []) + positions
    chosen = float_values(part.logprobs)[:: part.width]
    answer.cumulative_logprob = (answer.cumulative_logprob or 0.0) + sum(chosen)


def _positions(part: Logprobs, decode_token: DecodeToken) -> list[LogprobsByToken]:
    """Column 0 is the chosen token with its own rank; the columns after it are ranks 1, 2, …"""
    token_ids, logprobs, ranks = values(part.token_ids), float_values(part.logprobs), values(part.ranks)
    result: list[LogprobsByToken] = []
    for position, rank in enumerate(ranks):
        start = position * part.width
        entry = {token_ids[start]: Logprob(logprobs[start], rank, decode_token(token_ids[start]))}
        for column in range(1, part.width):
            token = token_ids[start + column]
            if token not in entry:
                entry[token] = Logprob(logprobs[start + column], column, decode_token(token))
        result.append(entry)
    return result
