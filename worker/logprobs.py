"""Log-probabilities that were asked for: of the chosen token and of the most likely ones, by the model alone.

They are of the model's own distribution, before masks, penalties and temperature, so the logits must be taken before
the sampler overwrites them. Ranks and the lists of the most likely order equal tokens by their id, as the sampler
does. Prompts are done in pieces, since the logits of a whole step would not fit. Knows nothing of rows and plans.
"""

from dataclasses import dataclass

import numpy
import torch
from torch import Tensor

from ..kernels.sampling import ranked_logprobs
from ..protocol.messages import Logprobs
from .device import on_device

# Of logits and what is found in them: torch's operations hold some five times that while they look.
_PIECE_BYTES = 32 << 20


def piece_length(vocab_size: int, num_top: int = 0) -> int:
    """How many positions of a prompt go to the head at once."""
    return max(1, _PIECE_BYTES // (4 * vocab_size + 8 * num_top))


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
    found = ranked_logprobs(logits, chosen, num_top)
    # One copy brings all three.
    columns = (found.token_ids, found.logprobs.view(torch.int32), found.ranks[:, None])
    on_host, width = torch.cat(columns, 1).cpu().numpy(), 1 + num_top
    return TokenLogprobs(on_host[:, :width], on_host[:, width : 2 * width].copy().view(numpy.float32), on_host[:, -1])


def logprobs_of_rows(logits: Tensor, chosen: Tensor, owners: numpy.ndarray, num_top: numpy.ndarray) -> list[Logprobs]:
    """One part a row. Those that ask for equally many are done together: one that asks for all slows no other."""
    parts = []
    for most in numpy.unique(num_top).tolist():
        asking = numpy.flatnonzero(num_top == most)
        index = on_device(asking, logits.device)
        of_rows = logits if len(asking) == len(logits) else logits[index]
        found = token_logprobs(of_rows, chosen[index], most)
        places = enumerate(owners[asking].tolist())
        parts += [found.part(row, False, slice(place, place + 1), most) for place, row in places]
    return parts


def joined(pieces: list[TokenLogprobs]) -> TokenLogprobs:
    return TokenLogprobs(
        numpy.concatenate([piece.token_ids for piece in pieces]),
        numpy.concatenate([piece.logprobs for piece in pieces]),
        numpy.concatenate([piece.ranks for piece in pieces]),
    )
