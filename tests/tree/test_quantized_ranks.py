"""Checkpoints in the order of activations on several ranks: the tokens of one rank, and of the twin in floats."""

import pytest
from builders.quantized_model import Form, quantized_model

from penstock import LLM, SamplingParams

FORMS = [
    Form("gptq", is_ordered=True),
    Form("gptq", bits=8, is_symmetric=False, is_ordered=True),
    Form("pack-quantized", is_ordered=True),
]


def answers(folder, size: int) -> list[list[int]]:
    params = SamplingParams(temperature=0, max_tokens=12, ignore_eos=True)
    with LLM(folder, tensor_parallel_size=size, max_model_len=128, kv_cache_memory="16MiB", quiet=True) as llm:
        return [output.outputs.token_ids for output in llm.generate([[5, 6, 7, 8], [9, 10, 11]], params)]


@pytest.mark.long
@pytest.mark.parametrize("form", FORMS, ids=str)
def test_inputs_in_the_order_of_activations_are_divided_among_ranks(tmp_path, form):
    model, twin = quantized_model(tmp_path, form)
    assert answers(model, 2) == answers(model, 1) == answers(twin, 1)
