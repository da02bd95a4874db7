"""The drafter that `speculative_config` asks for."""

from ...protocol.errors import ConfigError
from ...protocol.options.speculation import Speculation
from .drafter import Drafter
from .ngram import Ngram
from .proposer import Proposer
from .replay import Replay
from .suffix import Suffix


def drafter_of(speculation: Speculation | None, model: Proposer | None = None) -> Drafter:
    """Make the drafter; None: drafts where they pay. What a request is expected to answer comes first in any case, and
    a `model` last, because its guesses cost most: unless their number is given, these are checked where they pay."""
    if speculation is None:
        return Drafter([Replay(), Suffix()])
    if model is not None:
        return Drafter([Replay(), Suffix(), model], drafts_always=speculation.num_speculative_tokens is not None)
    return Drafter([Replay(), *_named(speculation)], drafts_always=speculation.method != "auto")


def _named(speculation: Speculation) -> list[Proposer]:
    if speculation.method in ("eagle3",):
        raise ConfigError(f'speculative_config: method {speculation.method} is not supported yet. Use "suffix".')
    if speculation.method == "ngram":
        return [Ngram(speculation.prompt_lookup_min, speculation.prompt_lookup_max)]
    return [
        Suffix(
            speculation.suffix_decoding_max_tree_depth,
            speculation.suffix_decoding_max_cached_requests,
            speculation.suffix_decoding_max_spec_factor,
            speculation.suffix_decoding_min_token_prob,
        )
    ]
