"""What the stand-in worker makes up: tokens, their log-probabilities, candidates and vectors, from histories alone.

`runner.py` keeps the histories.
"""

from array import array
from collections.abc import Callable
from typing import Protocol

from ...protocol.messages import Candidates, Logprobs
from ...protocol.parameters.sampling import SamplingParams
from ...protocol.pooling.form import Vectors, WantedVectors
from ...protocol.wire import column, values

PRIME = 2**31 - 1
IsAllowed = Callable[[int], bool]


class History(Protocol):
    """A slot's history, and what decides about its next token."""

    tokens: "array[int]"
    salt: int
    endings: set[int]
    min_total: int
    num_candidates: int
    pooled: WantedVectors | None


def next_token(row: History, vocab_size: int, is_allowed: IsAllowed | None = None) -> int:
    """Derive a token from the last token, its position and, unless greedy, the seed: nothing else may change it."""
    tokens = row.tokens
    token = (tokens[-1] * 48271 + len(tokens) * 16807 + row.salt) % PRIME % vocab_size
    if is_allowed is None and len(tokens) >= row.min_total:
        return token
    while (len(tokens) < row.min_total and token in row.endings) or (is_allowed and not is_allowed(token)):
        token = (token + 1) % vocab_size
    return token


def likely_tokens(row: History, number: int, vocab_size: int) -> Candidates:
    """Make as many candidates as the row asks for; the history determines them and their probabilities."""
    tokens = row.tokens
    first = (tokens[-1] * 48271 + len(tokens) * 16807) % PRIME
    falling = 0.03 + first % 97 / 40
    ids = [(first + index * 37) % vocab_size for index in range(row.num_candidates)]
    logprobs = array("f", [-0.2 - index * falling for index in range(row.num_candidates)])
    return Candidates(number, column(ids), logprobs.tobytes())


def vectors_of(row: History, number: int) -> Vectors:
    """Make up the vectors of a prompt that has ended; its tokens alone determine them."""
    ends = range(1, len(row.tokens) + 1) if row.pooled is not None and row.pooled.by_token else [len(row.tokens)]
    made = array("f")
    if row.pooled is not None and row.pooled.labels:
        made.extend(-1.0 - (sum(row.tokens) + label) % 997 / 97 for label in values(row.pooled.labels))
        return Vectors(number, len(made), made.tobytes())
    for end in ends:
        state = sum(token * place for place, token in enumerate(row.tokens[:end], 1))
        made.extend((state * factor % 997) / 997 - 0.5 for factor in (48271, 16807, 69621, 40692))
    return Vectors(number, 4, made.tobytes())


def salt_of(params: SamplingParams, seed: int, sample: int) -> int:
    return 0 if params.is_greedy else (seed * 69621 + sample * 40692 + 1) % PRIME


def made_up_logprobs(owner: int, is_prompt: bool, chosen: list[int], top: int, vocab_size: int) -> Logprobs:
    """Make up log-probabilities: the chosen token is always the most likely one."""
    width = 1 + (vocab_size if top < 0 else top)
    ids = [(token + max(0, index - 1)) % vocab_size for token in chosen for index in range(width)]
    likely = array("f", [-0.5 * max(1, index) for index in range(width)] * len(chosen))
    return Logprobs(owner, is_prompt, width, column(ids), likely.tobytes(), column([1] * len(chosen)))
