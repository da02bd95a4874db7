"""`deterministic="portable"`: every variant gives the recorded bits, and what cannot is refused."""

import json

import pytest
from builders.cases import for_each
from builders.native_variants import available_variants, forced, needs_variant, quick_or_long
from builders.portable_answers import RECORDED, digests_of, made_in
from builders.tiny_model import tiny_model

from penstock.kernels.cpu.library import load
from penstock.protocol.errors import ConfigError
from penstock.worker.backends.backend import BackendOptions
from penstock.worker.start.load import load_model

PORTABLE = BackendOptions(portable=True)


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory):
    return made_in(tmp_path_factory.mktemp("portable"))


@needs_variant
@pytest.mark.parametrize("variant", quick_or_long(available_variants()))
def test_every_variant_gives_the_answers_that_are_recorded_for_all_machines(variant, checkpoints):
    with forced(variant):
        found = json.loads(digests_of(checkpoints))
    # After a change that was meant to change bits: python tests/builders/portable_answers.py --write
    assert found == json.loads(RECORDED.read_text())


@needs_variant
def test_keys_and_values_are_float32_unless_an_integer_format_is_asked_for(tmp_path):
    model = load_model(tiny_model(tmp_path, "qwen3", dtype="bfloat16"), options=PORTABLE)
    assert model.backend.kernels == f"native, {load().variant}, portable"
    assert [model.kv_kind(wanted) for wanted in ("auto", "fp32", "int8", "uint4")] == ["fp32", "fp32", "int8", "uint4"]


@needs_variant
@for_each("wanted", ["bf16", "fp16"])
def test_sixteen_bit_keys_and_values_are_refused_with_what_to_use(wanted, tmp_path):
    model = load_model(tiny_model(tmp_path, "qwen3", dtype="bfloat16"), options=PORTABLE)
    with pytest.raises(ConfigError, match=rf"kv_cache_dtype='{wanted}' is not for .*portable.*Use fp32, int8 or uint4"):
        model.kv_kind(wanted)


def test_without_native_kernels_it_is_refused_with_the_reason(tmp_path):
    with forced("none"), pytest.raises(ConfigError, match=r"portable' needs the native kernels.*unset it to use them"):
        load_model(tiny_model(tmp_path, "qwen3"), options=PORTABLE)
