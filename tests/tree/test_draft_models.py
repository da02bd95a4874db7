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


def accepted(llm: LLM) -> int:
    """How many drafts were; without them, an answer's 40 tokens take as many steps."""
    stats = llm.stats()
    assert stats.steps < 40
    return stats.accepted_tokens


def test_a_draft_model_gives_the_same_answers_over_two_ranks_in_fewer_steps(model_folder, split):
    drafting = {"method": "draft_model", "model": str(model_folder), "num_speculative_tokens": 4}
    options = {**OPTIONS, "tensor_parallel_size": 2, "deterministic": True, "speculative_config": drafting}
    with LLM(model_folder, **options) as llm:
        assert answers(llm) == answers(split)
        assert accepted(llm) > 100


def test_heads_draft_for_their_model(tmp_path):
    """tests/worker/test_drafting_models.py has that its answers stay the same."""
    own = HeadFormula(tmp_path / "own", "ernie4_5", agreeing=True)
    eagle = EagleFormula(tmp_path / "eagle", "specforge", agreeing=True)
    for folder, drafting, least in (
        (own.folder, {"method": "mtp", "num_speculative_tokens": 2}, 50),
        (eagle.folder, {"method": "eagle3", "model": str(eagle.heads.folder), "num_speculative_tokens": 3}, 20),
    ):
        with LLM(folder, **OPTIONS, speculative_config=drafting) as llm:
            answers(llm)
            assert accepted(llm) > least


def test_a_draft_model_with_other_tokens_is_refused_with_both_names(model_folder, tmp_path):
    with pytest.raises(ConfigError, match="draft model .*pocket has other tokens than .*tiny"):
        LLM(model_folder, **OPTIONS, speculative_config={"model": "pocket"})
    with pytest.raises(ConfigError, match="tiny .* has no heads for further tokens"):
        LLM(model_folder, **OPTIONS, speculative_config="mtp")
    hybrid = tiny_model(tmp_path / "hybrid", "qwen3_5_text")
    with pytest.raises(ConfigError, match="draft model hybrid .* keeps states"):
        LLM(model_folder, **OPTIONS, speculative_config={"model": str(hybrid)})
