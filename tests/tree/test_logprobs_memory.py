"""A long prompt's log-probabilities over a large vocabulary need little memory beside that of the prompt itself."""

import os
from pathlib import Path

import pytest
from bench_models import SHAPES, write_config
from builders.watching import tree_processes

from penstock import LLM, SamplingParams

MIB = 1 << 20
LENGTH, TOP = 4096, 20
MOST_ADDED = 300 * 10**6
SHAPE = {**SHAPES["0.6b"], "num_hidden_layers": 1, "max_position_embeddings": 8192}


@pytest.mark.long
@pytest.mark.parametrize("variant", [None, "none"], ids=["native", "torch"])
def test_the_top_20_of_4096_positions_over_152k_tokens_add_at_most_300_mb(tmp_path, monkeypatch, variant):
    if variant is not None:
        monkeypatch.setenv("PENSTOCK_CPU_VARIANT", variant)
    write_config(tmp_path, SHAPE)
    options = {"load_format": "dummy", "dtype": "bfloat16", "max_model_len": LENGTH + 64, "quiet": True}
    # As many blocks as one prompt needs, so that each is touched by the first.
    with LLM(tmp_path, enable_prefix_caching=False, num_gpu_blocks_override=LENGTH // 32 + 2, **options) as llm:
        peak_of(llm, 1)
        plain = peak_of(llm, 2)
        detailed = peak_of(llm, 3, prompt_logprobs=TOP, logprobs=TOP)
    added = detailed - plain
    print(f"{variant or 'native'}: {plain / MIB:.0f} MiB without, {added / MIB:.0f} MiB more with the top {TOP}")
    assert added <= MOST_ADDED


def peak_of(llm: LLM, start: int, **params: int) -> int:
    """The peaks of all processes, the caller's and its results included, while a prompt is computed."""
    pids = [os.getpid(), *tree_processes(llm).values()]
    for pid in pids:
        Path(f"/proc/{pid}/clear_refs").write_text("5")  # the peak is what is held now
    prompt = [(start + 37 * place) % 150_000 for place in range(LENGTH)]
    [output] = llm.generate(prompt, SamplingParams(max_tokens=8, ignore_eos=True, **params), use_tqdm=False)
    assert len(output.outputs.token_ids) == 8, output.error_msg
    if params:
        assert len(output.prompt_logprobs) == LENGTH
        assert all(len(position) >= TOP for position in output.prompt_logprobs[1:])
    return sum(peak_bytes(pid) for pid in pids)


def peak_bytes(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) * 1024
