"""Log-probabilities that were asked for: of the chosen token and of the most likely ones, by the model alone.

They are of the model's own distribution, before masks, penalties and temperature, so the logits must be taken before
the sampler overwrites them. Ranks and the lists of the most likely order equal tokens by their id, as the sampler
does. Prompts are done in pieces, since the logits of a whole step would not fit. Knows nothing of rows and plans.
"""

from dataclasses import dataclass

import numpy
import torch
from torch import Tensor

from ..kernels import FAST
from ..protocol.messages import Logprobs
from .sampler.order import most_likely

_PIECE_BYTES = 64 << 20  # of logits


def piece_length(vocab_size: int) -> int:
    """How many positions of a prompt go to the head at once."""
    return max(1, _PIECE_BYTES // (4 * vocab_size))


@dataclass
class TokenLogprobs:
    """Positions with their chosen token in column 0 and the most likely ones after it, on the host."""

    token_ids: numpy.ndarray  # [positions, 1 + most] int32
    logprobs: numpy.ndarray  # likewise, float32
    ranks: numpy.ndarray  # [positions] int32, of the chosen token; 1 is the most likely

    def part(self, owner: int, is_prompt: bool, positions: slice, num_top: int) -> Logprobs:
        """Those of one owner, with as many of the most likely ones as it asked for."""
        width = 1 + num_top
        token_ids, logprobs = self.token_ids[positions, :width], self.logprobs[positions, :width]
        return Logprobs(
            owner=owner,
            is_prompt=is_prompt,
            width=width,
            token_ids=token_ids.tobytes(),
            logprobs=logprobs.tobytes(),
            ranks=self.ranks[positions].tobytes(),
        )


def token_logprobs(logits: Tensor, chosen: Tensor, num_top: int) -> TokenLogprobs:
    """For each row of logits, its chosen token's and those of the `num_top` most likely."""
    logprobs = FAST.log_softmax(logits)
    _, top = most_likely(logits, num_top) if num_top else (None, chosen.new_empty(len(chosen), 0))
    token_ids = torch.cat((chosen[:, None], top), 1)
    columns = (token_ids.to(torch.int32), logprobs.gather(1, token_ids).view(torch.int32), _rank(logits, chosen))
    return _on_host(torch.cat(columns, 1), 1 + num_top)


def joined(pieces: list[TokenLogprobs]) -> TokenLogprobs:
    return TokenLogprobs(
        numpy.concatenate([piece.token_ids for piece in pieces]),
        numpy.concatenate([piece.logprobs for piece in pieces]),
        numpy.concatenate([piece.ranks for piece in pieces]),
    )


def _rank(logits: Tensor, chosen: Tensor) -> Tensor:
    """[rows, 1]: how many tokens come before the chosen one, and itself."""
    value = logits.gather(1, chosen[:, None])
    before = torch.arange(logits.shape[1], device=logits.device) < chosen[:, None]
    ahead = (logits > value).sum(-1) + ((logits == value) & before).sum(-1)
    return (ahead + 1).to(torch.int32)[:, None]


def _on_host(packed: Tensor, width: int) -> TokenLogprobs:
    """One copy brings all three."""
    on_host = packed.cpu().numpy()
    return TokenLogprobs(on_host[:, :width], on_host[:, width : 2 * width].copy().view(numpy.float32), on_host[:, -1])
