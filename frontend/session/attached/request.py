"""One request that the daemon works on: keeps the pieces that have come until its caller takes them.

The daemon merges what it cannot send; what has arrived is at most the answer itself, a piece a token.
Knows nothing of sockets.
"""

from collections import deque

from ....protocol.attach import Piece, WireRequest
from ....protocol.messages import values
from ....protocol.outputs import CompletionOutput, RequestOutput, Samples
from ...requests.prompts import Asked
from ...requests.request import Notify, Request


class AttachedRequest(Request):
    __slots__ = ("_pieces", "_token_ids", "asked", "text", "wire")

    def __init__(self, asked: Asked, wire: WireRequest, notify: Notify) -> None:
        super().__init__(notify)
        self.asked = asked
        self.wire = wire
        self.text = asked.text
        self._token_ids: list[int] = []
        self._pieces: deque[Piece] = deque()

    @property
    def request_id(self) -> int:
        return self.wire.number

    @property
    def is_fresh(self) -> bool:
        return bool(self._pieces)

    def add(self, piece: Piece) -> None:
        """Called by the receiving thread, which then notifies whoever waits."""
        self._pieces.append(piece)
        self.is_finished = piece.finished

    def take(self) -> RequestOutput:
        """The next piece, as an output; only while there is one."""
        piece = self._pieces.popleft()
        if piece.prompt is not None:
            self.text = piece.prompt
        if piece.prompt_token_ids:
            self._token_ids = list(values(piece.prompt_token_ids))
        return RequestOutput(
            str(self.request_id),
            self.text,
            self._token_ids,
            Samples(piece.samples),
            finished=piece.finished,
            metrics=piece.metrics,
            num_cached_tokens=piece.num_cached_tokens,
            error_code=piece.error_code,
            error_msg=piece.error_msg,
            prompt_logprobs=piece.prompt_logprobs,
        )

    def refuse(self, message: str) -> None:
        """End the request before it was sent."""
        samples = [CompletionOutput(index, finish_reason="error") for index in range(self.asked.params.n)]
        self.add(Piece(self.request_id, samples, True, None, 0, error_code=400, error_msg=message))
