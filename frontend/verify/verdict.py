"""`Verdict`: what `penstock verify` and `LLM.verify` have found out about one answer."""

from dataclasses import dataclass
from typing import Any, Literal

from ...protocol.outputs import PlainOutput

_LONGEST = 60  # characters of a value in a sentence


@dataclass(slots=True)
class Verdict(PlainOutput):
    status: Literal["proved", "differs", "not judged"]
    custom_id: str = ""  # of a batch's line; else the number of the line or output
    reason: str | None = None  # why it isn't judged, or where in the body it differs
    sample: int = 0  # in which it differs first
    position: int | None = None  # the token at which it differs, from 0
    had: Any = None  # what stands there: a token id, or a value of the body; None: the answer has ended
    draws: Any = None  # what this model draws or says instead; None: it ends
    had_text: str | None = None  # of a token
    draws_text: str | None = None
    cosine: float | None = None  # of the angle between a vector and the one that this model computes

    @property
    def sentence(self) -> str:
        if self.status == "proved":
            return "proved"
        if self.status == "not judged":
            return f"not judged: {self.reason}"
        where = f"token {self.position}" if self.position is not None else str(self.reason)
        if self.position is not None and self.reason is not None:
            where += f" ({self.reason})"
        of_sample = f" of sample {self.sample}" if self.sample else ""
        had, draws = _shown(self.had, self.had_text), _shown(self.draws, self.draws_text)
        if self.position is None and self.draws is None:  # what stands there is nothing that a model draws
            return f"differs at {where}{of_sample}: had {had}"
        far = "" if self.cosine is None else f" (cosine {self.cosine:.9f})"
        return f"differs at {where}{of_sample}: had {had}, this model draws {draws}{far}"


def _shown(value: Any, text: str | None) -> str:
    if value is None:
        return "nothing"
    shown = repr(value) if len(repr(value)) <= _LONGEST else repr(value)[:_LONGEST] + "…"
    return shown if text is None else f"{shown} {text!r}"
