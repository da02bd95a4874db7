"""Log-probabilities, with the most likely tokens found without ordering a whole vocabulary."""

from torch import Tensor

from ..reference.logprobs import RankedLogprobs, of_tokens, ranked_logprobs
from ..reference.order import most_likely


@ranked_logprobs.implement("torch")
def ranked_logprobs_in_torch(logits: Tensor, chosen: Tensor, num_top: int) -> RankedLogprobs:
    top = most_likely(logits, num_top)[1] if num_top else chosen.new_empty(len(chosen), 0)
    return of_tokens(logits, chosen, top)
