"""Masks and penalties: changes to the logits of some rows, in place, by a grammar's mask and by earlier tokens.

Nothing here sums over a row or looks at another row.
"""

import torch
from torch import Tensor

from ...registry import op
from ...sampling import Histories


def padded(histories: Histories) -> tuple[Tensor, Tensor]:
    """All tokens of these rows, padded to the longest by repeating a row's first one, and their positions."""
    positions = torch.arange(histories.longest, device=histories.tokens.device)
    tokens = histories.tokens[histories.slots[:, None], positions].to(torch.int64)
    return torch.where(positions < histories.lengths[:, None], tokens, tokens[:, :1]), positions


@op(tolerance=0)
def penalize_repetition(logits: Tensor, histories: Histories, penalty: Tensor) -> Tensor:
    """Positive logits of tokens that came before are divided by the penalty, others multiplied.

    A token that stands in the history several times is written several times, each time with the same value.
    """
    tokens, _ = padded(histories)
    flat = histories.rows[:, None] * logits.shape[1] + tokens
    before, penalty = logits.view(-1)[flat], penalty[:, None]
    logits.view(-1)[flat] = torch.where(before > 0, before / penalty, before * penalty)
    return logits


@op(tolerance=0)
def penalize_generated(
    logits: Tensor, histories: Histories, starts: Tensor, frequency: Tensor, presence: Tensor
) -> Tensor:
    """Tokens at positions from `starts` on: less `frequency` for each time, and less `presence` once."""
    tokens, positions = padded(histories)
    generated = (positions >= starts[:, None]) & (positions < histories.lengths[:, None])
    counts = torch.zeros(len(tokens), logits.shape[1], dtype=torch.int32, device=logits.device)
    count = counts.scatter_add_(1, tokens, generated.to(torch.int32)).gather(1, tokens)
    penalty = count * frequency[:, None] + (count > 0) * presence[:, None]
    flat = histories.rows[:, None] * logits.shape[1] + tokens
    logits.view(-1)[flat] = logits.view(-1)[flat] - penalty
    return logits


@op(tolerance=0)
def apply_mask(logits: Tensor, rows: Tensor, bits: Tensor) -> Tensor:
    """Minus infinity where a row's bit ([rows, ceil(width / 32)] int32, lowest first) is 0."""
    bit = torch.arange(32, dtype=torch.int32, device=logits.device)
    allowed = ((bits[:, :, None] >> bit) & 1).flatten(1)[:, : logits.shape[1]]
    logits[rows] = logits[rows].masked_fill_(allowed == 0, -torch.inf)
    return logits
