"""Elementary functions with the same bits on every machine, for the numbers that a model's start needs.

Libraries of mathematics round differently from one processor or release to the next. Here logarithms, exponentials and
powers are decimal arithmetic, rounded once; cosines and sines are sums and products of float64 alone.
"""

from collections.abc import Sequence
from decimal import Context, Decimal

import numpy

from .arrays import Array

_DECIMAL = Context(prec=30, traps=[])  # no number is no error here

# π/2 in parts: their products with quarter turns up to 2^27 are exact, but for the last one's.
_QUARTER = tuple(map(float.fromhex, ("0x1.921fb5p+0", "0x1.110b46p-26", "0x1.1a62633145c07p-54")))
_TURNS = float.fromhex("0x1.45f306dc9c883p-1")  # 2/π
# Minimax polynomials of x² within ±π/4 (fdlibm): sin x = x (1 + x² (…)), cos x = 1 - x²/2 + x⁴ (…).
_SINE = (
    -1.66666666666666324348e-01, 8.33333333332248946124e-03, -1.98412698298579493134e-04,
    2.75573137070700676789e-06, -2.50507602534068634195e-08, 1.58969099521155010221e-10,
)  # fmt: skip
_COSINE = (
    4.16666666666666019037e-02, -1.38888888888741095749e-03, 2.48015872894767294178e-05,
    -2.75573143513906633035e-07, 2.08757232129817482790e-09, -1.13596475577881948265e-11,
)  # fmt: skip


def logarithm(x: float) -> float:
    return float(_DECIMAL.ln(Decimal(x)))


def exponential(x: float) -> float:
    return float(_DECIMAL.exp(Decimal(x)))


def power(base: float, exponent: float) -> float:
    return float(_DECIMAL.power(Decimal(base), Decimal(exponent)))


def cosines_and_sines(angles: Array) -> tuple[Array, Array]:
    """Those of finite float64 angles, to 2e-16."""
    turns = numpy.rint(angles * _TURNS)
    rest = angles
    for part in _QUARTER:
        rest = rest - turns * part
    square = rest * rest
    sine = _polynomial(square, (1.0, *_SINE)) * rest
    cosine = _polynomial(square, (1.0, -0.5, *_COSINE))
    quarters = turns.astype(numpy.int64) & 3
    is_odd = quarters & 1 == 1
    of_cosine, of_sine = numpy.where(is_odd, sine, cosine), numpy.where(is_odd, cosine, sine)
    of_cosine *= 1.0 - (quarters + 1 & 2)
    of_sine *= 1.0 - (quarters & 2)
    return of_cosine, of_sine


def _polynomial(x: Array, factors: Sequence[float]) -> Array:
    """Horner's scheme, in place; the factor of x⁰ comes first."""
    total = numpy.full_like(x, factors[-1])
    for factor in factors[-2::-1]:
        total *= x
        total += factor
    return total
