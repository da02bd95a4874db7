"""What a caller sees of log-probabilities: in samples, streams, cut answers, split models and whole vocabularies."""

import math

import pytest

from penstock import LLM, RequestOutput, SamplingParams

PROMPT = [(17 * place) % 290 + 5 for place in range(90)]


def generate(llm: LLM, prompt: object = PROMPT, **params) -> RequestOutput:
    [output] = llm.generate(prompt, SamplingParams(ignore_eos=True, **params), use_tqdm=False)
    assert output.error_code == 200, output.error_msg
    return output


def test_a_prompt_reads_as_it_was_generated(llm):
    written = generate(llm, temperature=1.1, seed=8, max_tokens=40, logprobs=5)
    text = PROMPT + written.outputs.token_ids
    read = generate(llm, text, max_tokens=1, prompt_logprobs=5)
    assert read.prompt_logprobs[0] is None, "nothing predicts the first token"
    assert read.prompt_logprobs[len(PROMPT) :] == written.outputs.logprobs


def test_the_whole_vocabulary_is_a_distribution(llm):
    output = generate(llm, max_tokens=2, logprobs=-1, prompt_logprobs=-1)
    for position in output.prompt_logprobs[1:] + output.outputs.logprobs:
        assert sorted(position) == list(range(307))
        assert sorted(entry.rank for entry in position.values()) == list(range(1, 308))
        assert sum(math.exp(entry.logprob) for entry in position.values()) == pytest.approx(1, abs=1e-4)


def test_they_are_the_models_own_whatever_is_sampled(llm):
    free = generate(llm, temperature=0, max_tokens=1, logprobs=-1)
    [best] = free.outputs.token_ids
    assert free.outputs.logprobs[0][best].rank == 1
    bent = generate(
        llm, temperature=0.4, top_k=3, seed=1, max_tokens=1, logprobs=-1, bad_words_ids=[[best]], logit_bias={9: 50.0}
    )
    assert bent.outputs.token_ids == [9]
    assert bent.outputs.logprobs == free.outputs.logprobs


def test_a_lone_logprob_is_of_the_chosen_token(llm):
    output = generate(llm, temperature=1.5, seed=4, max_tokens=12, logprobs=0, prompt_logprobs=0)
    assert [list(position) for position in output.outputs.logprobs] == [[token] for token in output.outputs.token_ids]
    assert [list(position) for position in output.prompt_logprobs[1:]] == [[token] for token in PROMPT[1:]]


def test_nothing_predicts_the_only_token_of_a_prompt(llm):
    one, two = (generate(llm, prompt, max_tokens=2, prompt_logprobs=1) for prompt in ([7], [7, 8]))
    assert one.prompt_logprobs == [None]
    assert [each is None for each in two.prompt_logprobs] == [True, False]


def test_each_sample_has_its_own_and_the_prompt_has_them_once(llm):
    params = {"temperature": 1.0, "seed": 6, "max_tokens": 9, "logprobs": 2}
    output = generate(llm, n=3, prompt_logprobs=1, **params)
    assert len(output.prompt_logprobs) == len(PROMPT)
    for answer in output.outputs:
        chosen = [position[token] for token, position in zip(answer.token_ids, answer.logprobs, strict=True)]
        assert answer.cumulative_logprob == pytest.approx(sum(entry.logprob for entry in chosen))
        decode = llm.get_tokenizer().decode
        assert [entry.decoded_token for entry in chosen] == [
            decode([token], skip_special_tokens=False) for token in answer.token_ids
        ]
    assert generate(llm, **params).outputs.logprobs == output.outputs[0].logprobs


def test_a_stream_carries_them_with_its_tokens(llm):
    params = SamplingParams(temperature=1.0, seed=2, max_tokens=20, ignore_eos=True, n=2, logprobs=3, prompt_logprobs=2)
    [whole] = llm.generate([PROMPT], params, use_tqdm=False)
    of_prompt, of_samples = [], [[], []]
    for delta in llm.stream(PROMPT, params):
        of_prompt += delta.prompt_logprobs or []
        for answer in delta.outputs:
            assert len(answer.logprobs or []) == len(answer.token_ids), "each delta holds those of its own tokens"
            of_samples[answer.index] += answer.logprobs or []
    assert of_prompt == whole.prompt_logprobs
    assert of_samples == [answer.logprobs for answer in whole.outputs]


def test_an_answer_cut_by_a_stop_string_has_none_beyond_its_tokens(llm):
    free = generate(llm, "go", temperature=0, max_tokens=40, logprobs=1)
    cut = generate(llm, "go", temperature=0, max_tokens=40, logprobs=1, stop=free.outputs.text[6:9])
    count = len(cut.outputs.token_ids)
    assert count < 40 and cut.outputs.logprobs == free.outputs.logprobs[:count]
