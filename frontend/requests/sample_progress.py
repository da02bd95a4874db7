"""The progress of one sample, which may be computed by several process trees one after another.

If a tree dies, the next one gets the tokens that were said, and its first delta repeats them (or all of them, one by
one, if the sample has to start again). An answer depends on its request alone, so what is repeated is what was said
before: it is counted, and cut off.
"""

from array import array
from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from ...protocol.messages import Delta, Logprobs, Prompt, Said

STARTED_AGAIN = "The model's processes died and were started again"
_INT = 4  # bytes of a column's entry


class SampleProgress:
    __slots__ = ("_num_characters", "_num_prompt_logprobs", "_repeated", "has_ended", "token_ids")

    def __init__(self) -> None:
        self.token_ids = array("i")
        self.has_ended = False
        self._num_characters = 0
        self._num_prompt_logprobs = 0  # positions
        self._repeated: _Repeated | None = None  # None in its first tree

    def new_part(self, delta: Delta) -> Delta | None:
        """Take in a delta; returns the part that wasn't there before, or None if there is none."""
        # A sample that had said all before it came ends before its request starts, and at another tree once more.
        if self.has_ended:
            return None
        if self._repeated is not None:
            delta = self._repeated.cut_off(delta)
            if not (delta.token_ids or delta.text or delta.logprobs or delta.finish_reason):
                return None
        self.token_ids.frombytes(delta.token_ids)
        self._num_characters += len(delta.text)
        self.has_ended = delta.finish_reason is not None
        if delta.logprobs:
            self._num_prompt_logprobs += sum(_positions(part) for part in delta.logprobs if part.is_prompt)
        return delta

    def begin_again(self, given: Said, *, from_tokens: bool) -> Said:
        """Prepare for another tree; returns what the sample has said for it.

        `given` is what it had said before its first tree. Unless it can go on `from_tokens`, it says all of it again.
        """
        num_tokens, num_prompt_logprobs = len(self.token_ids), self._num_prompt_logprobs
        said = Said(self.token_ids.tobytes() if from_tokens else b"") if num_tokens else given
        num_logprobs = 0 if said.token_ids else num_tokens
        self._repeated = _Repeated(num_tokens, self._num_characters, num_logprobs, num_prompt_logprobs)
        return said


def begin_again(prompt: Prompt, progress: Sequence[SampleProgress], cause: str) -> str:
    """Let a prompt go on in another tree; returns a notice of that for its client, which begins with the cause."""
    num_said = sum(len(each.token_ids) for each in progress)
    given = [*prompt.said, *(Said(b"") for _ in progress)][: len(progress)]
    params, early_stop = prompt.params, prompt.params.early_stop
    # A search chooses among whole answers, claims are judged together, and an `early_stop` counts likely tokens.
    counts_likely = early_stop is not None and early_stop.least_logprob is not None
    may_go_on = prompt.beams is None and not prompt.claims and not counts_likely
    said = [
        # Only computing the prompt gives its log-probabilities, which the first sample asks for.
        each.begin_again(given[sample], from_tokens=may_go_on and (sample > 0 or params.prompt_logprobs is None))
        for sample, each in enumerate(progress)
    ]
    prompt.said = said if any(each.token_ids for each in said) else []
    how = f"goes on from its {num_said:,} tokens" if prompt.said else "begins again"
    return f"{cause}; this answer {how}."


class _Repeated:
    """How much a new tree has still to repeat."""

    __slots__ = ("characters", "logprobs", "prompt_logprobs", "tokens")

    def __init__(self, tokens: int, characters: int, logprobs: int, prompt_logprobs: int) -> None:
        self.tokens, self.characters = tokens, characters
        self.logprobs, self.prompt_logprobs = logprobs, prompt_logprobs  # positions

    def cut_off(self, delta: Delta) -> Delta:
        tokens = min(self.tokens, len(delta.token_ids) // _INT)
        characters = min(self.characters, len(delta.text))
        self.tokens -= tokens
        self.characters -= characters
        return replace(
            delta,
            token_ids=delta.token_ids[_INT * tokens :],
            text=delta.text[characters:],
            logprobs=list(self._without_known(delta.logprobs)) if delta.logprobs else [],
        )

    def _without_known(self, parts: Iterable[Logprobs]) -> Iterable[Logprobs]:
        for part in parts:
            positions = _positions(part)
            known = min(self.prompt_logprobs if part.is_prompt else self.logprobs, positions)
            if part.is_prompt:
                self.prompt_logprobs -= known
            else:
                self.logprobs -= known
            if known < positions:
                yield after(part, known)


def after(part: Logprobs, known: int) -> Logprobs:
    """Log-probabilities without those of the first positions."""
    wide = _INT * known * part.width
    return replace(
        part, token_ids=part.token_ids[wide:], logprobs=part.logprobs[wide:], ranks=part.ranks[_INT * known :]
    )


def _positions(part: Logprobs) -> int:
    return len(part.ranks) // _INT
