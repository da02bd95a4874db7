"""One request of a client, as the daemon holds it: the client's number, and the `Pending` of the model's session.

Knows nothing of sockets.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ...protocol.attach import Failed, Failure, Piece, Pieces
from ...protocol.messages import column
from ...protocol.outputs import RequestOutput
from ...protocol.wire import Message
from ..pending import Pending
from ..session import Session


@dataclass(slots=True, eq=False)
class Held:
    number: int
    pending: Pending
    session: Session
    is_streamed: bool
    is_chat: bool  # its text was made here, and the client is told
    is_over: bool = False
    has_begun: bool = False  # a piece was sent

    @property
    def has_news(self) -> bool:
        """A batch call is told at the end."""
        pending = self.pending
        return pending.error is not None or pending.is_finished or self.is_streamed

    def end(self) -> None:
        """Its last word is said, or nobody waits for one. It and the `Pending` knew one another until now."""
        self.is_over = True
        self.pending.notify = _nobody


def _nobody(pending: Pending) -> None:
    """To be told."""


def pieces_of(group: Sequence[Held]) -> Iterator[Message]:
    """What is new of them; those that end are over afterwards."""
    pieces = []
    for held in group:
        if held.is_over:
            continue
        if held.pending.is_fresh:
            pieces.append(_piece(held, held.session.take(held.pending)))
        if held.pending.error is not None and not held.is_over:
            held.end()
            yield Failed([held.number], Failure.of(held.pending.error))
    if pieces:
        yield Pieces(pieces)


def _piece(held: Held, output: RequestOutput) -> Piece:
    is_first, held.has_begun = not held.has_begun, True
    if output.finished:
        held.end()
    return Piece(
        held.number,
        output.outputs,
        output.finished,
        output.metrics,
        output.num_cached_tokens,
        output.prompt if is_first and held.is_chat else None,
        column(output.prompt_token_ids) if is_first else b"",
        output.error_code,
        output.error_msg,
        output.prompt_logprobs,
    )
