"""Log-probabilities in the forms that OpenAI's endpoints tell them. Knows nothing of where they come from."""

from ...protocol.outputs import Logprob, LogprobsByToken
from .schemas.chat import ChatLogprobs, TokenLogprob, TopLogprob
from .schemas.completions import CompletionLogprobs
from .schemas.sampling import PromptLogprob, PromptLogprobs

# JSON has no infinity; what a mask forbids is this unlikely.
_LEAST = -9999.0


def chat_logprobs(positions: list[LogprobsByToken] | None, top: int) -> ChatLogprobs | None:
    """The chosen token is each position's first entry."""
    if positions is None:
        return None
    return ChatLogprobs(content=[_token(position, top) for position in positions])


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


class CompletionLogprobsBuilder:
    """Offsets count on over the pieces of a stream."""

    def __init__(self, top: int, offset: int = 0) -> None:
        self._top = top
        self._offset = offset

    def take(self, positions: list[LogprobsByToken | None] | None) -> CompletionLogprobs | None:
        if positions is None:
            return None
        told = CompletionLogprobs(tokens=[], token_logprobs=[], top_logprobs=[], text_offset=[])
        for position in positions:
            self._add(told, position)
        return told

    def echoed(self, token: str) -> CompletionLogprobs:
        """The prompt's first token, which nothing predicts."""
        told = CompletionLogprobs(tokens=[token], token_logprobs=[None], top_logprobs=[None], text_offset=[0])
        self._offset = len(token)
        return told

    def _add(self, told: CompletionLogprobs, position: LogprobsByToken | None) -> None:
        if position is None:
            return
        chosen = next(iter(position.values()))
        best = sorted(position.values(), key=lambda logprob: logprob.rank)[: self._top]
        token = chosen.decoded_token or ""
        told.tokens.append(token)
        told.token_logprobs.append(_finite(chosen.logprob))
        told.top_logprobs.append({each.decoded_token or "": _finite(each.logprob) for each in best})
        told.text_offset.append(self._offset)
        self._offset += len(token)


def joined(first: CompletionLogprobs, second: CompletionLogprobs | None) -> CompletionLogprobs:
    if second is None:
        return first
    return CompletionLogprobs(
        tokens=first.tokens + second.tokens,
        token_logprobs=first.token_logprobs + second.token_logprobs,
        top_logprobs=first.top_logprobs + second.top_logprobs,
        text_offset=first.text_offset + second.text_offset,
    )


def prompt_logprobs(positions: list[LogprobsByToken | None]) -> PromptLogprobs:
    return [None if position is None else _prompt_position(position) for position in positions]


def _prompt_position(position: LogprobsByToken) -> dict[str, PromptLogprob]:
    return {
        str(token): PromptLogprob(logprob=_finite(each.logprob), rank=each.rank, decoded_token=each.decoded_token)
        for token, each in position.items()
    }
