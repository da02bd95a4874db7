"""Log-probabilities and ranks of chosen tokens, and of the most likely ones.

Ranks and the order of the most likely count equal tokens by their id.
"""

import torch
from torch import Tensor

from ...registry import op
from ...sampling import RankedLogprobs
from ..pointwise import log_softmax
from .order import most_likely


@op()
def ranked_logprobs(logits: Tensor, chosen: Tensor, num_top: int) -> RankedLogprobs:
    return of_tokens(logits, chosen, most_likely.reference(logits, num_top)[1])


def of_tokens(logits: Tensor, chosen: Tensor, top: Tensor) -> RankedLogprobs:
    """Rank the chosen tokens; `top`, [rows, num_top], are the most likely ones."""
    token_ids = torch.cat((chosen[:, None], top), 1)
    logprobs = log_softmax.reference(logits).gather(1, token_ids)
    return RankedLogprobs(token_ids.to(torch.int32), logprobs, _ranks(logits, chosen))


def _ranks(logits: Tensor, chosen: Tensor) -> Tensor:
    """How many tokens come before the chosen one, and itself."""
    value = logits.gather(1, chosen[:, None])
    before = torch.arange(logits.shape[1], device=logits.device) < chosen[:, None]
    ahead = (logits > value).sum(-1) + ((logits == value) & before).sum(-1)
    return (ahead + 1).to(torch.int32)
