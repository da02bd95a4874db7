"""Random numbers by counter inside kernels: `reference.sampling.uniform`, word for word."""

import triton
import triton.language as tl

_STEP = tl.constexpr(0x9E3779B97F4A7C15)
_FIRST = tl.constexpr(0xBF58476D1CE4E5B9)
_SECOND = tl.constexpr(0x94D049BB133111EB)


@triton.jit
def stream(seed, sample, position):
    """The hash of what a row's draws have in common, to be continued by `exponential`."""
    state = _mixed(seed.to(tl.uint64) + _STEP)
    state = _mixed(state + (sample.to(tl.uint64) + 1) * _STEP)
    return _mixed(state + (position.to(tl.uint64) + 1) * _STEP)


@triton.jit
def exponential(of_row, draws):
    """One float32 of mean 1 for each of `draws`, integers."""
    state = _mixed(of_row + (draws.to(tl.uint64) + 1) * _STEP)
    share = ((state >> 24).to(tl.int64).to(tl.float32) + 0.5) * 9.094947017729282e-13  # 2^-40
    of_small = share * (1.0 + share * (0.5 + share * 0.3333333333333333))
    return tl.where(share < 0.01, of_small, -tl.log(tl.maximum(1.0 - share, 1.4901161193847656e-08)))  # 2^-26


@triton.jit
def _mixed(state):
    state = (state ^ (state >> 30)) * _FIRST
    state = (state ^ (state >> 27)) * _SECOND
    return state ^ (state >> 31)
