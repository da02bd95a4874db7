"""The benchmarks' harness and what they read of GGUF files. Its rates are not for tests."""

from pathlib import Path

import pytest
import torch
from bench_gguf import bytes_read_a_token
from bench_harness import alternated, processor, ratios
from builders.cases import for_each
from builders.gguf_file import write_gguf, zeros
from measure_gguf import centred, perplexity

X86 = "processor\t: 0\nmodel name\t: Some CPU @ 2.50GHz\nflags\t\t: fpu avx2 fma sse4_2 avx512_vnni\n\nprocessor\t: 1\n"
ARM = "processor\t: 0\nFeatures\t: fp asimd i8mm bf16\nCPU part\t: 0xd40\n"


@for_each(
    "cpuinfo, name, flags",
    [
        (X86, "Some CPU @ 2.50GHz", ["avx2", "fma", "avx512_vnni"]),
        (ARM, "0xd40", ["asimd", "i8mm", "bf16"]),
    ],
)
def test_a_processor_is_known_by_its_name_and_the_flags_that_decide(cpuinfo, name, flags):
    assert processor(cpuinfo) == {"processor": name, "flags": flags}


def test_each_round_runs_every_variant_once_and_the_order_turns():
    order: list[str] = []

    def noting(name: str):
        return lambda: order.append(name) or float(len(order))

    results = alternated({name: noting(name) for name in "abc"}, rounds=3)
    assert order == list("abcbcacab")
    assert results == {"a": [1, 6, 8], "b": [2, 4, 9], "c": [3, 5, 7]}


def test_a_ratio_compares_within_a_round_so_that_a_slow_spell_hits_both_sides():
    # The second round ran on a machine ten times slower.
    assert ratios({"base": [1.0, 10.0, 1.0], "ours": [2.0, 20.0, 2.0]}, "base") == {"ours": 2.0}


# --- GGUF files -------------------------------------------------------------------------------------------------------

TABLE, LAYER = zeros((512, 256), "Q6_K"), zeros((256, 256), "Q4_K")
EXPERTS = zeros((8, 32, 256), "Q8_0")


def nbytes(tensor) -> int:
    return len(tensor.content)


@for_each(
    "further, read",
    [
        ({}, nbytes(TABLE) + nbytes(LAYER)),
        ({"output.weight": TABLE}, nbytes(TABLE) + nbytes(LAYER)),
        ({"blk.0.ffn_up_exps.weight": EXPERTS}, nbytes(TABLE) + nbytes(LAYER) + nbytes(EXPERTS) / 4),
    ],
)
def test_a_token_reads_all_weights_but_a_table_and_of_experts_those_in_use(tmp_path: Path, further, read):
    metadata = {"general.architecture": "qwen3moe", "qwen3moe.expert_count": 8, "qwen3moe.expert_used_count": 2}
    tensors = {"token_embd.weight": TABLE, "blk.0.attn_q.weight": LAYER, **further}
    assert bytes_read_a_token(write_gguf(tmp_path / "model.gguf", metadata, tensors)) == read


def test_perplexity_is_that_of_the_next_tokens_of_all_texts_and_a_constant_changes_nothing():
    logits, tokens = torch.zeros(8, 8), torch.arange(5)
    assert perplexity(logits, [tokens, tokens[:3]]) == pytest.approx(8.0)
    assert torch.allclose(centred(logits + 3), centred(logits))
