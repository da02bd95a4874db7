"""`swap_space` through the real processes: prompts that a small pool has evicted come back from CPU memory."""

import pytest

from penstock import LLM, SamplingParams

GREEDY = SamplingParams(temperature=0, max_tokens=8, ignore_eos=True)
# Each fills most of the pool below.
PROMPTS = [[(11 * place + 29 * number) % 250 + 1 for place in range(200)] for number in range(3)]
SMALL = {"deterministic": True, "max_model_len": 256, "block_size": 16, "num_gpu_blocks_override": 16}


def visit(llm: LLM) -> tuple[list[list[int]], list[int]]:
    """The answers to the prompts one after another, and how much of each was found."""
    outputs = [llm.generate([prompt], GREEDY, use_tqdm=False)[0] for prompt in PROMPTS]
    return [output.outputs.token_ids for output in outputs], [output.num_cached_tokens for output in outputs]


@pytest.fixture(scope="module")
def small(model_folder):
    with LLM(model_folder, swap_space=0.01, quiet=True, **SMALL) as llm:
        yield llm


def test_a_prompt_that_was_evicted_is_found_again_and_answered_the_same(llm, small):
    expected, _ = visit(llm)
    assert visit(small) == (expected, [0, 0, 0])
    assert visit(small) == (expected, [192, 192, 192])
    stats = small.stats()
    assert stats.saved_blocks >= 24 and stats.loaded_blocks >= 24


def test_many_at_once_give_way_to_one_another_and_answer_the_same(llm, small):
    params = SamplingParams(temperature=0, max_tokens=40, ignore_eos=True)
    prompts = [[7 * number + 3, *range(5, 40)] for number in range(8)]
    found, expected = (each.generate(prompts, params, use_tqdm=False) for each in (small, llm))
    assert [output.outputs.token_ids for output in found] == [output.outputs.token_ids for output in expected]


def test_two_ranks_move_their_parts_of_a_block_alike(model_folder):
    with LLM(model_folder, swap_space=0.01, tensor_parallel_size=2, num_threads=2, quiet=True, **SMALL) as llm:
        first, _ = visit(llm)
        assert visit(llm) == (first, [192, 192, 192])
