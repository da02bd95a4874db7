"""Answers do not depend on company: through the real tree, with delays between its processes.

The many arrangements of batches, chunks and pools are tried in one process (`tests/worker/test_company.py`); here it
is the processes that could disturb an answer.
"""

import random

import pytest

from penstock import LLM, SamplingParams

PROMPTS = [[(7 * row + 3 * place) % 250 + 1 for place in range(3 + 17 * row % 90)] for row in range(12)]
PARAMS = [
    SamplingParams(
        temperature=0.0 if row % 3 == 0 else 1.0, seed=row, top_p=0.9, max_tokens=20, ignore_eos=True, logprobs=2
    )
    for row in range(12)
]


def answers(outputs):
    return [(output.outputs.token_ids, output.outputs.logprobs, output.outputs.text) for output in outputs]


@pytest.fixture(scope="module")
def alone(llm):
    return [
        answers(llm.generate([prompt], params, use_tqdm=False))[0]
        for prompt, params in zip(PROMPTS, PARAMS, strict=True)
    ]


def test_together_as_alone(llm, alone):
    assert answers(llm.generate(PROMPTS, PARAMS, use_tqdm=False)) == alone


def test_in_another_order_as_alone(llm, alone):
    order = random.Random(1).sample(range(12), 12)
    outputs = llm.generate([PROMPTS[row] for row in order], [PARAMS[row] for row in order], use_tqdm=False)
    assert answers(outputs) == [alone[row] for row in order]


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({"max_num_batched_tokens": 16}, marks=pytest.mark.long),
        {"num_gpu_blocks_override": 18, "block_size": 16, "max_model_len": 256, "static_decode_blocks": 0},
        pytest.param({"enable_prefix_caching": False, "max_num_seqs": 3}, marks=pytest.mark.long),
    ],
    ids=["chunks of 16", "preempted", "three at a time"],
)
def test_with_delays_between_processes_and_other_limits_as_alone(model_folder, monkeypatch, alone, options):
    delays = "worker.step=delay:0.01;engine.plan=delay:0.01;detokenizer.tokens=delay:0.01"
    monkeypatch.setenv("PENSTOCK_FAULTS", delays)
    with LLM(
        model_folder, deterministic=True, quiet=True, **{"max_model_len": 512, "kv_cache_memory": "32MiB", **options}
    ) as other:
        outputs = other.generate(PROMPTS, PARAMS, use_tqdm=False)
        if "static_decode_blocks" in options:
            assert other.stats().preemptions > 0, "the pool was meant to be too small"
    assert answers(outputs) == alone
