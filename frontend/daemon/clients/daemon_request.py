"""A request from a client of the daemon: the client's number for it, and its `PendingRequest` in the model's
session."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ....protocol.attach import Failed, OutputDelta, OutputDeltas, SaidMore
from ....protocol.errors import Failure
from ....protocol.messages import Said
from ....protocol.outputs import CompletionOutput, RequestOutput
from ....protocol.pooling.outputs import PoolingOutput, PoolingRequestOutput
from ....protocol.wire import Message, column
from ...requests.budget import BudgetError
from ...requests.continuation import since
from ...requests.pending_request import PendingRequest
from ...session.private import PrivateSession
from .client_budget import ClientBudget

# The memory of a request, of each of its samples, and of each token of its prompt.
_REQUEST_BYTES, _SAMPLE_BYTES, _TOKEN_BYTES = 4096, 2048, 48
_ID_BYTES = 4  # of a token that was said


@dataclass(slots=True, eq=False)
class DaemonRequest:
    number: int
    pending: PendingRequest
    session: PrivateSession
    is_streamed: bool
    is_chat: bool  # its prompt was rendered here, and is sent to the client
    known: list[Said] | None = None  # that the client knows of each sample, if `SaidMore` is sent
    # `charged` is what its client is charged for it: `num_bytes` until the request is over, and the part of its answer
    # that was not sent yet. `keep` brings it up to date and is called whenever news have come. `hand_over` returns what
    # was charged for the news that were taken; they stay charged until the socket has them.
    num_bytes: int = 0
    charged: int = 0
    refusal: BudgetError | None = None  # there is no room for it, or for its answer
    is_over: bool = False
    has_begun: bool = False  # a piece was sent
    num_said: int = 0  # tokens that are charged with its own bytes: they stay here until its end

    @property
    def has_news(self) -> bool:
        """Whether there is something to send; of an answer that isn't streamed, at its end or for `SaidMore`."""
        return self.is_streamed or self.is_to_end or self.known is not None

    @property
    def is_to_end(self) -> bool:
        return self.pending.error is not None or self.refusal is not None or self.pending.is_finished

    def keep(self, budget: ClientBudget) -> None:
        """Charge the request, and its answer so far; raises `BudgetError` if there is no room."""
        if (more := self._uncharged) > 0:
            budget.take(more)
            self.charged += more

    async def keep_when_free(self, budget: ClientBudget) -> None:
        """The same, but wait for room."""
        more = self._uncharged
        await budget.take_when_free(more)
        self.charged += more

    def refuse(self, error: BudgetError) -> None:
        """End it; its answer so far is not sent."""
        if self.refusal is None:
            self.refusal = error
            self.session.transport.abort([self.pending])

    @property
    def _uncharged(self) -> int:
        num_generated = self.pending.num_generated
        self.num_bytes += _ID_BYTES * (num_generated - self.num_said)
        self.num_said = num_generated
        return self.num_bytes + self.pending.num_bytes - self.charged

    def hand_over(self) -> int:
        """The charge for news that were just taken, to be given back once their frame is sent.

        News that have come since are not charged until the next `keep`.
        """
        kept = 0 if self.is_over else self.num_bytes if self.is_streamed else self.charged
        given, self.charged = self.charged - kept, kept
        return given

    def said_more(self) -> SaidMore | None:
        """Return what its samples have said since the last call."""
        if self.known is None:
            return None
        said, known = self.pending.so_far(), self.known
        more = [since(*pair) for pair in zip(said, known, strict=True)]
        self.known = [max(*pair, key=lambda each: len(each.token_ids)) for pair in zip(said, known, strict=True)]
        return SaidMore(self.number, more) if any(each.token_ids for each in more) else None

    def end(self) -> None:
        """Nothing more is sent. Its `PendingRequest` forgets it, so that neither keeps the other alive."""
        self.is_over = True
        self.pending.notify = _nobody


def _nobody(pending: PendingRequest) -> None:
    """Nobody is to be notified."""


def refused(number: int, num_samples: int, code: int, message: str) -> OutputDelta:
    """The last piece of a request that gets no answer, or no more of one."""
    samples = [CompletionOutput(index, finish_reason="error") for index in range(num_samples)]
    return OutputDelta(number, samples, True, None, 0, error_code=code, error_msg=message)


def pieces_of(group: Sequence[DaemonRequest]) -> Iterator[Message]:
    """Messages with the news of these requests; those that have ended are over afterwards."""
    pieces = []
    for request in group:
        if request.is_over:
            continue
        if request.refusal is not None:
            pieces.append(refused(request.number, request.pending.prompt.params.n, 429, str(request.refusal)))
            request.end()
        elif request.pending.is_fresh and (request.is_streamed or request.is_to_end):
            pieces.append(_piece(request, request.pending.take()))
        elif (more := request.said_more()) is not None:
            yield more
        if request.pending.error is not None and not request.is_over:
            request.end()
            yield Failed([request.number], Failure.of(request.pending.error))
    if pieces:
        yield OutputDeltas(pieces)


def _piece(request: DaemonRequest, output: RequestOutput | PoolingRequestOutput[PoolingOutput]) -> OutputDelta:
    if isinstance(output, PoolingRequestOutput):
        return _vectors(request, output)
    is_first, request.has_begun = not request.has_begun, True
    if output.finished:
        request.end()
    return OutputDelta(
        request.number,
        output.outputs,
        output.finished,
        output.metrics,
        output.num_cached_tokens,
        output.num_input_image_tokens,
        output.num_input_video_tokens,
        output.prompt if is_first and request.is_chat else None,
        column(output.prompt_token_ids) if is_first else b"",
        output.error_code,
        output.error_msg,
        output.prompt_logprobs,
        output.notice,
        output.receipt,
    )


def _vectors(request: DaemonRequest, output: PoolingRequestOutput[PoolingOutput]) -> OutputDelta:
    request.end()
    delta = OutputDelta(
        request.number,
        [],
        True,
        output.metrics,
        output.num_cached_tokens,
        prompt=output.prompt if request.is_chat else None,
        prompt_token_ids=column(output.prompt_token_ids),
        error_code=output.error_code,
        error_msg=output.error_msg,
        receipt=output.receipt,
    )
    if output.outputs is not None:
        delta.vectors, delta.shape = output.outputs.data.tobytes(), list(output.outputs.data.shape)
    return delta


def bytes_of(pending: PendingRequest) -> int:
    """Bytes that a request takes until its end, in this process and in those of the model."""
    prompt = pending.prompt
    text = 4 * len(pending.text) if pending.text is not None else 0
    tokens = _TOKEN_BYTES * len(prompt.token_ids) // 4
    return _REQUEST_BYTES + _SAMPLE_BYTES * prompt.params.n + tokens + text + pending.media_bytes
