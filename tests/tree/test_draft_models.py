"""A model that drafts for another one, in real trees; tests/worker/test_drafting_models.py has how it keeps up."""

import pytest
from builders.tiny_eagle import EagleFormula
from builders.tiny_heads import HeadFormula
from builders.tiny_model import tiny_model

from penstock import LLM, SamplingParams
from penstock.protocol.errors import ConfigError

OPTIONS = {"max_model_len": 256, "kv_cache_memory": "16MiB", "num_threads": 2, "quiet": True}
PROMPTS = [[number, 5, 7 * number] for number in range(1, 7)]
PARAMS = SamplingParams(temperature=0.8, seed=3, max_tokens=40, ignore_eos=True, logprobs=1)


def answers(llm: LLM) -> list[tuple[list[int], list[float]]]:
    outputs = (output.outputs for output in llm.generate(PROMPTS, PARAMS, use_tqdm=False))
    return [(each.token_ids, [next(iter(of.values())).logprob for of in each.logprobs]) for each in outputs]


@pytest.mark.parametrize("ranks", [pytest.param(1, marks=pytest.mark.long), 2])
def test_a_draft_model_gives_the_same_answers_in_fewer_steps(model_folder, ranks):
    options = {**OPTIONS, "tensor_parallel_size": ranks, "deterministic": True}
    with LLM(model_folder, **options, speculative_config=False) as llm:
        alone, num_steps = answers(llm), llm.stats().steps
    drafting = {"method": "draft_model", "model": str(model_folder), "num_speculative_tokens": 4}
    with LLM(model_folder, **options, speculative_config=drafting) as llm:
        assert answers(llm) == alone
        stats = llm.stats()
    assert stats.accepted_tokens > 100 and stats.steps < num_steps / 2


def test_a_models_own_heads_give_the_same_answers_in_fewer_steps(tmp_path):
    folder = HeadFormula(tmp_path / "model", "ernie4_5", agreeing=True).folder
    with LLM(folder, **OPTIONS, speculative_config=False) as llm:
        alone, num_steps = answers(llm), llm.stats().steps
    with LLM(folder, **OPTIONS, speculative_config={"method": "mtp", "num_speculative_tokens": 2}) as llm:
        assert answers(llm) == alone
        stats = llm.stats()
    assert stats.accepted_tokens > 50 and stats.steps < num_steps


def test_eagle_heads_give_the_same_answers_in_fewer_steps(tmp_path):
    formula = EagleFormula(tmp_path, "specforge", agreeing=True)
    with LLM(formula.folder, **OPTIONS, speculative_config=False) as llm:
        alone, num_steps = answers(llm), llm.stats().steps
    heads = {"method": "eagle3", "model": str(formula.heads.folder), "num_speculative_tokens": 3}
    with LLM(formula.folder, **OPTIONS, speculative_config=heads) as llm:
        assert answers(llm) == alone
        stats = llm.stats()
    assert stats.accepted_tokens > 20 and stats.steps < num_steps


def test_a_draft_model_with_other_tokens_is_refused_with_both_names(model_folder, tmp_path):
    with pytest.raises(ConfigError, match="draft model .*pocket has other tokens than .*tiny"):
        LLM(model_folder, **OPTIONS, speculative_config={"model": "pocket"})
    with pytest.raises(ConfigError, match="tiny .* has no heads for further tokens"):
        LLM(model_folder, **OPTIONS, speculative_config="mtp")
    hybrid = tiny_model(tmp_path / "hybrid", "qwen3_5_text")
    with pytest.raises(ConfigError, match="draft model hybrid .* keeps states"):
        LLM(model_folder, **OPTIONS, speculative_config={"model": str(hybrid)})
