"""`LLM.beam_search` through a real tree: transformers' answers, whatever else the tree is doing."""

import random

import pytest
from builders.cases import for_each

from penstock import BeamSearchParams, RequestError, RequestOutput, SamplingParams

LENGTH = 12
SEARCHES = [
    {}, {"early_stopping": True}, {"early_stopping": "never", "length_penalty": 2.0}, {"length_penalty": 0.0},
    {"length_penalty": -1.0, "early_stopping": True}, {"ignore_eos": True},
]  # fmt: skip
draws = random.Random(5)
PROMPTS = [[draws.randrange(5, 300) for _ in range(draws.randrange(1, 60))] for _ in range(60)]


def found(output: RequestOutput) -> list[tuple[list[int], float]]:
    return [(beam.token_ids, beam.score) for beam in output.outputs]


@pytest.fixture(scope="module")
def reference(model_folder):
    import torch
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(model_folder, dtype=torch.float32).eval()

    def search(prompt: list[int], width: int, *, ignore_eos: bool = False, **options) -> list[tuple[list[int], float]]:
        text = torch.tensor([prompt])
        settled = {"length_penalty": 1.0, "early_stopping": False, **options}
        with torch.inference_mode():
            made = model.generate(
                text, attention_mask=torch.ones_like(text), num_beams=width, num_return_sequences=width,
                max_new_tokens=LENGTH, do_sample=False, eos_token_id=None if ignore_eos else [2, 4], pad_token_id=3,
                return_dict_in_generate=True, output_scores=True, **settled,
            )  # fmt: skip
        ends = (len(prompt) + (made.beam_indices >= 0).sum(-1)).tolist()
        answers = [sequence[len(prompt) : end].tolist() for sequence, end in zip(made.sequences, ends, strict=True)]
        return list(zip(answers, made.sequences_scores.tolist(), strict=True))

    return search


@for_each("number, options", enumerate(SEARCHES))
def test_beams_are_those_of_transformers(llm, reference, number, options):
    width, prompts = 3 + number % 3, PROMPTS[3 * number : 3 * number + 3]
    outputs = llm.beam_search(prompts, BeamSearchParams(width, LENGTH, **options), use_tqdm=False)
    for prompt, output in zip(prompts, outputs, strict=True):
        answers, scores = zip(*reference(prompt, width, **options), strict=True)
        assert [beam.token_ids for beam in output.outputs] == [*answers], prompt
        assert [beam.score for beam in output.outputs] == pytest.approx([*scores], rel=1e-6, abs=1e-4)


def test_a_beam_says_how_it_ended_what_it_weighs_and_its_text(llm):
    params = BeamSearchParams(beam_width=4, max_tokens=LENGTH, length_penalty=0.7, temperature=0.5)
    outputs = [beam for output in llm.beam_search(PROMPTS, params, use_tqdm=False) for beam in output.outputs]
    assert {beam.finish_reason for beam in outputs} == {"stop", "length"}
    for beam in outputs:
        assert (beam.token_ids[-1] in (2, 4)) == (beam.finish_reason == "stop")
        assert (len(beam.token_ids) == LENGTH) or beam.finish_reason == "stop"
        assert beam.score == pytest.approx(beam.cumulative_logprob / 0.5 / len(beam.token_ids) ** 0.7)
    [output] = llm.beam_search("the sand", BeamSearchParams(beam_width=2, max_tokens=6), use_tqdm=False)
    assert output.finished and output.error_code == 200 and len(output.outputs) == 2
    tokenizer = llm.get_tokenizer()
    for number, beam in enumerate(output.outputs):
        ends = beam.finish_reason == "stop"
        assert (beam.index, beam.text) == (number, tokenizer.decode(beam.token_ids[: -1 if ends else None]))
    assert output.metrics.num_output_tokens == sum(len(beam.token_ids) for beam in output.outputs)


def test_neither_a_prefix_that_is_cached_nor_a_second_rank_changes_a_beam(llm, split):
    params = BeamSearchParams(beam_width=3, max_tokens=LENGTH)
    prompt = [7 * place % 290 + 5 for place in range(100)]
    [first] = llm.beam_search([prompt], params, use_tqdm=False)
    [again] = llm.beam_search([prompt], params, use_tqdm=False)
    assert (first.num_cached_tokens, again.num_cached_tokens) == (0, 96)
    assert found(again) == found(first)
    alone, shared = ([[beam.token_ids for beam in output.outputs] for output in each.beam_search(PROMPTS[:6], params)]
                     for each in (llm, split))  # fmt: skip
    assert split.stats().free_blocks == split.stats().blocks and alone == shared


def test_one_bad_prompt_fails_alone_and_what_is_no_search_raises_and_names_the_field(llm):
    good, bad = llm.beam_search([PROMPTS[0], [10**6]], BeamSearchParams(2, 4), use_tqdm=False)
    assert (good.error_code, bad.error_code) == (200, 400)
    usual = {"beam_width": 2}
    wrong = [("beam_width", 0), ("beam_width", 129), ("max_tokens", 0), ("length_penalty", float("nan"))]
    for name, value in (*wrong, ("early_stopping", "often"), ("temperature", -1)):
        with pytest.raises(RequestError, match=f"{name}={value!r}"):
            BeamSearchParams(**usual | {name: value})
    with pytest.raises(RequestError, match="BeamSearchParams, not SamplingParams"):
        llm.beam_search(["x"], SamplingParams())
