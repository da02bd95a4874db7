"""A model whose weights are cut for two ranks: a tree of two answers with the bits of the whole conversion."""

import pytest
from builders.tiny_model import tiny_model

from penstock import LLM, ConfigError, SamplingParams
from penstock.protocol.conversion import Conversion
from penstock.worker.convert.convert import convert

OPTIONS = {"max_model_len": 256, "kv_cache_memory": "16MiB", "num_threads": 2, "quiet": True}


@pytest.fixture(scope="module")
def conversions(tmp_path_factory):
    """The same model, converted whole and cut."""
    folder = tmp_path_factory.mktemp("conversions")
    source = str(tiny_model(folder / "source", "qwen3", dtype="bfloat16", intermediate_size=128))
    for name in ("whole", "cut"):
        asked = Conversion(source, source, str(folder / name), "int4", 32, tensor_parallel_size=2, is_cut=name == "cut")
        convert(asked, lambda said: None)
    return folder / "whole", folder / "cut"


@pytest.mark.long  # in one process, tests/worker/test_convert_per_rank.py holds every rank to these bits
def test_a_tree_on_cut_weights_answers_with_the_bits_of_the_whole(conversions):
    params = SamplingParams(temperature=0, max_tokens=16, ignore_eos=True, logprobs=4)
    prompts = [[number, 5, 7 * number] for number in range(1, 6)]
    found = []
    for folder in conversions:
        with LLM(folder, tensor_parallel_size=2, **OPTIONS) as llm:
            outputs = llm.generate(prompts, params, use_tqdm=False)
        found.append([(each.outputs.token_ids, each.outputs.logprobs) for each in outputs])
    assert found[0] == found[1]
    assert found[0][0][1]


def test_a_tree_of_another_size_is_refused_in_the_callers_line(conversions):
    with pytest.raises(ConfigError, match=r"cut for 2 ranks.*Use tensor_parallel_size=2"):
        LLM(conversions[1], **OPTIONS)
