"""The proposers of each method of `speculative_config`, in the order in which they are asked.

What a request is expected to answer comes first with any method. A model comes last, because its guesses cost most.
Between them is the proposer by tokens alone that the method has in the table.
"""

from collections.abc import Callable, Mapping

from msgspec.structs import replace

from ...protocol.options.speculation import SpeculativeConfig
from .drafter import Drafter
from .ngram import Ngram
from .proposer import Proposer
from .replay import Replay
from .suffix import Suffix


def drafter_of(speculation: SpeculativeConfig | None, model: Proposer | None = None) -> Drafter:
    """Make the drafter that a configuration asks for; None: the default. `model`: the one that drafts, if any does."""
    speculation = speculation or SpeculativeConfig(method="auto")
    by_tokens = _BY_TOKENS[speculation.method]
    # What is named drafts always. Unless their number is given, a model's drafts are checked where they pay.
    is_weighed = speculation.method == "auto" if model is None else speculation.num_speculative_tokens is None
    always = None if is_weighed else speculation.method
    if always == Suffix.name and speculation.suffix_decoding_max_spec_factor is None:
        # vLLM's default. Where drafts have to pay, their cost is the bound.
        speculation = replace(speculation, suffix_decoding_max_spec_factor=1.0)
    return Drafter([Replay(), by_tokens(speculation), *([] if model is None else [model])], always)


def _suffix(speculation: SpeculativeConfig) -> Proposer:
    return Suffix(
        speculation.suffix_decoding_max_tree_depth,
        speculation.suffix_decoding_max_cached_requests,
        speculation.suffix_decoding_max_spec_factor,
        speculation.suffix_decoding_min_token_prob,
    )


def _ngram(speculation: SpeculativeConfig) -> Proposer:
    return Ngram(speculation.prompt_lookup_min, speculation.prompt_lookup_max)


_BY_TOKENS: Mapping[str, Callable[[SpeculativeConfig], Proposer]] = {
    "auto": _suffix,
    "suffix": _suffix,
    "ngram": _ngram,
    "replay": _suffix,  # where the answer differs from the earlier one
    "draft_model": _suffix,
    "mtp": _suffix,
    "eagle3": _suffix,
}
