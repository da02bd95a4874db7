"""The device of these tests: a card with `-m gpu`, and with `-m long` the CPU, which proves the tests themselves.

Kernels' files are imported inside of tests only: where they have been imported, they can no longer be interpreted.
"""

import pytest
from builders.on_card import usable

DEVICES = [pytest.param("cuda", marks=pytest.mark.gpu), pytest.param("cpu", marks=pytest.mark.long)]


@pytest.fixture(scope="module", params=DEVICES)
def device(request) -> str:
    return usable(request.param)


@pytest.fixture(scope="module", params=[DEVICES[0]])
def card(request) -> str:
    """For what a CPU has not."""
    return usable(request.param)
