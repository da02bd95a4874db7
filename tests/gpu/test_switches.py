"""Each fast path, turned over by its switch, answers as a CPU does, in a tree that reads the switch where it matters.

`scripts/check_gpu FOLDER switches` runs these.
"""

import os
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from builders.cpu_answers import IS_REHEARSAL, on_cpu
from builders.float8_forms import FLOAT8_FORMS
from builders.on_card import SMALL, generated, mixed_prompts, sized
from builders.quantized_model import float8_model
from builders.tiny_model import tiny_model

from penstock import LLM, SamplingParams
from penstock.kernels.triton.launch.switches import SWITCHES

BY_NAME = {each.variable.removeprefix("PENSTOCK_"): each for each in SWITCHES}
BY_VARIABLE = [each.variable for each in SWITCHES]
PROMPTS = mixed_prompts(8)
MANY_TOKENS = [[(7 * place) % 290 + 10 for place in range(1100)]]  # dequantized products begin at 1,024


class Trial(NamedTuple):
    """What reads a switch, small enough for seconds on a card."""

    model: Callable[[Path], str | Path] = lambda folder: "pocket"
    options: dict[str, Any] = {"dtype": "float32"}
    prompts: list[Any] = PROMPTS
    apart: float = 2e-3  # log-probabilities of a prompt's tokens from the CPU's, in the mean
    ranks: int = 1
    needs_card: bool = False


def dense(folder: Path) -> Path:
    """With heads enough for a library: 8,192 queries of all of them."""
    return tiny_model(folder / "model", "qwen3", max_position_embeddings=2048, num_attention_heads=8, head_dim=64)


def mixture(folder: Path) -> Path:
    """Its prompt has more than 64 pairs for each expert, of sizes that torch's grouped products take."""
    return tiny_model(folder / "model", "qwen3_moe", max_position_embeddings=2048, moe_intermediate_size=64)


def of_float8(folder: Path) -> Path:
    form = next(form for form in FLOAT8_FORMS if form.name == "deepseek-128")
    return float8_model(folder, form, hidden_size=256, intermediate_size=512)[0]


WARMED_UP = {"dtype": "float32", "use_warmup": True, "max_num_batched_tokens": 64, "max_num_seqs": 4}
LONG = {"dtype": "bfloat16", "max_model_len": 1536, "max_num_batched_tokens": 1536}
TRIALS = {
    "GRAPHS": Trial(),
    "PROMPT_GRAPHS": Trial(options=WARMED_UP),
    "FUSED_PRODUCTS": Trial(),
    "LIBRARY_ATTENTION": Trial(dense, LONG, MANY_TOKENS, apart=0.06, needs_card=True),
    "DEQUANTIZED_PRODUCTS": Trial(dense, {**LONG, "quantization": "wint8"}, MANY_TOKENS, apart=0.15),
    "KERNEL_TUNING": Trial(options=WARMED_UP, needs_card=True),
    "PEER_MEMORY": Trial(ranks=2, needs_card=True),
    "GROUPED_PRODUCTS": Trial(mixture, LONG, MANY_TOKENS, apart=0.06),
    "FLOAT8_PRODUCTS": Trial(of_float8, {"dtype": "bfloat16"}, [MANY_TOKENS[0][:70]], apart=0.15),
    "DEPENDENT_LAUNCHES": Trial(),
    "FAST_RANKS": Trial(ranks=2),
    "FIRST_LOGITS": Trial(ranks=2, needs_card=True),
    "STREAM_SUMS": Trial(ranks=2),
}


def test_every_switch_is_tried():
    assert list(TRIALS) == list(BY_NAME)


@pytest.fixture
def trial(request, device) -> Trial:
    name, found = request.param, TRIALS[request.param]
    lack = ""
    if os.environ.get("PENSTOCK_CPU_ANSWERS") == "prepare":
        return found
    if found.ranks > 1 and device == "cuda" and torch.cuda.device_count() < found.ranks:
        lack = f"it needs {found.ranks} cards, and there is {torch.cuda.device_count()}"
    elif device == "cpu" and (found.needs_card or not IS_REHEARSAL):
        lack = "it needs a card" if found.needs_card else "it needs TRITON_INTERPRET=1"
    elif name == "LIBRARY_ATTENTION":
        from penstock.kernels.triton.attention import library

        lack = library.lack()
    if lack:
        print(f"{BY_NAME[name].variable} is not tried: {lack}", flush=True)
        pytest.skip(lack)
    return found


def said(where: str, ranks: int, trial: Trial, model: str | Path) -> dict[str, Any]:
    """The log-probability of every prompt token but the first, and greedy tokens."""
    params = SamplingParams(temperature=0, max_tokens=sized(24, 3), prompt_logprobs=0, ignore_eos=True)
    options = {**SMALL, **trial.options, "tensor_parallel_size": ranks, "num_threads": ranks}
    with LLM(model, device=where, **options) as llm:
        outputs = generated(llm, trial.prompts, params)
    found = [zip(each.prompt_token_ids[1:], each.prompt_logprobs[1:], strict=True) for each in outputs]
    return {
        "likely": [entry[token].logprob for of_prompt in found for token, entry in of_prompt],
        "tokens": [list(each.outputs.token_ids) for each in outputs],
    }


@pytest.mark.parametrize("trial, switch", BY_NAME.items(), indirect=["trial"], ids=BY_VARIABLE)
def test_turned_over_it_answers_as_a_cpu_does(trial, switch, device, tmp_path, monkeypatch):
    model = trial.model(tmp_path)
    expected = on_cpu(f"switch-{switch.variable}", lambda: said("cpu", 1, trial, model))
    monkeypatch.setenv(switch.variable, str(int(not switch.is_on_unasked)))
    found = said(device, trial.ranks, trial, model)
    pairs = zip(found["likely"], expected["likely"], strict=True)
    apart = statistics.mean(abs(one - other) for one, other in pairs)
    print(f"{switch.variable}: {apart:.4f} apart", flush=True)
    assert apart < trial.apart
    if trial.options["dtype"] == "float32":
        assert found["tokens"] == expected["tokens"]
