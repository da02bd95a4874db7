"""A model split over two ranks answers as on one, and dies as one."""

import os
import signal

import pytest
from builders.watching import assert_gone, tree_processes

from penstock import LLM, ConfigError, EngineDeadError, SamplingParams

OPTIONS = {"max_model_len": 256, "kv_cache_memory": "16MiB", "num_threads": 2, "quiet": True}


def test_two_ranks_give_the_tokens_of_one(split, llm):
    params = SamplingParams(temperature=0, max_tokens=24, ignore_eos=True)
    prompts = [[number, 5, 7 * number] for number in range(1, 12)]
    together, alone = (each.generate(prompts, params, use_tqdm=False) for each in (split, llm))
    assert [output.outputs.token_ids for output in together] == [output.outputs.token_ids for output in alone]


def test_ranks_stay_in_step_when_tokens_are_drawn(split):
    params = SamplingParams(temperature=1.0, seed=4, max_tokens=30, ignore_eos=True, presence_penalty=0.5)
    first, second = (split.generate([[9, 8]], params, use_tqdm=False)[0].outputs.token_ids for _ in range(2))
    assert first == second


def test_two_ranks_hold_to_a_grammar_as_one_does(split, llm):
    params = SamplingParams(temperature=1.0, seed=2, max_tokens=40, guided_regex="(the |and |on ){2,4}(king|queen)")
    [together], [alone] = (each.generate([[9, 8]], params, use_tqdm=False) for each in (split, llm))
    assert together.outputs.text == alone.outputs.text and together.outputs.finish_reason == "stop"


def test_two_ranks_read_a_prompt_as_one_does(split, llm):
    params = SamplingParams(temperature=0, max_tokens=4, prompt_logprobs=3, logprobs=3, ignore_eos=True)
    prompt = [(17 * place) % 290 + 5 for place in range(90)]
    [together], [alone] = (each.generate([prompt], params, use_tqdm=False) for each in (split, llm))
    assert len(together.outputs.logprobs) == 4
    for ours, expected in zip(together.prompt_logprobs[1:], alone.prompt_logprobs[1:], strict=True):
        found = {token: entry.logprob for token, entry in ours.items()}
        assert found == pytest.approx({token: entry.logprob for token, entry in expected.items()}, abs=1e-4)


@pytest.mark.long  # as tests/worker has it of one process; three import torch here
def test_a_number_of_ranks_that_does_not_divide_the_heads_is_refused_with_those_that_do(model_folder):
    with pytest.raises(ConfigError, match="tensor_parallel_size"):
        LLM(model_folder, tensor_parallel_size=3, **OPTIONS)


def test_the_death_of_one_rank_ends_the_tree_and_names_it(model_folder):
    llm = LLM(model_folder, tensor_parallel_size=2, **OPTIONS)
    pids = tree_processes(llm)
    with pytest.raises(EngineDeadError, match=r"worker 1.*SIGKILL"):
        for _ in llm.stream([1, 2, 3], SamplingParams(max_tokens=250, ignore_eos=True)):
            os.kill(pids["worker 1"], signal.SIGKILL)
    assert_gone(pids.values())
