"""Every sampling parameter through a real tree: each token is the one that a few lines of numpy choose from the logits
that transformers computes for the same text; and with a seed it is the same alone and in company."""

import random

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
    """All cases in one batch."""
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


def test_with_a_seed_the_answer_is_the_same_alone_and_in_company(llm, outputs):
    for name, output in outputs.items():
        [alone] = llm.generate([PROMPT], params(name), use_tqdm=False)
        assert [one.token_ids for one in alone.outputs] == [one.token_ids for one in output.outputs], name


def test_an_answer_without_doubt_is_ended_and_says_so(llm):
    """Against the log-probabilities that the whole answer reports."""
    settled = {"temperature": 0, "max_tokens": 60, "ignore_eos": True, "logprobs": 0}
    prompts = [[number, 40, 50 + number] for number in range(10, 20)]
    free = llm.generate(prompts, SamplingParams(**settled), use_tqdm=False)
    stopped = llm.generate(prompts, SamplingParams(**settled, early_stop=EARLY_STOP), use_tqdm=False)
    lengths = []
    for whole, cut in zip(free, stopped, strict=True):
        likely = [numpy.exp(entry[token].logprob) >= 0.06 for entry, token in pairs(whole)]
        ends = [end for end in range(3, 61) if all(likely[end - 3 : end])]
        length = min([*ends, 60])
        lengths.append(length)
        assert cut.outputs.token_ids == whole.outputs.token_ids[:length]
        expected = ("stop", "repetition") if ends else ("length", None)
        assert (cut.outputs.finish_reason, cut.outputs.stop_reason) == expected
        assert len(cut.outputs.logprobs) == length
    assert min(lengths) < 60 < 10 * max(lengths), "some are ended, at different lengths"


def pairs(output: RequestOutput) -> list[tuple[dict, int]]:
    return list(zip(output.outputs.logprobs, output.outputs.token_ids, strict=True))


def test_an_early_stop_counts_the_same_in_company_and_in_a_stream(llm):
    early = SamplingParams(temperature=0.4, seed=4, max_tokens=80, ignore_eos=True, early_stop=EARLY_STOP)
    prompts = [[number, 41, 42] for number in range(10, 30)]
    together = llm.generate(prompts, early, use_tqdm=False)
    assert len({len(output.outputs.token_ids) for output in together}) > 3
    for prompt, output in zip(prompts[:5], together, strict=False):
        deltas = list(llm.stream(prompt, early))
        assert [token for delta in deltas for token in delta.outputs.token_ids] == output.outputs.token_ids
        assert "".join(delta.outputs.text for delta in deltas) == output.outputs.text
        assert deltas[-1].outputs.stop_reason == output.outputs.stop_reason


# --- in company, also of processes that keep one another waiting ------------------------------------------------------

PROMPTS = [[(7 * row + 3 * place) % 250 + 1 for place in range(3 + 17 * row % 90)] for row in range(12)]
DRAWN = [
    SamplingParams(
        temperature=0.0 if row % 3 == 0 else 1.0, seed=row, top_p=0.9, max_tokens=20, ignore_eos=True, logprobs=2
    )
    for row in range(12)
]


def answers(outputs):
    return [(output.outputs.token_ids, output.outputs.logprobs, output.outputs.text) for output in outputs]


@pytest.fixture(scope="module")
def small_alone(llm):
    return [
        answers(llm.generate([prompt], params, use_tqdm=False))[0]
        for prompt, params in zip(PROMPTS, DRAWN, strict=True)
    ]


def test_together_and_in_another_order_as_alone(llm, small_alone):
    assert answers(llm.generate(PROMPTS, DRAWN, use_tqdm=False)) == small_alone
    order = random.Random(1).sample(range(12), 12)
    outputs = llm.generate([PROMPTS[row] for row in order], [DRAWN[row] for row in order], use_tqdm=False)
    assert answers(outputs) == [small_alone[row] for row in order]


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({"max_num_batched_tokens": 16}, marks=pytest.mark.long),
        {"num_gpu_blocks_override": 18, "block_size": 16, "max_model_len": 256, "static_decode_blocks": 0},
        pytest.param({"enable_prefix_caching": False, "max_num_seqs": 3}, marks=pytest.mark.long),
    ],
    ids=["chunks of 16", "preempted", "three at a time"],
)
def test_with_delays_between_processes_and_other_limits_as_alone(model_folder, monkeypatch, small_alone, options):
    delays = "worker.step=delay:0.01;engine.plan=delay:0.01;detokenizer.tokens=delay:0.01"
    monkeypatch.setenv("PENSTOCK_FAULTS", delays)
    with LLM(
        model_folder, deterministic=True, quiet=True, **{"max_model_len": 512, "kv_cache_memory": "32MiB", **options}
    ) as other:
        outputs = other.generate(PROMPTS, DRAWN, use_tqdm=False)
        if "static_decode_blocks" in options:
            assert other.stats().preemptions > 0, "the pool was meant to be too small"
    assert answers(outputs) == small_alone
