"""The arguments of native decode steps; what they do is held against the runner in tests/worker."""

import ctypes

import pytest

from penstock.kernels.cpu import decode
from penstock.kernels.cpu.library import available_variants, load

ARGUMENTS = {
    "slots": decode.Slots,
    "begin_decode": decode.BeginDecode,
    "choose_tokens": decode.ChooseTokens,
    "keep_tokens": decode.KeepTokens,
}


@pytest.mark.skipif(not available_variants(), reason="no native kernels here")
@pytest.mark.parametrize("name", ARGUMENTS)
def test_the_arguments_have_the_size_that_the_compiler_gave_them(name):
    assert load().size_of(name) == ctypes.sizeof(ARGUMENTS[name])
