"""What the stand-in worker makes up: tokens, their log-probabilities, candidates and vectors, from histories alone.

`runner.py` keeps the histories.
"""

from array import array
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from ...protocol.messages import Candidates, FailedRow, Logprobs, MaskFrame, StepResult
from ...protocol.parameters.sampling import SamplingParams
from ...protocol.pooling.form import Vectors, WantedVectors
from ...protocol.processes.faults import point
from ...protocol.wire import column, values
from ..plan_error import PlanError

PRIME = 2**31 - 1
IsAllowed = Callable[[int], bool]


class History(Protocol):
    """A slot's history, and what decides about its next token."""

    tokens: "array[int]"
    num_prompt: int
    num_computed: int
    first_draft: int  # a position
    params: SamplingParams
    salt: int
    endings: set[int]
    min_total: int
    num_candidates: int
    pooled: WantedVectors | None


def sampled(
    step: int,
    rows: Sequence[History],
    starts: Sequence[int],
    allowed: Mapping[int, Sequence[IsAllowed]],
    vocab_size: int,
    max_model_len: int,
) -> StepResult:
    """Sample the rows of a step, which were computed from these starts on; their histories get the tokens."""
    result = StepResult(step, b"", b"", 0.0)
    counts, drawn_by_all = array("i"), array("i")
    is_nan = point("worker.logits") == "nan"
    for number, row in enumerate(rows):
        tokens, masks = row.tokens, allowed.get(number, ())
        drawn = _drawn_at_drafts(row, starts[number], masks, vocab_size)
        if row.num_computed < len(tokens):
            pass
        elif row.pooled is not None:
            result.vectors.append(vectors_of(row, number))
        elif len(tokens) >= max_model_len:
            raise PlanError(f"Row {number} of step {step} samples a token beyond {max_model_len}.")
        elif row.num_candidates:
            result.candidates.append(likely_tokens(row, number, vocab_size))
        else:
            tokens.append(token := next_token(row, vocab_size, masks[-1] if masks else None))
            if is_nan:
                is_nan = False
                result.failed.append(FailedRow(number, "The model's scores are not numbers (injected)."))
            else:
                drawn.append(token)
        counts.append(len(drawn))
        drawn_by_all.extend(drawn)
        if (top := row.params.logprobs) is not None:
            result.logprobs += [made_up_logprobs(number, False, [token], top, vocab_size) for token in drawn]
    result.num_sampled, result.sampled = counts.tobytes(), drawn_by_all.tobytes()
    return result


def _drawn_at_drafts(row: History, start: int, masks: Sequence[IsAllowed], vocab_size: int) -> list[int]:
    """The tokens that would have been sampled at the drafts after the computed tokens."""
    whole, first, end = row.tokens, max(start + 1, row.first_draft), min(row.num_computed + 1, len(row.tokens))
    drawn: list[int] = []
    for position in range(first, end):
        row.tokens = whole[:position]
        drawn.append(next_token(row, vocab_size, masks[len(drawn)] if masks else None))
    row.tokens = whole
    return drawn


def prompt_logprobs(rows: Sequence[History], starts: Sequence[int], vocab_size: int) -> list[Logprobs]:
    """Those of the prompts' tokens that the rows have computed, where they are wanted."""
    found: list[Logprobs] = []
    for number, (row, start) in enumerate(zip(rows, starts)):
        last, top = min(row.num_computed, row.num_prompt - 1), row.params.prompt_logprobs
        if top is not None and start < last:
            chosen = row.tokens[start + 1 : last + 1].tolist()
            found.append(made_up_logprobs(number, True, chosen, top, vocab_size))
    return found


def allowed_by(frame: MaskFrame) -> dict[int, list[IsAllowed]]:
    """Return the functions that tell whether a token's bit is set, one for each token that a row samples."""
    rows, words = values(frame.rows), array("I", frame.bits)
    width = len(words) // max(1, len(rows))

    def allows(start: int) -> IsAllowed:
        return lambda token: bool(words[start + token // 32] >> (token % 32) & 1)

    found: dict[int, list[IsAllowed]] = {}
    for index, row in enumerate(rows):
        found.setdefault(row, []).append(allows(index * width))
    return found


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
