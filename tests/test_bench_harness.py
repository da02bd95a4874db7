"""The benchmarks' harness, what a GGUF file and a GPU read, and the cost of a failed part. No rates are tested."""

import argparse
import json
from pathlib import Path
from typing import Literal

import bench_gpu
import pytest
import torch
from bench.__main__ import add_options, first_line, scenario, scenarios
from bench.accuracy.logits import centred, perplexity
from bench.harness import alternated
from bench.machine import processor
from bench.models import SHAPES
from bench.peers.gguf import bytes_read_a_token
from builders.cases import for_each
from builders.gguf_file import write_gguf, zeros
from gpu_figures import Figure, Setting
from gpu_figures.work import Work, attention_operations

X86 = "processor\t: 0\nmodel name\t: Some CPU @ 2.50GHz\nflags\t\t: fpu avx2 fma sse4_2 avx512_vnni\n\nprocessor\t: 1\n"
ARM = "processor\t: 0\nFeatures\t: fp asimd i8mm bf16\nCPU part\t: 0xd40\n"


@for_each(
    "cpuinfo, name, flags",
    [(X86, "Some CPU @ 2.50GHz", ["avx2", "fma", "avx512_vnni"]), (ARM, "0xd40", ["asimd", "i8mm", "bf16"])],
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


def test_the_parameters_of_a_scenario_are_its_options():
    def run(commit: str, rows: tuple[int, ...] = (1, 2), kind: Literal["a", "b"] = "a", *, most: float | None = None,
            is_small: bool = False) -> None:  # fmt: skip
        pass

    parser = argparse.ArgumentParser(exit_on_error=False)
    add_options(parser, run)
    assert vars(parser.parse_args(["main"])) == {
        "commit": "main", "rows": (1, 2), "kind": "a", "most": None, "is_small": False,
    }  # fmt: skip
    words = ["main", "--rows", "4", "8", "--kind", "b", "--most", "2.5", "--is-small"]
    assert vars(parser.parse_args(words)) == {
        "commit": "main", "rows": [4, 8], "kind": "b", "most": 2.5, "is_small": True,
    }  # fmt: skip
    with pytest.raises(argparse.ArgumentError):
        parser.parse_args(["main", "--kind", "c"])


def test_every_scenario_says_in_a_line_what_it_measures_and_its_options_are_read():
    for name, path in scenarios().items():
        assert 20 < len(first_line(path)) <= 120, name
        scenario(name)


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


SMALL = Work(hidden=8, inner=16, num_layers=2, num_heads=4, num_kv_heads=2, head_dim=4, vocabulary=10)


def test_the_shapes_have_the_weights_that_their_names_say():
    eight, little = (Work.of(SHAPES[name]) for name in ("8b", "0.6b"))
    assert 7.5e9 < eight.layer_weights + eight.head_weights < 8.2e9
    assert 0.55e9 < little.layer_weights + little.head_weights < 0.6e9
    assert eight.kv_bytes() == 2 * 36 * 8 * 128 * 2


def test_a_prompt_s_tokens_see_those_before_them():
    assert attention_operations(4, 4, 3) == 4 * 4 * 4 * (1 + 2 + 3)
    products = 2 * SMALL.layer_weights * 3 + 2 * SMALL.head_weights
    assert SMALL.prompt_operations([3]) == products + 2 * attention_operations(4, 4, 3)


def test_a_section_that_fails_says_why_and_keeps_what_it_had_found(tmp_path):
    def broken(setting: Setting):
        yield setting.of_bandwidth("half", 2e-3, 1e6)
        raise RuntimeError("\nthe card is gone\nand more")

    found = tmp_path / "found.jsonl"
    setting = Setting("cpu", True, {"copy bandwidth": 1.0}, tmp_path)
    assert not bench_gpu.measure(broken, setting, found)
    assert bench_gpu.measure(lambda setting: iter([Figure("whole", 2.0, "x")]), setting, found)
    assert bench_gpu.known(found) == {"half": pytest.approx(2000), "whole": 2.0}
    figure, failure, _ = map(json.loads, found.read_text().splitlines())
    assert figure["share"] == 0.5
    assert failure == {"name": "broken", "failure": "RuntimeError: the card is gone"}
