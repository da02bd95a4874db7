"""Models whose layers keep states, or read what others keep, in real processes: two ranks give the tokens of one, and
their bits know neither company nor what was found.
"""

import pytest
from builders.backends import load_on
from builders.hand_driven import HandDriven
from builders.tiny_model import tiny_model

from penstock import LLM, SamplingParams

OPTIONS = {"max_model_len": 256, "kv_cache_memory": "16MiB", "num_threads": 2, "quiet": True}
GREEDY = SamplingParams(temperature=0, max_tokens=24, ignore_eos=True, logprobs=2)
BEGINNING = [(7 * place) % 290 + 5 for place in range(70)]
PROMPTS = [[number, 5, 7 * number] for number in range(1, 5)] + [BEGINNING + [number] * 9 for number in range(3)]


def alone(folder) -> list[list[int]]:
    """The tokens of one rank."""
    driven = HandDriven(load_on("native", folder))
    rows = [driven.add(prompt) for prompt in PROMPTS]
    driven.greedy(rows, GREEDY.max_tokens)
    return [driven.histories[row][len(prompt) :] for row, prompt in zip(rows, PROMPTS, strict=True)]


def given(llm: LLM, prompts: list[list[int]]) -> list[tuple[list[int], list[dict]]]:
    outputs = llm.generate(prompts, GREEDY, use_tqdm=False)
    return [(list(output.outputs.token_ids), output.outputs.logprobs) for output in outputs]


@pytest.mark.parametrize(
    "family",
    ["qwen3_5_text", *(pytest.param(each, marks=pytest.mark.long) for each in ("qwen3_next", "lfm2", "gemma4_text"))],
)
def test_two_ranks_give_the_tokens_of_one_whatever_their_company(tmp_path, family):
    folder = tiny_model(tmp_path, family)
    with LLM(folder, tensor_parallel_size=2, max_num_batched_tokens=37, **OPTIONS) as llm:
        together = given(llm, PROMPTS)
        assert [tokens for tokens, _ in together] == alone(folder)
        one_by_one = [answer for prompt in PROMPTS for answer in given(llm, [prompt])]
        assert one_by_one == together
        [found] = llm.generate([PROMPTS[-1]], GREEDY, use_tqdm=False)
        assert found.num_cached_tokens >= 64


@pytest.mark.long
@pytest.mark.parametrize("family", ["qwen3_5_text", "lfm2"])
def test_any_number_of_threads_gives_the_same_bits(tmp_path, family):
    folder, found = tiny_model(tmp_path, family), []
    for threads in (1, 2, 3):
        with LLM(folder, **OPTIONS | {"num_threads": threads}, swap_space=0.01, num_gpu_blocks_override=20) as llm:
            found.append([given(llm, PROMPTS), given(llm, PROMPTS[::-1])[::-1]])
    assert found[0][0] == found[0][1] and found[0] == found[1] == found[2]
