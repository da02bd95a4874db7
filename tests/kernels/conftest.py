"""The variants of the native kernels: quick tests run on the best and on the plainest one, and long tests on all."""

from collections.abc import Iterator

import pytest
from builders.native_variants import available_variants, forced, quick_or_long

from penstock.kernels.cpu.library import Library, load

VARIANTS = quick_or_long(available_variants())


@pytest.fixture(params=VARIANTS, scope="module")
def library(request: pytest.FixtureRequest) -> Library:
    return load(request.param)


@pytest.fixture(params=VARIANTS)
def variant(request: pytest.FixtureRequest) -> Iterator[str]:
    """Steps that are recorded meanwhile compute with this variant."""
    with forced(request.param):
        yield request.param
        load().set_threads(1)
