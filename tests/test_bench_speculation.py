"""The benchmark of speculation: its model says what a prompt's script says, and a draft model as often as it should."""

from pathlib import Path

import pytest
from bench.harness import greedy
from bench.models import SHAPES
from bench.scripted.checkpoint import write_scripted
from bench.scripted.scripts import AGREEMENT, FIRST_ID, scripted, third_of
from bench.scripted.texts import KINDS, Text
from builders.cases import for_each

from penstock import LLM, SamplingParams

DISTANCE = 63
VOCABULARY = SHAPES["small"]["vocab_size"]
THIRD = third_of(VOCABULARY)
ANSWER = [number % 7 * 101 for number in range(40)]
TEXT = Text("edit", "a text", "", "")


@for_each("is_draft", [False, True])
def test_a_model_says_what_the_script_says_and_a_draft_model_errs_at_its_third_part(tmp_path: Path, is_draft):
    write_scripted(tmp_path / "model", "small", is_draft=is_draft, distance=DISTANCE)
    script = scripted(TEXT, ANSWER[:20], ANSWER, VOCABULARY, DISTANCE)
    wrong = [is_draft and token >= 2 * THIRD for token in script.prompt[: len(ANSWER)]]
    expected = [token - each for token, each in zip(script.answer, wrong, strict=True)]
    with LLM(tmp_path / "model", quantization="int4", max_model_len=128, quiet=True) as llm:
        for params in (greedy(len(ANSWER)), SamplingParams(temperature=0.7, max_tokens=len(ANSWER), ignore_eos=True)):
            [output] = llm.generate([script.prompt], params, use_tqdm=False)
            assert list(output.outputs.token_ids) == expected


def test_a_models_own_head_errs_at_the_scripts_third_part(tmp_path: Path):
    write_scripted(tmp_path / "model", "small", drafts_itself=True, distance=DISTANCE)
    answer = [389 * number % 1301 for number in range(40)]  # repeats nothing, so that the head alone drafts
    script = scripted(TEXT, answer[:20], answer, VOCABULARY, DISTANCE)
    drafting = {"method": "mtp", "num_speculative_tokens": 1}
    with LLM(
        tmp_path / "model", quantization="int8", max_model_len=128, quiet=True, speculative_config=drafting
    ) as llm:
        [output] = llm.generate([script.prompt], greedy(len(ANSWER)), use_tqdm=False)
        assert list(output.outputs.token_ids) == script.answer
    wrong = output.metrics.num_draft_tokens - output.metrics.num_accepted_tokens
    third_parts = sum(token >= 2 * THIRD for token in script.prompt[: len(answer)])
    # Not every token has a draft: how often one is asked for depends on what it costs.
    assert wrong <= third_parts and output.metrics.num_accepted_tokens > 0


def test_a_script_has_ids_that_no_text_has_and_a_text_that_is_too_long_is_refused():
    script = scripted(TEXT, [*range(20)], ANSWER, VOCABULARY, DISTANCE)
    assert len(script.prompt) == DISTANCE + 1
    assert min(script.prompt[: len(ANSWER)]) >= THIRD > max(script.prompt[-20:])
    assert [token % THIRD for token in script.prompt[: len(ANSWER)]] == script.answer
    assert script.answer == [FIRST_ID + token for token in ANSWER]
    agreeing = sum(token < 2 * THIRD for token in script.prompt[: len(ANSWER)]) / len(ANSWER)
    assert abs(agreeing - AGREEMENT) < 0.2
    with pytest.raises(ValueError, match="5 tokens too long"):
        scripted(TEXT, [*range(29)], ANSWER, VOCABULARY, DISTANCE)


def test_edits_keep_most_of_their_text_and_every_kind_has_texts():
    for kind, texts in KINDS.items():
        found = list(texts())
        assert len(found) >= 2, kind
        assert {text.kind for text in found} == {kind}
    for text in KINDS["edit"]():
        words = text.answer.split()
        assert 0.8 < sum(word in text.prompt.split() for word in words) / len(words) < 1
