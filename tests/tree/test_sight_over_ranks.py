"""A model that sees in real processes: two ranks, which each encode all pictures, give the tokens of one."""

import pytest
from builders.seeing_model import about, answering_model, noise

from penstock import LLM, SamplingParams

OPTIONS = {"max_model_len": 512, "num_threads": 2, "quiet": True}
GREEDY = SamplingParams(temperature=0, max_tokens=24, ignore_eos=True)
SIZES = [(64, 96), (96, 32), (128, 128)]


@pytest.mark.parametrize("family", ["Qwen3VL", pytest.param("Qwen3_5", marks=pytest.mark.long)])
def test_two_ranks_give_the_tokens_of_one(family, tmp_path):
    folder = answering_model(tmp_path / "model", family)
    pictures = [{"type": "image", "image": noise(number, size)} for number, size in enumerate(SIZES)]
    conversations = [about(*pictures[:count], text="Why? " * count) for count in range(4)]
    found = []
    for ranks in (1, 2):
        with LLM(folder, tensor_parallel_size=ranks, max_num_batched_tokens=37, **OPTIONS) as llm:
            outputs = llm.chat(conversations, GREEDY, use_tqdm=False)
            found.append([(output.error_msg, list(output.outputs.token_ids)) for output in outputs])
    assert found[0] == found[1]
    assert len({tuple(tokens) for _, tokens in found[0]}) == len(conversations)
