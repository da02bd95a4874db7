"""Log-probabilities in the forms of OpenAI's endpoints.

They stay packed, as the engine sends them, until a position is written: as objects they would take twenty times the
memory.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Protocol

from ....protocol.messages import Logprobs
from ....protocol.outputs import Logprob, LogprobsByToken
from ....protocol.wire import float_values, values
from ...requests.pending_request import positions
from ..schemas.chat import ChatLogprobs, TokenLogprob, TopLogprob
from ..schemas.completions import CompletionLogprobs
from ..schemas.sampling import PromptLogprob, PromptLogprobs
from .long_json import LongJson

# JSON has no infinity, so this stands for tokens that a mask forbids.
_LEAST = -9999.0


class Positions(Protocol):
    """Consecutive positions of a text, each with its chosen token and others, in any representation."""

    def __iter__(self) -> Iterator[LogprobsByToken]: ...
    def tokens(self) -> Iterator[str]: ...
    def chosen(self) -> Iterator[float]: ...


@dataclass(frozen=True, slots=True)
class PackedPositions:
    """Consecutive positions, unpacked one by one whenever they are iterated over."""

    parts: Sequence[Logprobs]
    decode_token: Callable[[int], str]

    def __iter__(self) -> Iterator[LogprobsByToken]:
        """The chosen token is each position's first entry."""
        for part in self.parts:
            yield from positions(part, self.decode_token)

    def tokens(self) -> Iterator[str]:
        """The chosen tokens."""
        for part in self.parts:
            yield from map(self.decode_token, values(part.token_ids)[:: part.width])

    def chosen(self) -> Iterator[float]:
        for part in self.parts:
            yield from map(_finite, float_values(part.logprobs)[:: part.width])


def chat_logprobs(tokens: Iterable[LogprobsByToken], top: int, json: LongJson) -> ChatLogprobs:
    return ChatLogprobs(content=json.defer(_token(position, top) for position in tokens))


def _token(position: LogprobsByToken, top: int) -> TokenLogprob:
    entries = [_top(logprob) for logprob in position.values()]
    best = sorted(position.values(), key=lambda logprob: logprob.rank)[:top]
    chosen = entries[0]
    return TokenLogprob(
        token=chosen.token, logprob=chosen.logprob, bytes=chosen.bytes, top_logprobs=[_top(each) for each in best]
    )


def _top(logprob: Logprob) -> TopLogprob:
    token = logprob.decoded_token or ""
    return TopLogprob(token=token, logprob=_finite(logprob.logprob), bytes=list(token.encode(errors="replace")))


def _finite(value: float) -> float:
    return value if value > _LEAST else _LEAST


@dataclass(frozen=True, slots=True)
class Section:
    """Positions of a text, and the offset at which they begin."""

    positions: Positions
    offset: int = 0
    first_token: str | None = None  # of a prompt, where nothing predicts it

    def tokens(self) -> Iterator[str]:
        if self.first_token is not None:
            yield self.first_token
        yield from self.positions.tokens()

    def offsets(self) -> Iterator[int]:
        offset = self.offset
        for token in self.tokens():
            yield offset
            offset += len(token)

    def chosen(self) -> Iterator[float | None]:
        if self.first_token is not None:
            yield None
        yield from self.positions.chosen()

    def best(self, top: int) -> Iterator[dict[str, float] | None]:
        if self.first_token is not None:
            yield None
        for position in self.positions:
            best = sorted(position.values(), key=lambda logprob: logprob.rank)[:top]
            yield {each.decoded_token or "": _finite(each.logprob) for each in best}


def completion_logprobs(sections: Sequence[Section], top: int, json: LongJson) -> CompletionLogprobs | None:
    if not sections:
        return None
    return CompletionLogprobs(
        tokens=json.defer(chain.from_iterable(section.tokens() for section in sections)),
        token_logprobs=json.defer(chain.from_iterable(section.chosen() for section in sections)),
        top_logprobs=json.defer(chain.from_iterable(section.best(top) for section in sections)),
        text_offset=json.defer(chain.from_iterable(section.offsets() for section in sections)),
    )


def prompt_logprobs(tokens: Iterable[LogprobsByToken], json: LongJson) -> PromptLogprobs:
    """Nothing predicts the first token."""
    return json.defer(_prompt_positions(tokens))


def _prompt_positions(tokens: Iterable[LogprobsByToken]) -> Iterator[dict[str, PromptLogprob] | None]:
    yield None
    for position in tokens:
        yield {
            str(token): PromptLogprob(logprob=_finite(each.logprob), rank=each.rank, decoded_token=each.decoded_token)
            for token, each in position.items()
        }
