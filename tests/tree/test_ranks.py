"""A model split over several ranks answers as on one, whatever its layers are; the quick case of each is one of two
ranks. How a tree of several ranks dies is in test_kill_matrix.py; tests/worker/test_formats_over_ranks.py has all
families.
"""

from typing import Any

import pytest
from builders.backends import load_on
from builders.hand_driven import HandDriven
from builders.seeing_model import about, answering_model, noise
from builders.tiny_model import tiny_model
from builders.trained_mixture import FOLDER, LONGEST, questions, share_right
from msgspec.structs import replace

from penstock import LLM, SamplingParams

OPTIONS = {"max_model_len": 256, "kv_cache_memory": "16MiB", "num_threads": 2, "quiet": True}
GREEDY = SamplingParams(temperature=0, max_tokens=24, ignore_eos=True)
PROMPTS = [[number, 5, 7 * number] for number in range(1, 12)]
LONG = pytest.mark.long


def test_two_ranks_give_tokens_draw_hold_to_a_grammar_and_read_a_prompt_as_one_does(split, llm):
    together, alone = (each.generate(PROMPTS, GREEDY, use_tqdm=False) for each in (split, llm))
    assert [output.outputs.token_ids for output in together] == [output.outputs.token_ids for output in alone]
    params = SamplingParams(temperature=1.0, seed=4, max_tokens=30, ignore_eos=True, presence_penalty=0.5)
    first, second = (split.generate([[9, 8]], params, use_tqdm=False)[0].outputs.token_ids for _ in range(2))
    assert first == second
    params = SamplingParams(temperature=1.0, seed=2, max_tokens=40, guided_regex="(the |and |on ){2,4}(king|queen)")
    [together], [alone] = (each.generate([[9, 8]], params, use_tqdm=False) for each in (split, llm))
    assert together.outputs.text == alone.outputs.text and together.outputs.finish_reason == "stop"
    params = SamplingParams(temperature=0, max_tokens=4, prompt_logprobs=3, logprobs=3, ignore_eos=True)
    prompt = [(17 * place) % 290 + 5 for place in range(90)]
    [together], [alone] = (each.generate([prompt], params, use_tqdm=False) for each in (split, llm))
    assert len(together.outputs.logprobs) == 4
    for ours, expected in zip(together.prompt_logprobs[1:], alone.prompt_logprobs[1:], strict=True):
        found = {token: entry.logprob for token, entry in ours.items()}
        assert found == pytest.approx({token: entry.logprob for token, entry in expected.items()}, abs=1e-4)


# Each fills most of the pool that the ranks share.
FILLING = [[(11 * place + 29 * number) % 250 + 1 for place in range(200)] for number in range(3)]


def visit(llm: LLM) -> tuple[list[list[int]], list[int]]:
    """The answers to these prompts one after another, and how much of each was found."""
    params = SamplingParams(temperature=0, max_tokens=8, ignore_eos=True)
    outputs = [llm.generate([prompt], params, use_tqdm=False)[0] for prompt in FILLING]
    return [output.outputs.token_ids for output in outputs], [output.num_cached_tokens for output in outputs]


def test_what_was_evicted_comes_back_to_every_rank_from_cpu_memory_and_many_that_give_way_answer_the_same(llm, split):
    expected, _ = visit(llm)
    before = split.stats()
    assert visit(split) == (expected, [0, 0, 0])
    assert visit(split) == (expected, [192, 192, 192])
    stats = split.stats()
    assert stats.saved_blocks - before.saved_blocks >= 24 and stats.loaded_blocks - before.loaded_blocks >= 24
    params = SamplingParams(temperature=0, max_tokens=40, ignore_eos=True)
    prompts = [[7 * number + 3, *range(5, 40)] for number in range(8)]
    found, expected = (each.generate(prompts, params, use_tqdm=False) for each in (split, llm))
    assert [output.outputs.token_ids for output in found] == [output.outputs.token_ids for output in expected]


# --- layers that keep states, or read what others keep ----------------------------------------------------------------

BEGINNING = [(7 * place) % 290 + 5 for place in range(70)]
BEGUN = [*PROMPTS[:4], *(BEGINNING + [number] * 9 for number in range(3))]
DETAILED = SamplingParams(temperature=0, max_tokens=24, ignore_eos=True, logprobs=2)


def alone(folder) -> list[list[int]]:
    driven = HandDriven(load_on("native", folder))
    rows = [driven.add(prompt) for prompt in BEGUN]
    driven.greedy(rows, DETAILED.max_tokens)
    return [driven.histories[row][len(prompt) :] for row, prompt in zip(rows, BEGUN, strict=True)]


def given(llm: LLM, prompts: list[list[int]]) -> list[tuple[list[int], list[dict]]]:
    outputs = llm.generate(prompts, DETAILED, use_tqdm=False)
    return [(list(output.outputs.token_ids), output.outputs.logprobs) for output in outputs]


@pytest.mark.parametrize(
    "family", ["qwen3_5_text", *(pytest.param(each, marks=LONG) for each in ("qwen3_next", "lfm2", "gemma4_text"))]
)
def test_two_ranks_give_the_tokens_of_one_whatever_their_company_and_what_was_found(tmp_path, family):
    folder = tiny_model(tmp_path, family)
    drafting = {"method": "suffix", "suffix_decoding_min_token_prob": 0.0}
    with LLM(folder, tensor_parallel_size=2, max_num_batched_tokens=37, speculative_config=drafting, **OPTIONS) as llm:
        together = given(llm, BEGUN)
        assert [tokens for tokens, _ in together] == alone(folder)
        one_by_one = [answer for prompt in BEGUN for answer in given(llm, [prompt])]
        assert one_by_one == together
        [found] = llm.generate([BEGUN[-1]], DETAILED, use_tqdm=False)
        assert found.num_cached_tokens >= 64
        assert llm.stats().draft_tokens >= llm.stats().accepted_tokens > 0


@pytest.mark.parametrize("family", ["Qwen3VL", pytest.param("Qwen3_5", marks=LONG)])
def test_two_ranks_say_of_pictures_what_one_says_alone_and_in_a_batch(family, tmp_path):
    folder = answering_model(tmp_path / "model", family)
    sizes = [(64, 96), (96, 32), (128, 128)]
    pictures = [{"type": "image", "image": noise(number, size)} for number, size in enumerate(sizes)]
    conversations = [about(*pictures[:count], text="Why? " * count) for count in range(4)]
    options = {"max_model_len": 1024, "num_threads": 2, "max_num_batched_tokens": 37, "quiet": True}
    found = []
    for ranks in (1, 2):
        with LLM(folder, tensor_parallel_size=ranks, **options) as llm:
            outputs = llm.chat(conversations, GREEDY, use_tqdm=False)
            found.append([(output.error_msg, list(output.outputs.token_ids)) for output in outputs])
            if ranks == 1:
                unseen = SamplingParams(temperature=0, max_tokens=24, ignore_eos=True, cache_salt="alone")
                alone = [llm.chat([each], unseen, use_tqdm=False)[0].outputs.token_ids for each in conversations]
    assert found[0] == found[1] == [(None, list(token_ids)) for token_ids in alone]
    assert len({tuple(tokens) for _, tokens in found[0]}) == len(conversations)


@LONG  # quick, in one process: tests/worker/test_triton_*.py and test_gguf_on_triton.py
@pytest.mark.parametrize("options", [{"swap_space": 0.01}, {"deterministic": True}])
def test_a_worker_with_the_kernels_of_a_gpu_in_tritons_interpreter_gives_the_processors_answers(monkeypatch, options):
    """Captured steps are called again instead of replayed, with their spare rows."""
    small = {"dtype": "float32", "num_gpu_blocks_override": 16, "max_num_seqs": 4, "quiet": True}
    few = SamplingParams(temperature=0, max_tokens=4, ignore_eos=True)
    found = []
    for given_options in ({}, options):
        with LLM("pocket", **small, **given_options) as llm:
            outputs = llm.generate(["Hello!", "What is 17 + 25?", "1, 2, 3"], few, use_tqdm=False)
            found.append([list(output.outputs.token_ids) for output in outputs])
            kernels = llm._session.transport.plan.kernels
        monkeypatch.setenv("TRITON_INTERPRET", "1")
    assert found[0] == found[1] and kernels == "triton, interpreted"


@LONG
def test_ranks_with_the_kernels_of_a_gpu_share_rank_0s_drafts_and_answer_as_without(monkeypatch):
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    small = {"dtype": "float32", "num_gpu_blocks_override": 16, "max_num_seqs": 4, "quiet": True}
    few = SamplingParams(temperature=0, max_tokens=6, ignore_eos=True)
    asked = ["Hello!", "What is 17 + 25?"]
    with LLM("pocket", deterministic=True, tensor_parallel_size=2, **small) as llm:
        plain = [output.outputs for output in llm.generate(asked, few, use_tqdm=False)]
        expecting = [replace(few, prediction=answer.text) for answer in plain]
        found = [output.outputs for output in llm.generate(asked, expecting, use_tqdm=False)]
        stats = llm.stats()
    assert [answer.token_ids for answer in found] == [answer.token_ids for answer in plain]
    assert stats.accepted_tokens > 0


# --- a trained mixture: alone, in a crowd, and over ranks -------------------------------------------------------------


SHORT = SamplingParams(temperature=0, max_tokens=LONGEST, logprobs=1)


def outputs(llm: LLM, asked: list[Any]) -> list[Any]:
    prompts = [question.prompt for question in asked]
    return [output.outputs for output in llm.generate(prompts, SHORT, use_tqdm=False)]


# tests/worker/test_experts.py and test_formats_over_ranks.py have the other formats, and experts cut by width.
@pytest.mark.parametrize(
    "format", [{"dtype": "float32"}, *(pytest.param({"quantization": each}, marks=LONG) for each in ("int8", "int4"))]
)
def test_neither_a_crowd_nor_a_second_rank_changes_an_answer(format):
    asked = questions(per_kind=16)
    with LLM(FOLDER, **OPTIONS, **format) as llm:
        crowd, alone = outputs(llm, asked), [outputs(llm, [question])[0] for question in asked[::4]]
    one = [list(output.token_ids) for output in crowd]
    assert share_right(asked, one) > 0.8
    for lonely, among_others in zip(alone, crowd[::4], strict=True):
        assert list(lonely.token_ids) == list(among_others.token_ids)
        assert lonely.logprobs == among_others.logprobs
    with LLM(FOLDER, tensor_parallel_size=2, enable_expert_parallel=True, **OPTIONS, **format) as llm:
        both = [list(output.token_ids) for output in outputs(llm, asked)]
    # In integers each rank rounds its own share of the activations: what hangs on very little may come out otherwise.
    assert sum(map(list.__eq__, both, one)) >= (1 if "dtype" in format else 0.9) * len(one)
