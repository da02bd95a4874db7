"""How choices of a kernel are tried; which is fastest, only a GPU can say."""

from builders import interpreted  # noqa: F401  isort: skip  before anything that imports triton

from threading import Barrier

import pytest

from penstock.kernels.triton.tuning import LaunchConfig, compiled_together

CHOICES = [LaunchConfig.of(BLOCK=block) for block in (16, 32)]


class OutOfResources(Exception):
    """As triton names what it raises for a choice that a GPU has no room for."""


def test_choices_are_compiled_side_by_side():
    both = Barrier(2)
    assert compiled_together(CHOICES, lambda choice: both.wait(timeout=10)) == CHOICES


def test_a_choice_that_a_gpu_has_no_room_for_is_left_out():
    def launch(choice: LaunchConfig) -> None:
        if choice["BLOCK"] == 32:
            raise OutOfResources

    assert compiled_together(CHOICES, launch) == CHOICES[:1]


def test_what_is_wrong_with_a_kernel_is_said():
    def launch(choice: LaunchConfig) -> None:
        raise TypeError("of that")

    with pytest.raises(TypeError, match="of that"):
        compiled_together(CHOICES, launch)
