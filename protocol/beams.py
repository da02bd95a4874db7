"""What a beam search may be asked (`BeamSearchParams`), validated where it is written.

Names and meanings are those of transformers' `generate(num_beams=…)`, whose search this is. Knows nothing of how beams
are computed.
"""

import math
from typing import Annotated, Any, Literal

from msgspec import Meta

from .errors import RequestError
from .field_help import explain_fields
from .named_fields import NamedFields
from .rules import BOOLEAN, Rule, at_least, between, integer, real
from .sampling import MAX_SAMPLES, SamplingParams


@explain_fields
class BeamSearchParams(NamedFields, omit_defaults=True, forbid_unknown_fields=True):
    """How wide a search is, how long its answers may be, and what they are ordered by."""

    beam_width: Annotated[int, Meta(description="beams that are followed, and answers that come back")]
    max_tokens: Annotated[int | None, Meta(description="output tokens at most; unset: to max_model_len")] = None
    length_penalty: Annotated[float, Meta(description="scores are log-probability / length ** length_penalty")] = 1.0
    early_stopping: Annotated[
        bool | Literal["never"],
        Meta(description="True: end with beam_width whole answers; False: when a better one is unlikely; or never"),
    ] = False
    temperature: Annotated[float, Meta(description="log-probabilities are divided by it; 0 is off")] = 0.0
    ignore_eos: Annotated[bool, Meta(description="go on after the end-of-sequence token")] = False

    def __post_init__(self) -> None:
        for name, rule in _RULES.items():
            value = getattr(self, name)
            if not (name == "max_tokens" and value is None):
                setattr(self, name, rule.checked(name, value))

    @property
    def scale(self) -> float:
        """What a log-probability is divided by."""
        return self.temperature or 1.0

    def num_candidates(self, num_ends: int) -> int:
        """Of every beam's next tokens so many are weighed: were they ends all, `beam_width` others would still come."""
        return max(2, 1 + num_ends) * self.beam_width

    def as_sampling(self) -> SamplingParams:
        """What the rest of a request says: one sample for each beam, tokens by the model's own distribution."""
        return SamplingParams(
            temperature=0.0, n=self.beam_width, max_tokens=self.max_tokens, ignore_eos=self.ignore_eos
        )


def beams_of(params: Any) -> BeamSearchParams:
    if not isinstance(params, BeamSearchParams):
        raise RequestError(f"beam_search takes BeamSearchParams, not {type(params).__name__}.")
    return params


_RULES = {
    "beam_width": Rule(integer, lambda value: 1 <= value <= MAX_SAMPLES, f"must be 1 to {MAX_SAMPLES}"),
    "max_tokens": at_least(1),
    "length_penalty": between(-16, 16),  # so that no power of a length overflows
    "early_stopping": Rule(
        lambda value: value,
        lambda value: value is True or value is False or value == "never",
        'must be True, False or "never"',
    ),
    "temperature": Rule(real, lambda value: 0 <= value < math.inf, "must be a finite number, 0 or more"),
    "ignore_eos": BOOLEAN,
}
