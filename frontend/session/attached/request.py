"""One request to the daemon: keeps the deltas that have arrived until its caller takes them.

The daemon merges deltas that it cannot send yet; at most the whole answer is kept here, one delta per token.
"""

from collections import deque
from typing import Any

from ....protocol.attach import OutputDelta, WireRequest
from ....protocol.messages import Said
from ....protocol.outputs import CompletionOutput, RequestOutput, Samples
from ....protocol.pooling.outputs import PoolingOutput, PoolingRequestOutput
from ....protocol.wire import values
from ...requests.prompts import ParsedPrompt
from ...requests.request import Notify, Request


class AttachedRequest(Request):
    __slots__ = ("_deltas", "_token_ids", "prompt", "text", "wire")

    def __init__(self, prompt: ParsedPrompt, wire: WireRequest, notify: Notify) -> None:
        super().__init__(notify)
        self.prompt = prompt
        self.wire = wire
        self.text = prompt.text
        self._token_ids: list[int] = []
        self._deltas: deque[OutputDelta] = deque()

    @property
    def request_id(self) -> int:
        return self.wire.number

    @property
    def is_fresh(self) -> bool:
        return bool(self._deltas)

    def add(self, delta: OutputDelta) -> None:
        """Add a delta; called by the receiving thread, which then notifies the caller."""
        self._deltas.append(delta)
        self.is_finished = delta.finished

    def _next(self) -> OutputDelta:
        delta = self._deltas.popleft()
        if delta.prompt is not None:
            self.text = delta.prompt
        if delta.prompt_token_ids:
            self._token_ids = list(values(delta.prompt_token_ids))
        return delta

    def take(self) -> RequestOutput:
        """The next delta, as an output; call only if there is one."""
        delta = self._next()
        return RequestOutput(
            str(self.request_id),
            self.text,
            self._token_ids,
            Samples(delta.samples),
            finished=delta.finished,
            metrics=delta.metrics,
            num_cached_tokens=delta.num_cached_tokens,
            num_input_image_tokens=delta.num_input_image_tokens,
            num_input_video_tokens=delta.num_input_video_tokens,
            error_code=delta.error_code,
            error_msg=delta.error_msg,
            prompt_logprobs=delta.prompt_logprobs,
            notice=delta.notice,
            receipt=delta.receipt,
        )

    def add_said(self, more: list[Said]) -> None:
        """Note what its samples have said; called by the receiving thread."""
        said = self.wire.said + [Said(b"")] * (len(more) - len(self.wire.said))
        self.wire.said = [
            Said(each.token_ids + new.token_ids, [*each.logprobs, *new.logprobs]) for each, new in zip(said, more)
        ]

    def so_far(self) -> list[Said]:
        return self.wire.said

    def refuse(self, message: str) -> None:
        """End the request before it is sent."""
        samples = [CompletionOutput(index, finish_reason="error") for index in range(self.prompt.params.n)]
        self.add(OutputDelta(self.request_id, samples, True, None, 0, error_code=400, error_msg=message))


class AttachedPooledRequest(AttachedRequest):
    """One whose result is numbers."""

    __slots__ = ()

    def take(self) -> Any:
        """The result, a `PoolingRequestOutput`; call only once there is one."""
        import numpy

        delta, output = self._next(), None
        if delta.shape:
            output = PoolingOutput(numpy.frombuffer(delta.vectors, numpy.float32).reshape(delta.shape))
        return PoolingRequestOutput(
            str(self.request_id),
            output,
            self._token_ids,
            self.text,
            delta.finished,
            delta.metrics,
            delta.num_cached_tokens,
            delta.error_code,
            delta.error_msg,
            delta.receipt,
        )
