"""Elementary functions agree with the system's to a unit in the last place, and on what is no number."""

import math

import numpy
from builders.cases import for_each

from penstock.kernels.elementary import cosines_and_sines, exponential, logarithm, power

NUMBERS = [1e-30, 0.3, 1 - 1e-12, 1.0, math.pi, 77.7, 1e6, 3e30]


@for_each("number", NUMBERS)
def test_logarithms_exponentials_and_powers_are_the_systems_to_the_last_place(number):
    for found, expected in [
        (logarithm(number), math.log(number)),
        (exponential(-number), math.exp(-number)),
        (power(number, 0.6), number**0.6),
    ]:
        assert abs(found - expected) <= math.ulp(expected)


def test_what_has_no_logarithm_is_no_error():
    assert logarithm(0.0) == -math.inf and math.isnan(logarithm(-1.0)) and exponential(-math.inf) == 0


def test_cosines_and_sines_are_the_systems_to_the_last_place_up_to_ten_million_radians():
    angles = numpy.concatenate([numpy.linspace(-10, 10, 1001), numpy.geomspace(1e-300, 1e7, 1001)])
    for found, function in zip(cosines_and_sines(angles), (numpy.cos, numpy.sin), strict=True):
        numpy.testing.assert_allclose(found, function(angles), rtol=0, atol=2.5e-16)
