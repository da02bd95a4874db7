"""Parameters of prompts that end in numbers (`PoolingParams`), validated on construction.

Names are vLLM's, and sentence-transformers' for prompts.
"""

from typing import Annotated, ClassVar

from ..fields.described import described, rules_of
from ..fields.field_help import explain_fields
from ..fields.rules import BOOLEAN, TEXT, NamedFields, Rule, at_least, text
from .sampling import TOKEN_IDS, SamplingParams

_CUT = Rule(
    lambda value: value,
    lambda value: type(value) is int and (value == -1 or value >= 1),
    "must be a number of tokens, or -1 for as many as the model takes",
)

_SIDE = Rule(text, lambda value: value in ("left", "right"), "must be left or right")
_MOST_LABELS = 1024
_LABELS = Rule(
    TOKEN_IDS.convert,
    lambda ids: 0 < len(ids) <= _MOST_LABELS and TOKEN_IDS.holds(ids),
    f"must be a list of 1 to {_MOST_LABELS:,} token ids",
)


@explain_fields
class PoolingParams(NamedFields, omit_defaults=True, forbid_unknown_fields=True):
    """What is made of a prompt's vectors, and what stands before its text."""

    dimensions: Annotated[int | None, described("numbers of a vector to keep, the first ones", at_least(1))] = None
    normalize: Annotated[bool | None, described("scale vectors to length 1; default: as the model says", BOOLEAN)] = (
        None
    )
    prompt_name: Annotated[str | None, described("which of the model's prompts stands before each text", TEXT)] = None
    instruction: Annotated[str | None, described("a task in words, for models that take one", TEXT)] = None
    truncate_prompt_tokens: Annotated[
        int | None, described("cut longer texts after so many tokens; -1: where the model ends", _CUT)
    ] = None
    truncation_side: Annotated[
        str | None, described("where a longer text is cut: left keeps its end, right its beginning (default)", _SIDE)
    ] = None
    use_activation: Annotated[bool | None, described("give probabilities of classes; False: their scores", BOOLEAN)] = (
        None
    )
    logprob_token_ids: Annotated[
        list[int] | None, described("of a model that writes text: log-probabilities of these next tokens", _LABELS)
    ] = None
    by_token: Annotated[bool, described("a vector for each token instead of one for the text", BOOLEAN)] = False
    receipt: Annotated[bool, described("give a receipt, by which the numbers can be verified", BOOLEAN)] = False

    # Other engines' fields.
    _elsewhere: ClassVar[dict[str, str]] = {
        "prompt": "write the words before each text, or give instruction or prompt_name",
        "activation": "use_activation=False gives scores",
        "normalize_embeddings": "it is normalize",
        "truncate_dim": "it is dimensions",
        "task": "the call says it; by_token=True gives a row for each token",
    }

    def __post_init__(self) -> None:
        for name, rule in _RULES.items():
            if (value := getattr(self, name)) is not None:
                setattr(self, name, rule.checked(name, value))

    def as_sampling(self) -> SamplingParams:
        """The request's sampling parameters: none of them has an effect, since nothing is sampled."""
        return SamplingParams(temperature=0.0, max_tokens=1, detokenize=False, ignore_eos=True)


_RULES = rules_of(PoolingParams)
