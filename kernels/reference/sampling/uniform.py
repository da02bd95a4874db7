"""Random numbers by counter: each is a hash of (seed, sample, position, draw) and of nothing else.

There is no generator whose state could tell in which company, order or chunking a token was drawn. The hash is
splitmix64's finalizer, chained over the four words, in wrapping int64 arithmetic that every device has.
"""

import torch
from torch import Tensor


def _signed(word: int) -> int:
    return word - (1 << 64) if word >= 1 << 63 else word


_STEP = _signed(0x9E3779B97F4A7C15)
_FIRST = _signed(0xBF58476D1CE4E5B9)
_SECOND = _signed(0x94D049BB133111EB)


def uniform(seed: Tensor, sample: Tensor, position: Tensor, draw: int = 0) -> Tensor:
    """One float64 in [0, 1) for each row of the int64 arguments.

    52 bits, so that the product with a positive total, rounded, stays below the total.
    """
    state = _hashed(seed, sample, position, torch.full_like(position, draw))
    return _shifted(state, 12).to(torch.float64) * 2.0**-52


def exponential(seed: Tensor, sample: Tensor, position: Tensor, draw: Tensor) -> Tensor:
    """-log(1 - uniform) in float32: the time until an event that comes once in a unit of time on average.

    The arguments are broadcast. The smallest of many such numbers decides who is drawn, so small ones are as fine as
    large ones: 1 - share would be rounded to a multiple of 2^-24.
    """
    share = (_shifted(_hashed(seed, sample, position, draw), 24).to(torch.float32) + 0.5) * 2.0**-40
    of_small = share * (1 + share * (0.5 + share * (1 / 3)))
    return torch.where(share < 0.01, of_small, -(1 - share).clamp_(min=2.0**-26).log_())


def _hashed(seed: Tensor, sample: Tensor, position: Tensor, draw: Tensor) -> Tensor:
    state = _mixed(seed + _STEP)
    for word in (sample, position, draw):
        state = _mixed(state + (word + 1) * _STEP)
    return state


def _mixed(state: Tensor) -> Tensor:
    state = (state ^ _shifted(state, 30)) * _FIRST
    state = (state ^ _shifted(state, 27)) * _SECOND
    return state ^ _shifted(state, 31)


def _shifted(state: Tensor, bits: int) -> Tensor:
    """A logical shift to the right; torch's own keeps the sign."""
    return (state >> bits) & ((1 << (64 - bits)) - 1)
