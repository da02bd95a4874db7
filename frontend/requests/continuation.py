"""An answer that goes on: its prompt, and the tokens that its samples have said before.

A `Continuation` is a prompt for a session's window or stream, made by code of this package that has recorded what was
said, such as a job's journal. The answer is the one that the request would have got without an interruption, bit for
bit, provided that nothing else about the request has changed. Its output begins with what was said.

A record may be damaged or belong to another request, so it is checked here.
"""

from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from msgspec.structs import replace

from ...protocol.errors import LimitError, RequestError
from ...protocol.memory_plan import MemoryPlan
from ...protocol.messages import Logprobs, Prompt, Said, sequence_id
from ...protocol.outputs import LogprobsByToken
from ...protocol.parameters.sampling import SamplingParams
from ...protocol.wire import values

_INT = 4  # bytes of a column's entry


@dataclass(frozen=True, slots=True)
class Continuation:
    prompt: Any  # of any kind that a window takes; its parameters have the seed that it got
    said: Sequence[Said]  # of the first samples; the others have said nothing


def go_on(prompt: Prompt, said: Sequence[Said], plan: MemoryPlan) -> RequestError | None:
    """Let the prompt's answer go on from what was said. Returns the refusal if it can't."""
    try:
        prompt.said = _checked(prompt, said, plan)
    except RequestError as error:
        return error.with_traceback(None)
    return None


def _checked(prompt: Prompt, said: Sequence[Said], plan: MemoryPlan) -> list[Said]:
    params = prompt.params
    if prompt.beams is not None:
        raise RequestError("A beam search can't go on from tokens: it chooses among whole answers. Start it again.")
    if len(said) > params.n:
        raise RequestError(f"{len(said)} samples have said something, and the request has n={params.n}.")
    is_watched = params.early_stop is not None and params.early_stop.least_logprob is not None
    if is_watched and params.logprobs is None:
        raise RequestError("An early_stop that counts likely tokens can't go on without logprobs. Start it again.")
    checked = [_checked_sample(each, params, plan, prompt.request_id, sample) for sample, each in enumerate(said)]
    if params.prompt_logprobs is not None:  # only computing the prompt gives them, so an ended answer has none
        checked[:1] = [Said(b"")]
    return checked


def _checked_sample(said: Said, params: SamplingParams, plan: MemoryPlan, request_id: int, sample: int) -> Said:
    if len(said.token_ids) % _INT:
        raise RequestError(f"Sample {sample} has said {len(said.token_ids):,} bytes, and a token takes {_INT}.")
    tokens, most = values(said.token_ids), params.max_tokens
    if wrong := [token for token in tokens if not 0 <= token < plan.vocab_size]:
        last = plan.vocab_size - 1
        raise RequestError(f"Sample {sample} has said token id {wrong[0]}, and the vocabulary has 0 to {last}.")
    if most is not None and len(tokens) > most:
        raise LimitError(f"Sample {sample} has said {len(tokens):,} tokens, and its answer may have {most:,}.")
    if params.logprobs is None:
        return Said(said.token_ids)
    _check_logprobs(said, sample, plan.vocab_size if params.logprobs < 0 else min(params.logprobs, plan.vocab_size))
    owner = sequence_id(request_id, sample)
    return Said(said.token_ids, [replace(part, owner=owner) for part in said.logprobs])


def _check_logprobs(said: Said, sample: int, num_top: int) -> None:
    if said.token_ids and not said.logprobs:
        raise RequestError(
            f"Sample {sample} has said tokens without their log-probabilities, which can't be computed again. Give "
            "them, or start it again."
        )
    chosen = array("i")
    for part in said.logprobs:
        size = len(part.ranks) * part.width
        if part.width != 1 + num_top or not size == len(part.token_ids) == len(part.logprobs):
            raise RequestError(f"Sample {sample} has said tokens with other log-probabilities than the request wants.")
        chosen.extend(values(part.token_ids)[:: part.width])
    if chosen.tobytes() != said.token_ids:
        raise RequestError(f"Sample {sample} has said other tokens than its log-probabilities are of.")


def since(said: Said, known: Said) -> Said:
    """What was said after what is known already. Log-probabilities come in parts of whole tokens."""
    num_known = len(known.token_ids) // _INT
    parts, start = [], 0
    for part in said.logprobs:
        if start >= num_known:
            parts.append(part)
        start += len(part.ranks) // _INT
    return Said(said.token_ids[_INT * num_known :], parts)


def packed_logprobs(positions: Iterable[LogprobsByToken], num_top: int) -> Logprobs:
    """Pack an output's log-probabilities as `Said` takes them; `num_top` is how many the request asked for."""
    token_ids, logprobs, ranks = array("i"), array("f"), array("i")
    for entries in positions:
        chosen, *others = entries.items()
        by_rank = {entry.rank: (token, entry) for token, entry in others}
        row = [chosen, *(by_rank.get(rank, chosen) for rank in range(1, num_top + 1))]
        token_ids.extend(token for token, _ in row)
        logprobs.extend(entry.logprob for _, entry in row)
        ranks.append(chosen[1].rank)
    return Logprobs(0, False, 1 + num_top, token_ids.tobytes(), logprobs.tobytes(), ranks.tobytes())
