"""Parameters of a beam search (`BeamSearchParams`), validated on construction.

Names and meanings are those of transformers' `generate(num_beams=…)`; `engine/decoding/beams.py` does the same search.
"""

from typing import Annotated, Any, Literal

from ..errors import RequestError
from ..fields.described import described, rules_of
from ..fields.field_help import explain_fields
from ..fields.rules import BOOLEAN, FINITE, NamedFields, Rule, at_least, between, whole
from .sampling import MAX_SAMPLES, SamplingParams

_ENDS = Rule(
    lambda value: value,
    lambda value: value is True or value is False or value == "never",
    'must be True, False or "never"',
)


@explain_fields
class BeamSearchParams(NamedFields, omit_defaults=True, forbid_unknown_fields=True):
    """How wide a search is, how long its answers may be, and how they are scored."""

    beam_width: Annotated[int, described("number of beams, and of answers returned", whole(1, MAX_SAMPLES))]
    max_tokens: Annotated[int | None, described("maximum output tokens; default: the whole context", at_least(1))] = (
        None
    )
    # Bounded so that no power of a length overflows.
    length_penalty: Annotated[
        float, described("a score is log-probability / length ** length_penalty", between(-16, 16))
    ] = 1.0
    early_stopping: Annotated[
        bool | Literal["never"],
        described("True: end with beam_width whole answers; False: when a better one is unlikely; or never", _ENDS),
    ] = False
    temperature: Annotated[float, described("divides log-probabilities; 0 is off", FINITE)] = 0.0
    ignore_eos: Annotated[bool, described("continue after the end-of-sequence token", BOOLEAN)] = False

    def __post_init__(self) -> None:
        for name, rule in _RULES.items():
            value = getattr(self, name)
            if not (name == "max_tokens" and value is None):
                setattr(self, name, rule.checked(name, value))

    @property
    def scale(self) -> float:
        """The divisor of log-probabilities."""
        return self.temperature or 1.0

    def num_candidates(self, num_ends: int) -> int:
        """How many next tokens of each beam to weigh: even if all end tokens are among them, `beam_width` others are
        left."""
        return max(2, 1 + num_ends) * self.beam_width

    def as_sampling(self) -> SamplingParams:
        """The request's sampling parameters: one sample for each beam, from the model's own distribution."""
        return SamplingParams(
            temperature=0.0, n=self.beam_width, max_tokens=self.max_tokens, ignore_eos=self.ignore_eos
        )


def beams_of(params: Any) -> BeamSearchParams:
    if not isinstance(params, BeamSearchParams):
        raise RequestError(f"beam_search takes BeamSearchParams, not {type(params).__name__}.")
    return params


_RULES = rules_of(BeamSearchParams)
