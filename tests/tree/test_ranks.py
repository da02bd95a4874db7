"""A model split over several ranks answers as on one, whatever its layers are; the quick case of each is one of two
ranks. How a tree of several ranks dies is in test_kill_matrix.py.
"""

import pytest
from builders.backends import load_on
from builders.hand_driven import HandDriven
from builders.quantized_model import Form, quantized_model
from builders.tiny_model import tiny_model

from penstock import LLM, ConfigError, SamplingParams
from penstock.protocol.conversion import Conversion
from penstock.worker.convert.convert import convert

OPTIONS = {"max_model_len": 256, "kv_cache_memory": "16MiB", "num_threads": 2, "quiet": True}
GREEDY = SamplingParams(temperature=0, max_tokens=24, ignore_eos=True)
PROMPTS = [[number, 5, 7 * number] for number in range(1, 12)]
LONG = pytest.mark.long


def answers(folder, **options) -> list[list[int]]:
    with LLM(folder, **OPTIONS, **options) as llm:
        return [list(output.outputs.token_ids) for output in llm.generate(PROMPTS, GREEDY, use_tqdm=False)]


def test_two_ranks_give_the_tokens_of_one(split, llm):
    together, alone = (each.generate(PROMPTS, GREEDY, use_tqdm=False) for each in (split, llm))
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


# Each fills most of the pool that the ranks share.
FILLING = [[(11 * place + 29 * number) % 250 + 1 for place in range(200)] for number in range(3)]


def visit(llm: LLM) -> tuple[list[list[int]], list[int]]:
    """The answers to these prompts one after another, and how much of each was found."""
    params = SamplingParams(temperature=0, max_tokens=8, ignore_eos=True)
    outputs = [llm.generate([prompt], params, use_tqdm=False)[0] for prompt in FILLING]
    return [output.outputs.token_ids for output in outputs], [output.num_cached_tokens for output in outputs]


def test_a_prompt_that_was_evicted_comes_back_from_cpu_memory_to_every_rank_and_is_answered_the_same(llm, split):
    expected, _ = visit(llm)
    before = split.stats()
    assert visit(split) == (expected, [0, 0, 0])
    assert visit(split) == (expected, [192, 192, 192])
    stats = split.stats()
    assert stats.saved_blocks - before.saved_blocks >= 24 and stats.loaded_blocks - before.loaded_blocks >= 24


def test_many_at_once_give_way_to_one_another_and_answer_the_same(llm, split):
    params = SamplingParams(temperature=0, max_tokens=40, ignore_eos=True)
    prompts = [[7 * number + 3, *range(5, 40)] for number in range(8)]
    found, expected = (each.generate(prompts, params, use_tqdm=False) for each in (split, llm))
    assert [output.outputs.token_ids for output in found] == [output.outputs.token_ids for output in expected]


@LONG
def test_one_rank_finds_in_cpu_memory_what_it_was_given(model_folder, llm):
    small = {"deterministic": True, "max_model_len": 256, "block_size": 16, "num_gpu_blocks_override": 16}
    with LLM(model_folder, swap_space=0.01, quiet=True, **small) as one:
        assert [visit(one)[1], visit(one)] == [[0, 0, 0], (visit(llm)[0], [192, 192, 192])]


@LONG  # as tests/worker has it of one process; three import torch here
def test_a_number_of_ranks_that_does_not_divide_the_heads_is_refused_with_those_that_do(model_folder):
    with pytest.raises(ConfigError, match="tensor_parallel_size"):
        LLM(model_folder, tensor_parallel_size=3, **OPTIONS)


# --- weights that were cut for them -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def conversions(tmp_path_factory):
    """The same model, converted whole and cut."""
    folder = tmp_path_factory.mktemp("conversions")
    source = str(tiny_model(folder / "source", "qwen3", dtype="bfloat16", intermediate_size=128))
    for name in ("whole", "cut"):
        asked = Conversion(source, source, str(folder / name), "int4", 32, tensor_parallel_size=2, is_cut=name == "cut")
        convert(asked, lambda said: None)
    return folder / "whole", folder / "cut"


@LONG  # in one process, tests/worker/test_convert_per_rank.py holds every rank to these bits
def test_a_tree_on_cut_weights_answers_with_the_bits_of_the_whole_and_one_of_another_size_is_refused(conversions):
    params = SamplingParams(temperature=0, max_tokens=16, ignore_eos=True, logprobs=4)
    found = []
    for folder in conversions:
        with LLM(folder, tensor_parallel_size=2, **OPTIONS) as llm:
            outputs = llm.generate(PROMPTS[:5], params, use_tqdm=False)
        found.append([(each.outputs.token_ids, each.outputs.logprobs) for each in outputs])
    assert found[0] == found[1]
    assert found[0][0][1]
    with pytest.raises(ConfigError, match=r"cut for 2 ranks.*Use tensor_parallel_size=2"):
        LLM(conversions[1], **OPTIONS)


FORMS = [
    Form("gptq", is_ordered=True),
    Form("gptq", bits=8, is_symmetric=False, is_ordered=True),
    Form("pack-quantized", is_ordered=True),
]


@LONG
@pytest.mark.parametrize("form", FORMS, ids=str)
def test_inputs_in_the_order_of_activations_are_divided_among_ranks(tmp_path, form):
    model, twin = quantized_model(tmp_path, form)
    assert answers(model, tensor_parallel_size=2) == answers(model) == answers(twin)


# --- experts: tests/worker/test_models_split.py has them without a tree, test_trained_experts.py a quick tree ---------


@LONG
@pytest.mark.parametrize("is_by_expert", [True, False])
@pytest.mark.parametrize("family", ["qwen2_moe", "olmoe"])
def test_two_ranks_share_experts_and_give_the_tokens_of_one(tmp_path, family, is_by_expert):
    folder = tiny_model(tmp_path, family, num_hidden_layers=2)
    assert answers(folder, tensor_parallel_size=2, enable_expert_parallel=is_by_expert) == answers(folder)


# What ranks can't share evenly, and what a config may say of experts in the extreme.
_HEADS = {"hidden_size": 48, "num_attention_heads": 6, "num_key_value_heads": 6, "head_dim": 16}
ODD = {
    "7 experts, all of them": ("qwen3_moe", {"num_experts": 7, "num_experts_per_tok": 7}),
    "3 experts, a width of 4": ("qwen3_moe", {"num_experts": 3, "num_experts_per_tok": 1, "moe_intermediate_size": 4}),
    "dense layers between, tied": (
        "qwen3_moe",
        {"decoder_sparse_step": 2, "mlp_only_layers": [3], "num_hidden_layers": 6, "tie_word_embeddings": True,
         "moe_intermediate_size": 68},
    ),
    "a shared width of 20": ("qwen2_moe", {"shared_expert_intermediate_size": 20, "moe_intermediate_size": 28}),
    "by interval": ("ernie4_5_moe", {"moe_layer_interval": 2, "num_hidden_layers": 5, "moe_num_experts": 7}),
}  # fmt: skip


@LONG
@pytest.mark.parametrize("name", ODD)
def test_three_ranks_give_the_tokens_of_one(tmp_path, name):
    family, given = ODD[name]
    folder = tiny_model(tmp_path, family, **_HEADS | given)
    alone = answers(folder)
    assert answers(folder, tensor_parallel_size=3) == alone
    assert answers(folder, tensor_parallel_size=3, enable_expert_parallel=True) == alone


@LONG
def test_one_expert_is_split_by_width(tmp_path):
    folder = tiny_model(tmp_path, "qwen3_moe", num_experts=1, num_experts_per_tok=1)
    assert answers(folder, tensor_parallel_size=2) == answers(folder)


# --- layers that keep states, or read what others keep ----------------------------------------------------------------

BEGINNING = [(7 * place) % 290 + 5 for place in range(70)]
BEGUN = [*PROMPTS[:4], *(BEGINNING + [number] * 9 for number in range(3))]
DETAILED = SamplingParams(temperature=0, max_tokens=24, ignore_eos=True, logprobs=2)


def alone(folder) -> list[list[int]]:
    """The tokens of one rank."""
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
    with LLM(folder, tensor_parallel_size=2, max_num_batched_tokens=37, **OPTIONS) as llm:
        together = given(llm, BEGUN)
        assert [tokens for tokens, _ in together] == alone(folder)
        one_by_one = [answer for prompt in BEGUN for answer in given(llm, [prompt])]
        assert one_by_one == together
        [found] = llm.generate([BEGUN[-1]], DETAILED, use_tqdm=False)
        assert found.num_cached_tokens >= 64


@LONG
@pytest.mark.parametrize("family", ["qwen3_5_text", "lfm2"])
def test_any_number_of_threads_gives_the_same_bits(tmp_path, family):
    folder, found = tiny_model(tmp_path, family), []
    for threads in (1, 2, 3):
        with LLM(folder, **OPTIONS | {"num_threads": threads}, swap_space=0.01, num_gpu_blocks_override=20) as llm:
            found.append([given(llm, BEGUN), given(llm, BEGUN[::-1])[::-1]])
    assert found[0][0] == found[0][1] and found[0] == found[1] == found[2]
