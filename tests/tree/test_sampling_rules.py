"""Every sampling parameter through a real tree: each token is the one that a few lines of numpy choose from the logits
that transformers computes for the same text."""

import math

import numpy
import pytest
import torch
from builders.cases import for_each
from builders.sampling_rules import CASES, next_token

from penstock import LLM, RequestOutput, SamplingParams
from penstock.kernels.reference.sampling.uniform import uniform

LENGTH = 20
SEED = 11
PROMPT = [31, 95, 31, 100, 7, 159, 251, 31]
EARLY_STOP = {"window_size": 3, "threshold": 0.06}


def params(name: str, **options) -> SamplingParams:
    return SamplingParams(**{"max_tokens": LENGTH, "seed": SEED, "eos_token_id": [], "n": 2, **CASES[name], **options})


@pytest.fixture(scope="module")
def logits_of(model_folder):
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(model_folder, dtype=torch.float32).eval()

    def logits_of(tokens: list[int]) -> numpy.ndarray:
        with torch.inference_mode():
            return model(torch.tensor([tokens])).logits[0].float().numpy()

    return logits_of


@pytest.fixture(scope="module")
def outputs(llm) -> dict[str, RequestOutput]:
    answered = llm.generate([PROMPT] * len(CASES), [params(name) for name in CASES], use_tqdm=False)
    return dict(zip(CASES, answered, strict=True))


@for_each("name", CASES)
def test_every_token_is_the_one_that_the_rule_chooses(name, outputs, logits_of):
    for answer in outputs[name].outputs:
        tokens = PROMPT + answer.token_ids
        logits = logits_of(tokens)
        for position in range(len(PROMPT), len(tokens)):
            drawn = uniform(*torch.tensor([[SEED], [answer.index], [position]])).item()
            expected = next_token(logits[position - 1], tokens[:position], len(PROMPT), params(name), drawn)
            assert tokens[position] == expected, f"token {position - len(PROMPT)} of sample {answer.index}"
        ends = params(name).eos_token_id
        assert len(answer.token_ids) == LENGTH or answer.token_ids[-1] in ends
        assert not set(answer.token_ids[:-1]) & set(ends), "an end was passed over"


def test_an_answer_without_doubt_is_ended_and_says_so(llm):
    """Against the log-probabilities that the whole answer reports."""
    settled = {"temperature": 0, "max_tokens": 60, "ignore_eos": True, "logprobs": 0}
    prompts = [[number, 40, 50 + number] for number in range(10, 20)]
    free, stopped = (
        llm.generate(prompts, SamplingParams(**settled, early_stop=early_stop), use_tqdm=False)
        for early_stop in (None, EARLY_STOP)
    )
    lengths = []
    for whole, cut in zip((each.outputs for each in free), (each.outputs for each in stopped), strict=True):
        entries = zip(whole.logprobs, whole.token_ids, strict=True)
        likely = [numpy.exp(entry[token].logprob) >= 0.06 for entry, token in entries]
        ends = [end for end in range(3, 61) if all(likely[end - 3 : end])]
        lengths.append(min([*ends, 60]))
        assert cut.token_ids == whole.token_ids[: lengths[-1]] and len(cut.logprobs) == lengths[-1]
        assert (cut.finish_reason, cut.stop_reason) == (("stop", "repetition") if ends else ("length", None))
    assert min(lengths) < 60 < 10 * max(lengths), "some are ended, at different lengths"


# --- log-probabilities ------------------------------------------------------------------------------------------------

LONG_PROMPT = [(17 * place) % 290 + 5 for place in range(90)]


def generate(llm: LLM, prompt: object = LONG_PROMPT, **params) -> RequestOutput:
    [output] = llm.generate(prompt, SamplingParams(ignore_eos=True, **params), use_tqdm=False)
    assert output.error_code == 200, output.error_msg
    return output


def test_log_probabilities_are_of_the_models_own_distribution_and_a_lone_one_is_of_the_chosen_token(llm):
    output = generate(llm, max_tokens=2, logprobs=-1, prompt_logprobs=-1)
    for position in output.prompt_logprobs[1:] + output.outputs.logprobs:
        assert sorted(position) == list(range(307))
        assert sum(math.exp(entry.logprob) for entry in position.values()) == pytest.approx(1, abs=1e-4)
    free = generate(llm, temperature=0, max_tokens=1, logprobs=-1).outputs
    [best] = free.token_ids
    bending = {"temperature": 0.4, "top_k": 3, "seed": 1, "bad_words_ids": [[best]], "logit_bias": {9: 50.0}}
    bent = generate(llm, max_tokens=1, logprobs=-1, **bending).outputs
    assert (bent.token_ids, bent.logprobs) == ([9], free.logprobs)
    output = generate(llm, temperature=1.5, seed=4, max_tokens=12, logprobs=0, prompt_logprobs=0)
    assert [list(position) for position in output.outputs.logprobs] == [[token] for token in output.outputs.token_ids]
    assert [list(position) for position in output.prompt_logprobs[1:]] == [[token] for token in LONG_PROMPT[1:]]
    one, two = (generate(llm, prompt, max_tokens=2, prompt_logprobs=1) for prompt in ([7], [7, 8]))
    assert one.prompt_logprobs == [None]
    assert [each is None for each in two.prompt_logprobs] == [True, False]
